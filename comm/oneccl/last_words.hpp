// What a rank says when the MPI library ends its process.
#pragma once

#include <ppengine/comm/oneccl/engine.hpp>

namespace ppengine::comm::oneccl {

// On one machine MPI reads large messages out of their sender's memory. When the sender is killed in the middle, it neither returns nor
// throws: it calls exit(1), often before the rendezvous knows. While one of these lives, such an end becomes that of a rank which has lost
// its peer: exit code 4 and a message that names it.
class LastWords {
 public:
  explicit LastWords(Rendezvous& rendezvous);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  // What this thread waits for: named in the message.
  static const Operation*& awaited();
  // This thread only moves messages while another one computes.
  static bool& aside();
};

}  // namespace ppengine::comm::oneccl
