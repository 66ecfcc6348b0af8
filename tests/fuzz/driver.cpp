// Runs a fuzz target where there is no libFuzzer: replays the corpus, then mutations of it, until the time is up. Takes
// libFuzzer's command line (-max_total_time=SECONDS, folders) and ignores what it does not know.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

std::vector<Bytes> read_corpus(const std::vector<std::string>& folders) {
  std::vector<Bytes> corpus;
  for (const auto& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  return corpus;
}

// One to four small changes: a byte, a piece lost, doubled or taken from another input.
Bytes mutate(Bytes input, const std::vector<Bytes>& corpus, std::mt19937& random) {
  auto pick = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t changes = 1 + pick(4); changes > 0; --changes) {
    const std::size_t at = pick(input.size() + 1), length = std::min(pick(16) + 1, input.size() - at);
    const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at), end = begin + static_cast<std::ptrdiff_t>(length);
    switch (pick(5)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        input.erase(begin, end);
        break;
      case 2: {
        const Bytes piece(begin, end);
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(pick(input.size() + 1)), piece.begin(), piece.end());
        break;
      }
      case 3: {
        const Bytes& other = corpus[pick(corpus.size())];
        const auto from = static_cast<std::ptrdiff_t>(pick(other.size() + 1));
        input.insert(begin, other.begin() + from, other.end());
        break;
      }
      default:
        input.insert(begin, static_cast<std::uint8_t>("0123456789,;()\n\"{}[]"[pick(20)]));
    }
    if (input.size() > 1 << 16) input.resize(1 << 16);
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 5;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-max_total_time="))
      seconds = std::atof(argument.c_str() + 16);
    else if (!argument.starts_with("-"))
      folders.push_back(argument);
  }
  std::vector<Bytes> corpus = read_corpus(folders);
  for (const Bytes& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  if (corpus.empty()) corpus.emplace_back();

  std::mt19937 random(1);
  std::size_t runs = corpus.size();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    const Bytes input = mutate(corpus[random() % corpus.size()], corpus, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  std::printf("%zu runs\n", runs);
}
