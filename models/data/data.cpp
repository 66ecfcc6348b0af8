// Token data: files, text, the addition task and random tokens behind one interface.
#include <ppengine/models/data/data.hpp>

#include <fmt/core.h>

#include <functional>
#include <numeric>
#include <variant>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/models/data/addition.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/models/data/jsonl.hpp>
#include <ppengine/models/files/npy.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint64_t eager_check_limit = 1 << 24;  // files up to this many tokens are checked when they are opened
constexpr std::uint64_t synthetic_sequences = 1024;

// The numbers of a file, whatever form they have there.
class Tokens {
 public:
  explicit Tokens(NpyFile file) : from_(std::move(file)) {}
  Tokens(MappedFile file, int item_bytes) : from_(Raw{std::move(file), item_bytes}) {}
  Tokens(std::vector<std::int32_t> ids, std::string path) : from_(Ids{std::move(ids), std::move(path)}) {}

  std::uint64_t count() const {
    if (const auto* npy = std::get_if<NpyFile>(&from_)) return npy->elements();
    if (const auto* raw = std::get_if<Raw>(&from_)) return raw->file.size() / static_cast<std::size_t>(raw->item_bytes);
    return std::get<Ids>(from_).ids.size();
  }
  std::int64_t at(std::uint64_t index) const {
    if (const auto* npy = std::get_if<NpyFile>(&from_)) return npy->at(index);
    if (const auto* raw = std::get_if<Raw>(&from_)) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(raw->file.data());
      return raw->item_bytes == 1 ? bytes[index] : bytes[2 * index] | bytes[2 * index + 1] << 8;
    }
    return std::get<Ids>(from_).ids[index];
  }
  // FileError where the file has become shorter.
  void expect_whole() const {
    if (const auto* npy = std::get_if<NpyFile>(&from_)) npy->expect_whole();
    if (const auto* raw = std::get_if<Raw>(&from_)) raw->file.expect_whole();
  }
  std::string path() const {
    if (const auto* npy = std::get_if<NpyFile>(&from_)) return npy->path().string();
    if (const auto* raw = std::get_if<Raw>(&from_)) return raw->file.path().string();
    return std::get<Ids>(from_).path;
  }

 private:
  struct Raw {
    MappedFile file;
    int item_bytes;
  };
  struct Ids {
    std::vector<std::int32_t> ids;
    std::string path;
  };
  std::variant<NpyFile, Raw, Ids> from_;
};

// A stream cut into sequences that share one token with the next, or rows of their own. In rows negative ids are padding:
// masked as a target, token 0 as an input.
class FileSource : public TokenSource {
 public:
  FileSource(Tokens tokens, std::int64_t length, std::int64_t vocabulary, bool rows)
      : tokens_(std::move(tokens)), length_(length), vocabulary_(vocabulary), rows_(rows) {
    const auto row = static_cast<std::uint64_t>(length_) + 1;
    const std::uint64_t count = tokens_.count();
    sequences_ = rows_ ? count / row : count == 0 ? 0 : (count - 1) / static_cast<std::uint64_t>(length_);
    if (sequences_ == 0)
      throw FileError(fmt::format("{}: {} tokens are too few for one sequence of {} (+ 1)", tokens_.path(), count, length_));
    if (count <= eager_check_limit)
      for (std::uint64_t i = 0; i < count; ++i) check(i);
  }

  std::uint64_t sequences() const override { return sequences_; }
  std::int64_t length() const override { return length_; }
  std::string name() const override { return tokens_.path(); }

