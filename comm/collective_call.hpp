// A collective as all its ranks must call it.
#pragma once

#include <string>

#include <ppengine/comm/type.hpp>

namespace ppengine::comm {

struct CollectiveCall {
  enum class Kind : std::uint8_t { allreduce, reduce_scatter, all_gather, broadcast };

  Kind kind;
  std::size_t count;  // elements; of one rank's part where there are parts
  Type type;
  Reduce reduce = Reduce::sum;
  int root = 0;

  const char* name() const;
  // For errors: "allreduce of 12 f32 (sum)".
  std::string text() const;
  std::size_t bytes() const { return count * type.size(); }
  // What a ring moves over one rank's link.
  std::size_t link_bytes(int ranks) const;
  int link_messages(int ranks) const { return kind == Kind::broadcast ? 1 : ranks; }
  bool operator==(const CollectiveCall&) const = default;
};

}  // namespace ppengine::comm
