// What ranks and the hub say to each other: the kinds of frames and their contents, packed and unpacked with every number checked.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/net/frame.hpp>

namespace ppengine::comm::net {

// challenge (hub), hello (rank) and proof (hub) come first, or refused (hub): whoever does not know the secret of the run hears and says
// nothing else.
enum Kind : std::uint8_t {
  challenge,
  hello,
  proof,
  refused,
  welcome,
  gather,
  gathered,
  ask,
  present,
  abort,
  stopped,
  all_stopped,
  beat,
  bye,
  closing
};
constexpr std::chrono::milliseconds beat_every{1000};
constexpr std::size_t nonce_bytes = 32;

// A rank introduces itself: its proof covers both sides' random numbers and all that it says.
struct Hello {
  std::string nonce;
  std::int64_t rank = 0, size = 0;
  std::string version;
  std::string proof;

  std::string expected_proof(const std::string& secret, const std::string& challenge) const;
  std::string pack() const;
  static Hello unpack(const std::string& contents);
};
// By which the hub shows that it knows the secret too.
std::string hub_proof(const std::string& secret, const std::string& challenge, const std::string& nonce);

struct GatherPart {
  std::string key;
  std::int64_t members = 0, index = 0;
  std::string value;

  std::string pack() const;
  static GatherPart unpack(const std::string& contents, int ranks);
};

// A key with texts: all parts of a gathering, or the ranks that have come to it.
struct KeyedTexts {
  std::string key;
  std::vector<std::string> texts;

  std::string pack() const;
  static KeyedTexts unpack(const std::string& contents, int ranks);
};

std::string pack(const Failure& failure);
Failure unpack_failure(const std::string& contents);

}  // namespace ppengine::comm::net
