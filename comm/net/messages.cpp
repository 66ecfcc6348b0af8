// Messages between the ranks and the hub.
#include <ppengine/comm/net/messages.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/hmac.hpp>

namespace ppengine::comm::net {
namespace {

constexpr std::int64_t most_ranks = 1 << 20;
constexpr std::size_t longest_key = 4096;

std::string key_of(Unpacker& in) {
  std::string key = in.text();
  if (key.size() > longest_key) throw Error("a message between ranks names a key that is too long");
  return key;
}

}  // namespace

std::string Hello::expected_proof(const std::string& secret, const std::string& challenge) const {
  return hmac_sha256(secret, Packer().text("rank").text(challenge).text(nonce).number(rank).number(size).text(version).bytes());
}

std::string hub_proof(const std::string& secret, const std::string& challenge, const std::string& nonce) {
  return hmac_sha256(secret, Packer().text("hub").text(challenge).text(nonce).bytes());
}

std::string Hello::pack() const {
  return Packer().text("ppengine").text(nonce).number(rank).number(size).text(version).text(proof).bytes();
}

Hello Hello::unpack(const std::string& contents) {
  Unpacker in(contents);
  if (in.text() != "ppengine") throw Error("not a rank");
  Hello said;
  said.nonce = in.text();
  if (said.nonce.size() != nonce_bytes) throw Error("not a rank");
  said.rank = in.number(0, most_ranks);
  said.size = in.number(1, most_ranks);
  said.version = in.text();
  said.proof = in.text();
  return said;
}

std::string GatherPart::pack() const { return Packer().text(key).number(members).number(index).text(value).bytes(); }

GatherPart GatherPart::unpack(const std::string& contents, int ranks) {
  Unpacker in(contents);
  GatherPart part;
  part.key = key_of(in);
  part.members = in.number(1, ranks);
  part.index = in.number(0, part.members - 1);
  part.value = in.text();
  return part;
}

std::string KeyedTexts::pack() const {
  Packer out;
  out.text(key).number(static_cast<std::int64_t>(texts.size()));
  for (const std::string& one : texts) out.text(one);
  return out.bytes();
}

KeyedTexts KeyedTexts::unpack(const std::string& contents, int ranks) {
  Unpacker in(contents);
  KeyedTexts all;
  all.key = key_of(in);
  all.texts.resize(static_cast<std::size_t>(in.number(0, ranks)));
  for (std::string& one : all.texts) one = in.text();
  return all;
}

std::string pack(const Failure& failure) { return Packer().number(failure.rank).text(failure.reason).number(failure.lost ? 1 : 0).bytes(); }

Failure unpack_failure(const std::string& contents) {
  Unpacker in(contents);
  Failure failure{static_cast<int>(in.number(-1, most_ranks)), {}};
  failure.reason = printable(in.text());
  failure.lost = in.number(0, 1) != 0;
  return failure;
}

}  // namespace ppengine::comm::net
