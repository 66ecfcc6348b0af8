// JSON files that are not trusted: parsing with limits, and fields read with an error that names the file and the place.
// so no public header includes this one.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine {

struct JsonLimits {
  std::size_t max_depth = 32;
  std::size_t max_values = 20'000'000;
  bool refuse_duplicate_keys = true;  // otherwise the last one counts
};

// Parses text; the name stands at the start of every error (normally the file's path).
nlohmann::json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits = {});
nlohmann::json read_json(const std::filesystem::path& path, std::uint64_t max_bytes, const JsonLimits& limits = {});

// A value somewhere in a JSON file, with its place for messages: `config.json: rope_scaling.factor must be ...`.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string file, std::string place = "")
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json& json() const { return *value_; }
  const std::string& file() const { return file_; }
  const std::string& place() const { return place_; }

  // A field of an object. absent() is true for a field that is missing or null.
  bool absent(const char* key) const;
  JsonPlace at(const char* key) const;                   // FileError when missing
  std::optional<JsonPlace> find(const char* key) const;  // empty when missing or null
  JsonPlace element(std::size_t index) const;
  std::size_t size() const { return value_->size(); }

  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  double number(double low, double high) const;
  bool boolean() const;
  const std::string& string() const;
  const JsonPlace& expect_object() const;
  const JsonPlace& expect_array() const;

  // Fields with a value for when they are missing or null.
  std::int64_t integer_or(const char* key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const;
  double number_or(const char* key, double otherwise, double low, double high) const;
  bool boolean_or(const char* key, bool otherwise) const;
  std::string string_or(const char* key, const std::string& otherwise) const;

  // Throws FileError: "<file>: <place> <what>".
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string place_;
};

}  // namespace ppengine
