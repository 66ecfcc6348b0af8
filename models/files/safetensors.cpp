// Reading safetensors: eight bytes of header length, a JSON header, then the tensors' bytes without a gap.
#include <ppengine/models/files/safetensors.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian and is mapped as it is");

constexpr std::uint64_t max_header_bytes = 100'000'000;  // as in Hugging Face's reader
constexpr std::size_t max_rank = 16;

struct TypeEntry {
  const char* name;
  StoredType type;
  std::size_t size;
};
constexpr std::array<TypeEntry, 15> types{{{"F32", StoredType::f32, 4},
                                           {"F16", StoredType::f16, 2},
                                           {"BF16", StoredType::bf16, 2},
                                           {"F64", StoredType::f64, 8},
                                           {"I64", StoredType::i64, 8},
                                           {"I32", StoredType::i32, 4},
                                           {"I16", StoredType::i16, 2},
                                           {"I8", StoredType::i8, 1},
                                           {"U64", StoredType::u64, 8},
                                           {"U32", StoredType::u32, 4},
                                           {"U16", StoredType::u16, 2},
                                           {"U8", StoredType::u8, 1},
                                           {"BOOL", StoredType::boolean, 1},
                                           {"F8_E4M3", StoredType::f8_e4m3, 1},
                                           {"F8_E5M2", StoredType::f8_e5m2, 1}}};

struct Entry {
  std::uint64_t begin = 0;  // in the data after the header
  StoredTensor tensor;
};

Entry parse_tensor(const std::string& name, const JsonPlace& entry, std::uint64_t data_bytes) {
  const auto refuse = [&](const std::string& what) { throw FileError(fmt::format("{}: tensor '{}' {}", entry.file(), name, what)); };
  entry.expect_object();
  StoredTensor tensor;
  tensor.name = name;
  tensor.file = entry.file();
  tensor.type_name = entry.at("dtype").string();
  tensor.type = StoredType::other;
  for (const TypeEntry& known : types)
    if (tensor.type_name == known.name) tensor.type = known.type;

  const JsonPlace shape = entry.at("shape");
  shape.expect_array();
  if (shape.size() > max_rank) refuse(fmt::format("has {} dimensions", shape.size()));
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t extent = shape.element(i).integer(0, INT64_MAX);
    tensor.shape.push_back(extent);
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements) || elements > (1ull << 60))
      refuse("has a shape with more elements than there can be");
  }
  tensor.elements = elements;

  const JsonPlace offsets = entry.at("data_offsets");
  if (offsets.expect_array().size() != 2) refuse("needs two data_offsets");
  const auto begin = static_cast<std::uint64_t>(offsets.element(0).integer(0, INT64_MAX));
  const auto end = static_cast<std::uint64_t>(offsets.element(1).integer(0, INT64_MAX));
  if (begin > end) refuse(fmt::format("ends ({}) before it begins ({})", end, begin));
  if (end > data_bytes) refuse(fmt::format("ends at byte {} of {} bytes of data: the file is cut short", end, data_bytes));
  tensor.bytes = end - begin;
  const std::size_t size = stored_type_size(tensor.type);
  if (size != 0 && elements * size != tensor.bytes)
    refuse(fmt::format("has {} bytes, but its shape and type {} need {}", tensor.bytes, tensor.type_name, elements * size));
  return {begin, std::move(tensor)};
}

}  // namespace

const char* stored_type_name(StoredType type) {
  for (const TypeEntry& known : types)
    if (known.type == type) return known.name;
  return "?";
}

