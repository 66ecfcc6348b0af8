// checksums.json: writing it, and comparing with it.
#include <ppengine/models/files/checksums.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/crc32.hpp>
#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>

namespace ppengine::models {
namespace {

namespace fs = std::filesystem;

bool is_tensors(const fs::path& file) { return file.extension() == ".safetensors"; }

std::uint32_t crc_of(const fs::path& path) {
  const MappedFile file(path);
  return crc32(file.data(), file.size());
}

// Of what stands before the tensors: another program that writes the file anew orders or spaces it otherwise.
std::uint32_t crc_of_header(const fs::path& path) {
  const MappedFile file(path);
  std::uint64_t bytes = 0;
  if (file.size() >= 8) std::memcpy(&bytes, file.data(), 8);
  if (file.size() < 8 || bytes > file.size() - 8) throw FileError(fmt::format("{}: is cut short", path.string()));
  return crc32(file.data(), 8 + bytes);
}

nlohmann::json read_checksums(const fs::path& folder) {
  const fs::path path = folder / checksums_file;
  nlohmann::json json = read_json(path, 1 << 28);
  const JsonPlace root(json, path.string());
  root.expect_object();
  if (root.at("algorithm").string() != "crc32")
    throw FileError(fmt::format("{}: knows checksums that this version does not", path.string()));
  root.at("files").expect_object();
  root.at("tensors").expect_object();
  return json;
}

std::uint32_t number(const nlohmann::json& value) { return value.is_number_unsigned() ? value.get<std::uint32_t>() : 0; }

}  // namespace

void write_checksums(const fs::path& folder) {
  nlohmann::json json{{"algorithm", "crc32"}, {"files", nlohmann::json::object()}, {"tensors", nlohmann::json::object()}};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == checksums_file || !entry.is_regular_file()) continue;
    if (!is_tensors(name)) {
      json["files"][name] = crc_of(entry.path());
      continue;
    }
    auto& of_file = json["tensors"][name];
    of_file["header"] = crc_of_header(entry.path());
    of_file["tensors"] = nlohmann::json::object();
    const SafetensorsFile file(entry.path());
    for (const StoredTensor& tensor : file.tensors()) of_file["tensors"][tensor.name] = crc32(tensor.data, tensor.bytes);
  }
  write_file_atomically(folder / checksums_file, json.dump(1) + "\n");
}

Checksums::Checksums(const fs::path& folder_or_file) {
  std::error_code failed;
  const fs::path folder = fs::is_directory(folder_or_file, failed) ? folder_or_file : folder_or_file.parent_path();
  if (!fs::exists(folder / checksums_file, failed)) return;
  const nlohmann::json json = read_checksums(folder);
  for (const auto& [name, entry] : json["tensors"].items()) {
    if (!entry.is_object() || !entry.contains("header") || !entry.contains("tensors") || !fs::exists(folder / name, failed)) continue;
    if (number(entry["header"]) != crc_of_header(folder / name)) {
      log::debug(
          fmt::format("{}: was written anew since the checkpoint was saved: its checksums are not compared", (folder / name).string()));
      continue;
    }
    for (const auto& [tensor, crc] : entry["tensors"].items()) tensors_[name][tensor] = number(crc);
  }
}

void Checksums::verify(const StoredTensor& tensor) const {
  const auto file = tensors_.find(fs::path(tensor.file).filename().string());
  if (file == tensors_.end()) return;
  const auto saved = file->second.find(tensor.name);
  if (saved == file->second.end() || saved->second == crc32(tensor.data, tensor.bytes)) return;
  throw FileError(fmt::format(
      "{}: tensor '{}' is damaged: its bytes are not those that were saved. Use another checkpoint; to load it all the same, remove {}",
      tensor.file, tensor.name, checksums_file));
}

bool is_as_saved(const fs::path& folder, const std::string& name) {
  std::error_code failed;
  if (!fs::exists(folder / checksums_file, failed) || !fs::is_regular_file(folder / name, failed)) return false;
  const nlohmann::json json = read_checksums(folder);
  return json["files"].contains(name) && number(json["files"][name]) == crc_of(folder / name);
}

std::vector<std::string> saved_files(const fs::path& folder) {
  std::error_code failed;
  std::vector<std::string> names;
  if (!fs::exists(folder / checksums_file, failed)) return names;
  const nlohmann::json json = read_checksums(folder);
  for (const char* kind : {"files", "tensors"})
    for (const auto& [name, unused] : json[kind].items())
      if (name.find('/') == std::string::npos) names.push_back(name);
  return names;
}

Verification verify_folder(const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(folder / checksums_file, failed))
    throw FileError(fmt::format("{}: has no {}: only folders that --save has written can be verified", folder.string(), checksums_file));
  const nlohmann::json json = read_checksums(folder);
  Verification result;
  const auto damaged = [&](const std::string& file, const std::string& what) {
    result.damaged.push_back(fmt::format("{}: {}", (folder / file).string(), what));
  };
  for (const auto& [name, crc] : json["files"].items()) {
    if (!fs::exists(folder / name, failed))
      damaged(name, "is missing");
    else if (crc_of(folder / name) != number(crc))
      damaged(name, "is not as it was saved");
    else
      ++result.files;
  }
  for (const auto& [name, entry] : json["tensors"].items()) {
    try {
      if (number(entry.at("header")) != crc_of_header(folder / name)) damaged(name, "its header is not as it was saved");
      const SafetensorsFile file(folder / name);
      for (const StoredTensor& tensor : file.tensors())
        if (entry.at("tensors").contains(tensor.name) && number(entry.at("tensors").at(tensor.name)) == crc32(tensor.data, tensor.bytes))
          ++result.tensors;
        else
          damaged(name, fmt::format("tensor '{}' is not as it was saved", tensor.name));
      for (const auto& [tensor, crc] : entry.at("tensors").items())
        if (std::ranges::find(file.tensors(), tensor, &StoredTensor::name) == file.tensors().end())
          damaged(name, fmt::format("tensor '{}' is missing", tensor));
    } catch (const FileError& error) {
      result.damaged.emplace_back(error.what());
    } catch (const nlohmann::json::exception&) {
      damaged(checksums_file, "is not in order");
    }
  }
  return result;
}

std::string first_not_finite(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!is_tensors(entry.path())) continue;
    const SafetensorsFile file(entry.path());
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.type != StoredType::f32) continue;
      constexpr std::size_t piece = 4096;
      for (std::size_t first = 0; first < tensor.elements; first += piece) {
        std::uint32_t bits[piece], worst = 0;
        const std::size_t count = std::min(piece, tensor.elements - first);
        std::memcpy(bits, tensor.data + first * 4, count * 4);
        for (std::size_t i = 0; i < count; ++i) worst = std::max(worst, bits[i] & 0x7f800000u);  // all ones: a NaN or an infinity
        if (worst == 0x7f800000u) return tensor.name;
      }
    }
  }
  return "";
}

}  // namespace ppengine::models