  void read(std::uint64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const override {
    const auto length = static_cast<std::uint64_t>(length_);
    PPENGINE_ASSERT(index < sequences_ && inputs.size() == length && targets.size() == length);
    tokens_.expect_whole();
    const std::uint64_t start = index * (rows_ ? length + 1 : length);
    for (std::uint64_t i = 0; i <= length; ++i) {
      const std::int32_t token = check(start + i);
      if (i < length) inputs[i] = token < 0 ? 0 : token;
      if (i > 0) targets[i - 1] = token < 0 ? masked_target : token;
    }
  }

 private:
  std::int32_t check(std::uint64_t index) const {
    const std::int64_t token = tokens_.at(index);
    if (token >= vocabulary_ || (token < 0 && !rows_))
      throw FileError(fmt::format("{}: token {} at index {} is not in the vocabulary of {}", tokens_.path(), token, index, vocabulary_));
    return static_cast<std::int32_t>(token < 0 ? -1 : token);
  }

  Tokens tokens_;
  std::int64_t length_;
  std::int64_t vocabulary_;
  bool rows_;
  std::uint64_t sequences_ = 0;
};

class SyntheticSource : public TokenSource {
 public:
  explicit SyntheticSource(const DataOptions& options)
      : length_(options.sequence_length), vocabulary_(options.vocabulary), seed_(options.seed) {}
  std::uint64_t sequences() const override { return synthetic_sequences; }
  std::int64_t length() const override { return length_; }
  std::string name() const override { return "synthetic"; }
  void read(std::uint64_t index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const override {
    const auto token = [&](std::uint64_t i) {
      return static_cast<std::int32_t>(random_below(seed_, index, i, static_cast<std::uint64_t>(vocabulary_)));
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = token(i), targets[i] = token(i + 1);
  }

 private:
  std::int64_t length_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
};

std::unique_ptr<TokenSource> open_npy(const std::string& path, const DataOptions& options) {
  NpyFile file(path);
  if (file.shape().size() == 1)
    return std::make_unique<FileSource>(Tokens(std::move(file)), options.sequence_length, options.vocabulary, false);
  const std::uint64_t columns = file.shape()[1];
  if (columns < 2 || columns > INT32_MAX)
    throw FileError(fmt::format("{}: rows of {} tokens: [sequences, length + 1] is needed", path, columns));
  const auto length = static_cast<std::int64_t>(columns) - 1;
  if (options.sequence_length != 0 && options.sequence_length != length)
    throw ConfigError(
        fmt::format("{}: its rows have length {} (+ 1), not --seq-len {}: leave the flag out", path, length, options.sequence_length));
  return std::make_unique<FileSource>(Tokens(std::move(file)), length, options.vocabulary, true);
}

std::unique_ptr<TokenSource> open_text(const std::string& path, const DataOptions& options) {
  MappedFile file(path);
  if (!options.tokenizer)
    return std::make_unique<FileSource>(Tokens(std::move(file), 1), options.sequence_length, options.vocabulary, false);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return std::make_unique<FileSource>(Tokens(options.tokenizer->encode(text), path), options.sequence_length, options.vocabulary, false);
}

std::unique_ptr<TokenSource> open_bin(const std::string& path, const DataOptions& options) {
  MappedFile file(path);
  if (file.size() % 2 != 0) throw FileError(fmt::format("{}: {} bytes are not a whole number of 16-bit tokens", path, file.size()));
  return std::make_unique<FileSource>(Tokens(std::move(file), 2), options.sequence_length, options.vocabulary, false);
}

}  // namespace

void TokenSource::read_positions(std::uint64_t, std::span<std::int32_t> positions) const {
  std::iota(positions.begin(), positions.end(), 0);
}

std::unique_ptr<TokenSource> open_data(const std::string& data, const DataOptions& options) {
  if (options.vocabulary <= 0) throw ConfigError("data: the vocabulary's size is needed");
  if (data.ends_with(".jsonl")) return open_jsonl(data, options);
  if (options.pack || options.variable_lengths)
    throw ConfigError(fmt::format("--pack and --lengths variable are for FILE.jsonl, whose examples differ in length, not for {}", data));
  if (data.ends_with(".npy") && options.sequence_length == 0 && NpyFile(data).shape().size() == 2) return open_npy(data, options);
  if (options.sequence_length < 1 || options.sequence_length > INT32_MAX - 1)
    throw ConfigError(fmt::format("--seq-len {}: a sequence length of at least 1 is needed", options.sequence_length));
  if (data.ends_with(".npy")) return open_npy(data, options);
  if (data.ends_with(".bin")) return open_bin(data, options);
  if (data.ends_with(".txt")) return open_text(data, options);
  if (data == "task:addition") return addition::make_source(options);
  if (data == "synthetic") return std::make_unique<SyntheticSource>(options);
  throw ConfigError(fmt::format("--data {}: use FILE.npy, FILE.bin, FILE.txt, FILE.jsonl, task:addition or synthetic", data));
}

}  // namespace ppengine::models
