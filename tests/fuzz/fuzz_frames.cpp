// Any bytes as what arrives at the port of the ranks, from a stranger and from a rank: only our own errors may come out, and what is taken
// as a message must survive being packed again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/net/messages.hpp>

using namespace ppengine::comm;

namespace {

constexpr int ranks = 8;

void expect(bool condition) {
  if (!condition) std::abort();
}

void use(const net::Frame& frame) {
  switch (frame.kind) {
    case net::hello: {
      const auto said = net::Hello::unpack(frame.contents);
      expect(said.expected_proof("secret", "challenge").size() ==
             32);  // not compared: libFuzzer sees what a comparison wants, and gives it
      expect(net::Hello::unpack(said.pack()).version == said.version);
      break;
    }
    case net::gather: {
      const auto part = net::GatherPart::unpack(frame.contents, ranks);
      expect(part.members <= ranks && part.index < part.members);
      expect(net::GatherPart::unpack(part.pack(), ranks).value == part.value);
      break;
    }
    case net::gathered: {
      const auto all = net::KeyedTexts::unpack(frame.contents, ranks);
      expect(net::KeyedTexts::unpack(all.pack(), ranks).texts == all.texts);
      break;
    }
    case net::abort:
      for (const char c : net::unpack_failure(frame.contents).reason)
        expect(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
      break;
    default:
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  net::FrameReader reader;
  if (data[0] % 2 != 0) reader.set_largest(net::FrameReader::from_ranks);
  // In two pieces: a frame may end anywhere.
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t middle = data[0] % (bytes.size() + 1);
  try {
    for (const std::string& piece : {bytes.substr(0, middle), bytes.substr(middle)}) {
      reader.add(piece);
      while (const auto frame = reader.next()) {
        try {
          use(*frame);
        } catch (const ppengine::Error&) {
        }
      }
    }
  } catch (const ppengine::Error&) {
  }
  return 0;
}
