// JSON files that are not trusted: a SAX handler builds the value, so that depth, size and duplicate keys are seen early.
#include <ppengine/base/detail/json.hpp>

#include <fmt/core.h>

#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>

namespace ppengine {
namespace {

using Json = nlohmann::json;

class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& name, const JsonLimits& limits, Json& root) : name_(name), limits_(limits), root_(root) {}

  bool null() override { return add(nullptr), true; }
  bool boolean(bool value) override { return add(value), true; }
  bool number_integer(number_integer_t value) override { return add(value), true; }
  bool number_unsigned(number_unsigned_t value) override { return add(value), true; }
  bool number_float(number_float_t value, const string_t&) override { return add(value), true; }
  bool string(string_t& value) override { return add(std::move(value)), true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()), true; }
  bool start_array(std::size_t) override { return open(Json::array()), true; }
  bool end_object() override { return stack_.pop_back(), true; }
  bool end_array() override { return stack_.pop_back(), true; }

  bool key(string_t& value) override {
    const auto [place, fresh] = stack_.back()->get_ref<Json::object_t&>().emplace(std::move(value), nullptr);
    if (!fresh && limits_.refuse_duplicate_keys)
      throw FileError(fmt::format("{}: the key '{}' stands twice in one object", name_, place->first));
    slot_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    // The token can be anything, even binary: only its printable start is shown.
    std::string shown;
    for (char c : token.substr(token.size() > 20 ? token.size() - 20 : 0)) shown += (c >= 32 && c < 127) ? c : '?';
    throw FileError(fmt::format("{}: not valid JSON at byte {} near '{}'", name_, position, shown));
  }

 private:
  Json* add(Json value) {
    if (++values_ > limits_.max_values) throw FileError(fmt::format("{}: more than {} JSON values", name_, limits_.max_values));
    if (stack_.empty()) return root_ = std::move(value), &root_;
    if (stack_.back()->is_object()) return *slot_ = std::move(value), slot_;
    auto& array = stack_.back()->get_ref<Json::array_t&>();
    array.push_back(std::move(value));
    return &array.back();
  }
  void open(Json value) {
    if (stack_.size() >= limits_.max_depth) throw FileError(fmt::format("{}: JSON nested deeper than {} levels", name_, limits_.max_depth));
    stack_.push_back(add(std::move(value)));
  }

  const std::string& name_;
  const JsonLimits& limits_;
  Json& root_;
  std::vector<Json*> stack_;
  Json* slot_ = nullptr;  // where the value of the last key goes
  std::size_t values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  Json root;
  Builder builder(name, limits, root);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) throw FileError(fmt::format("{}: not valid JSON", name));
  return root;
}

Json read_json(const std::filesystem::path& path, std::uint64_t max_bytes, const JsonLimits& limits) {
  return parse_json(read_file(path, max_bytes), path.string(), limits);
}

void JsonPlace::refuse(const std::string& what) const {
  throw FileError(place_.empty() ? fmt::format("{}: {}", file_, what) : fmt::format("{}: {} {}", file_, place_, what));
}

bool JsonPlace::absent(const char* key) const {
  expect_object();
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null();
}

std::optional<JsonPlace> JsonPlace::find(const char* key) const {
  if (absent(key)) return std::nullopt;
  return JsonPlace(*value_->find(key), file_, place_.empty() ? key : fmt::format("{}.{}", place_, key));
}

JsonPlace JsonPlace::at(const char* key) const {
  auto found = find(key);
  if (!found) refuse(fmt::format("has no '{}'", key));
  return *found;
}

JsonPlace JsonPlace::element(std::size_t index) const {
  expect_array();
  return JsonPlace(value_->at(index), file_, fmt::format("{}[{}]", place_, index));
}

std::int64_t JsonPlace::integer(std::int64_t low, std::int64_t high) const {
  std::int64_t value = 0;
  if (value_->is_number_unsigned()) {
    const auto wide = value_->get<std::uint64_t>();
    if (wide > static_cast<std::uint64_t>(INT64_MAX)) refuse(fmt::format("is {}, out of range", wide));
    value = static_cast<std::int64_t>(wide);
  } else if (value_->is_number_integer()) {
    value = value_->get<std::int64_t>();
  } else {
    refuse("must be an integer");
  }
  if (value < low || value > high) refuse(fmt::format("is {}, must be between {} and {}", value, low, high));
  return value;
}

double JsonPlace::number(double low, double high) const {
  if (!value_->is_number()) refuse("must be a number");
  const double value = value_->get<double>();
  if (!(value >= low && value <= high)) refuse(fmt::format("is {}, must be between {} and {}", value, low, high));
  return value;
}

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) refuse("must be true or false");
  return value_->get<bool>();
}

const std::string& JsonPlace::string() const {
  if (!value_->is_string()) refuse("must be a string");
  return value_->get_ref<const std::string&>();
}

const JsonPlace& JsonPlace::expect_object() const {
  if (!value_->is_object()) refuse("must be an object");
  return *this;
}

const JsonPlace& JsonPlace::expect_array() const {
  if (!value_->is_array()) refuse("must be a list");
  return *this;
}

std::int64_t JsonPlace::integer_or(const char* key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const {
  const auto field = find(key);
  return field ? field->integer(low, high) : otherwise;
}

double JsonPlace::number_or(const char* key, double otherwise, double low, double high) const {
  const auto field = find(key);
  return field ? field->number(low, high) : otherwise;
}

bool JsonPlace::boolean_or(const char* key, bool otherwise) const {
  const auto field = find(key);
  return field ? field->boolean() : otherwise;
}

std::string JsonPlace::string_or(const char* key, const std::string& otherwise) const {
  const auto field = find(key);
  return field ? field->string() : otherwise;
}

}  // namespace ppengine