std::size_t stored_type_size(StoredType type) {
  for (const TypeEntry& known : types)
    if (known.type == type) return known.size;
  return 0;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : map_(path) {
  const std::string name = path.string();
  if (map_.size() < 8) throw FileError(fmt::format("{}: {} bytes are too few for a safetensors file", name, map_.size()));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map_.data(), 8);
  if (header_bytes > max_header_bytes)
    throw FileError(fmt::format("{}: the header's length of {} bytes is absurd (limit {})", name, header_bytes, max_header_bytes));
  if (header_bytes > map_.size() - 8)
    throw FileError(fmt::format("{}: the header says {} bytes, the file has {}: it is cut short", name, header_bytes, map_.size()));
  const std::string_view text(reinterpret_cast<const char*>(map_.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') throw FileError(fmt::format("{}: the header does not begin with '{{'", name));

  const nlohmann::json header = parse_json(text, name, {.max_depth = 4, .max_values = 5'000'000});
  const std::uint64_t data_bytes = map_.size() - 8 - header_bytes;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__") {
      for (const auto& [field, word] : JsonPlace(value, name, key).expect_object().json().items())
        if (!word.is_string()) throw FileError(fmt::format("{}: __metadata__.{} must be a string", name, field));
      continue;
    }
    entries.push_back(parse_tensor(key, JsonPlace(value, name, fmt::format("tensor '{}'", key)), data_bytes));
  }

  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.tensor.bytes) < std::pair(b.begin, b.tensor.bytes); });
  std::uint64_t next = 0;
  for (auto& [begin, tensor] : entries) {
    if (begin != next)
      throw FileError(fmt::format("{}: tensor '{}' begins at byte {} where {} is due: the tensors {}", name, tensor.name, begin, next,
                                  begin < next ? "overlap" : "leave a gap"));
    next = begin + tensor.bytes;
    tensor.data = map_.data() + 8 + header_bytes + begin;
    tensors_.push_back(std::move(tensor));
  }
  if (next != data_bytes) throw FileError(fmt::format("{}: {} bytes after the last tensor belong to none", name, data_bytes - next));
}

WeightFiles WeightFiles::open(const std::filesystem::path& folder_or_file) {
  WeightFiles result;
  result.path_ = folder_or_file;
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(folder_or_file, ignored);
  const auto index_path = folder_or_file / "model.safetensors.index.json";
  const auto single_path = is_folder ? folder_or_file / "model.safetensors" : folder_or_file;

  if (is_folder && !std::filesystem::exists(single_path, ignored) && !std::filesystem::exists(index_path, ignored))
    throw FileError(fmt::format("{}: there are no weights: neither model.safetensors nor model.safetensors.index.json is in the folder",
                                folder_or_file.string()));
  std::unordered_map<std::string, std::string> expected;  // tensor -> shard, from the index
  if (!is_folder || std::filesystem::exists(single_path, ignored)) {
    result.files_.emplace_back(single_path);
  } else {
    const nlohmann::json index = read_json(index_path, max_header_bytes, {.max_depth = 8});
    const JsonPlace map = JsonPlace(index, index_path.string()).at("weight_map");
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : map.expect_object().json().items()) {
      if (!shard.is_string()) throw FileError(fmt::format("{}: weight_map['{}'] must be a file name", index_path.string(), tensor));
      const std::string file = shard.get<std::string>();
      if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos || file == "..")
        throw FileError(fmt::format("{}: weight_map['{}'] must be a file in the same folder", index_path.string(), tensor));
      expected.emplace(tensor, file);
      shards.insert(file);
    }
    for (const std::string& shard : shards) result.files_.emplace_back(folder_or_file / shard);
  }

  for (const SafetensorsFile& file : result.files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      if (!expected.empty()) {
        const auto found = expected.find(tensor.name);
        if (found == expected.end() || found->second != file.path().filename().string())
          throw FileError(
              fmt::format("{}: tensor '{}' is not listed for this file in {}", file.path().string(), tensor.name, index_path.string()));
      }
      if (!result.index_.emplace(tensor.name, result.tensors_.size()).second)
        throw FileError(fmt::format("{}: tensor '{}' is in another shard too", file.path().string(), tensor.name));
      result.tensors_.push_back(tensor);
    }
  }
  for (const auto& [tensor, shard] : expected)
    if (!result.index_.contains(tensor))
      throw FileError(fmt::format("{}: tensor '{}' is missing", (folder_or_file / shard).string(), tensor));
  return result;
}

const StoredTensor* WeightFiles::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& WeightFiles::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  throw FileError(fmt::format("{}: tensor '{}' is missing", path_.string(), name));
}

}  // namespace ppengine::models
