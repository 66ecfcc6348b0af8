// A JSON schema as a grammar.
#include <ppengine/runs/constraint/json_schema.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/constraint/integer_range.hpp>

namespace ppengine::runs::constraint {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_repeats = 10'000;
constexpr int free_levels = 16;  // of values in values where the schema says nothing
constexpr int deepest_schema = 256;
constexpr std::int64_t largest_free = 999'999'999'999'999;  // of integers without bounds: 15 digits, which every reader holds exactly

class Compiler {
 public:
  explicit Compiler(const Json& root) : root_(root) { make_basics(); }

  SchemaGrammar compile() {
    const std::int32_t rule = rule_of(root_, "#", 0);
    grammar_->measure();
    if (grammar_->distance(grammar_->first_of(rule)) >= Grammar::never) throw ConfigError("the schema: no finite value satisfies it");
    return {grammar_, rule};
  }

 private:
  Grammar& g() { return *grammar_; }

  template <class F>
  std::int32_t rule(F body) {
    const std::int32_t made = g().new_rule();
    g().define(made, body(g().end()));
    return made;
  }

  // White space as models write it: none, one space, or a new line and an indent. Without a limit a model could go on with it forever.
  void make_basics() {
    const ByteSet blank = byte_ranges({{' ', ' '}, {'\t', '\t'}}), digits = byte_ranges({{'0', '9'}});
    const std::int32_t indent = rule([&](std::int32_t next) { return g().bytes(blank, next); });
    space_ =
        rule([&](std::int32_t next) { return g().choice({next, g().text(" ", next), g().text("\n", g().repeat(indent, 0, 20, next))}); });
    const ByteSet more = byte_ranges({{0x80, 0xBF}}), hex = byte_ranges({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    character_ = rule([&](std::int32_t next) {
      const auto follow = [&](int count) {
        std::int32_t at = next;
        for (; count > 0; --count) at = g().bytes(more, at);
        return at;
      };
      const auto lead = [&](int first, int last, std::int32_t then) { return g().bytes(byte_ranges({{first, last}}), then); };
      const std::int32_t two = g().bytes(hex, g().bytes(hex, next));
      // No escaped surrogates: halves of a character are not text.
      const std::int32_t code =
          g().choice({g().bytes(byte_ranges({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}), g().bytes(hex, two)),
                      g().bytes(byte_ranges({{'d', 'd'}, {'D', 'D'}}), g().bytes(byte_ranges({{'0', '7'}}), two))});
      ByteSet simple;
      for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) simple.set(static_cast<unsigned char>(c));
      return g().choice({g().bytes(byte_ranges({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}}), next), lead(0xC2, 0xDF, follow(1)),
                         lead(0xE0, 0xE0, lead(0xA0, 0xBF, follow(1))), g().bytes(byte_ranges({{0xE1, 0xEC}, {0xEE, 0xEF}}), follow(2)),
                         lead(0xED, 0xED, lead(0x80, 0x9F, follow(1))), lead(0xF0, 0xF0, lead(0x90, 0xBF, follow(2))),
                         lead(0xF1, 0xF3, follow(3)), lead(0xF4, 0xF4, lead(0x80, 0x8F, follow(2))),
                         g().text("\\", g().choice({g().bytes(simple, next), g().text("u", code)}))});
    });
    string_ = rule([&](std::int32_t next) { return g().text("\"", g().repeat(character_, 0, -1, g().text("\"", next))); });
    integer_ = rule([&](std::int32_t next) { return integer_range(g(), -largest_free, largest_free, next); });
    digit_ = rule([&](std::int32_t next) { return g().bytes(digits, next); });
    number_ = rule([&](std::int32_t next) {
      const std::int32_t power = g().repeat(digit_, 1, 2, next);
      const std::int32_t exponent =
          g().choice({next, g().bytes(byte_ranges({{'e', 'e'}, {'E', 'E'}}),
                                      g().choice({power, g().bytes(byte_ranges({{'+', '+'}, {'-', '-'}}), power)}))});
      return g().choice({g().call(integer_, exponent), g().call(integer_, g().text(".", g().repeat(digit_, 1, 15, exponent))),
                         g().text("-0", g().choice({exponent, g().text(".", g().repeat(digit_, 1, 15, exponent))}))});
    });
    boolean_ = rule([&](std::int32_t next) { return g().choice({g().text("true", next), g().text("false", next)}); });
    null_ = rule([&](std::int32_t next) { return g().text("null", next); });
    for (int level = 0; level < free_levels; ++level) {
      const std::int32_t inner = level > 0 ? value_ : -1;
      array_ = rule([&](std::int32_t next) { return inner < 0 ? g().text("[]", next) : array(inner, 0, -1, next); });
      object_ = rule([&](std::int32_t next) { return inner < 0 ? g().text("{}", next) : map(inner, next); });
      value_ = rule([&](std::int32_t next) {
        std::vector<std::int32_t> options;
        for (const std::int32_t each : {string_, number_, boolean_, null_, array_, object_}) options.push_back(g().call(each, next));
        return g().choice(std::move(options));
      });
    }
  }

  std::int32_t comma(std::int32_t next) { return g().call(space_, g().text(",", g().call(space_, next))); }

  // Elements of the rule `item`, with brackets.
  std::int32_t array(std::int32_t item, std::int64_t least, std::int64_t most, std::int32_t next) {
    const std::int32_t close = g().call(space_, g().text("]", next));
    if (most == 0) return g().text("[", close);
    const std::int32_t another = rule([&](std::int32_t then) { return comma(g().call(item, then)); });
    const std::int32_t some = g().call(item, g().repeat(another, std::max<std::int64_t>(least - 1, 0), most < 0 ? -1 : most - 1, close));
    return g().text("[", g().choice(least > 0 ? std::vector{g().call(space_, some)} : std::vector{g().call(space_, some), close}));
  }

  // Any keys, with values of the rule `value`.
  std::int32_t map(std::int32_t value, std::int32_t next) {
    const std::int32_t pair = rule(
        [&](std::int32_t then) { return g().call(string_, g().call(space_, g().text(":", g().call(space_, g().call(value, then))))); });
    const std::int32_t another = rule([&](std::int32_t then) { return comma(g().call(pair, then)); });
    const std::int32_t close = g().call(space_, g().text("}", next));
    return g().text("{", g().choice({g().call(space_, g().call(pair, g().repeat(another, 0, -1, close))), close}));
  }

  [[noreturn]] static void refuse(const std::string& where, const std::string& what) {
    throw ConfigError(fmt::format("the schema at {}: {}", where, what));
  }

  static std::int64_t count(const Json& schema, const char* key, std::int64_t otherwise, const std::string& where) {
    const auto found = schema.find(key);
    if (found == schema.end()) return otherwise;
    if (!found->is_number_integer() || found->get<std::int64_t>() < 0 || found->get<std::int64_t>() > most_repeats)
      refuse(where, fmt::format("'{}' must be an integer from 0 to {}", key, most_repeats));
    return found->get<std::int64_t>();
  }

  static void check_keywords(const Json& schema, const std::string& where) {
    static constexpr std::array unsupported{"pattern",
                                            "multipleOf",
                                            "not",
                                            "if",
                                            "then",
                                            "else",
                                            "dependentRequired",
                                            "dependentSchemas",
                                            "uniqueItems",
                                            "contains",
                                            "prefixItems",
                                            "patternProperties",
                                            "propertyNames",
                                            "minProperties",
                                            "maxProperties",
                                            "unevaluatedProperties"};
    for (const char* key : unsupported)
      if (schema.contains(key) && schema[key] != false) refuse(where, fmt::format("'{}' is not supported", key));
  }

  // The rule of a schema, which can be referred to by its place.
  std::int32_t rule_of(const Json& schema, const std::string& where, int depth) {
    if (const auto found = rules_.find(where); found != rules_.end()) return found->second;
    if (depth > deepest_schema) refuse(where, "it is nested too deeply");
    const std::int32_t made = g().new_rule();
    rules_[where] = made;
    g().define(made, body(schema, where, depth));
    return made;
  }

  std::int32_t body(const Json& schema, const std::string& where, int depth) {
    const std::int32_t next = g().end();
    if (schema == true) return g().call(value_, next);
    if (!schema.is_object()) refuse(where, "a schema must be an object");
    check_keywords(schema, where);
    if (schema.contains("$ref")) return g().call(referred(schema["$ref"], where, depth), next);
    if (schema.contains("const")) return g().text(schema["const"].dump(), next);
    if (schema.contains("enum")) {
      if (!schema["enum"].is_array() || schema["enum"].empty()) refuse(where, "'enum' must be a list that is not empty");
      std::vector<std::int32_t> options;
      for (const Json& each : schema["enum"]) options.push_back(g().text(each.dump(), next));
      return g().choice(std::move(options));
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (schema.contains(key)) {
        const Json& list = schema[key];
        if (!list.is_array() || list.empty()) refuse(where, fmt::format("'{}' must be a list that is not empty", key));
        if (key == std::string_view("allOf") && list.size() > 1) refuse(where, "'allOf' of several schemas is not supported");
        std::vector<std::int32_t> options;
        for (std::size_t i = 0; i < list.size(); ++i)
          options.push_back(g().call(rule_of(list[i], fmt::format("{}/{}/{}", where, key, i), depth + 1), next));
        return g().choice(std::move(options));
      }
    if (!schema.contains("type")) {
      if (schema.contains("properties")) return object(schema, where, depth);
      if (schema.contains("items")) return list(schema, where, depth);
      return g().call(value_, next);
    }
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    std::vector<std::int32_t> options;
    for (const Json& type : types) options.push_back(of_type(schema, type, where, depth));
    if (options.empty()) refuse(where, "'type' is empty");
    return g().choice(std::move(options));
  }

  std::int32_t of_type(const Json& schema, const Json& type, const std::string& where, int depth) {
    const std::int32_t next = g().end();
    if (type == "object") return object(schema, where, depth);
    if (type == "array") return list(schema, where, depth);
    if (type == "string") {
      const std::int64_t least = count(schema, "minLength", 0, where), most = count(schema, "maxLength", -1, where);
      if (most >= 0 && most < least) refuse(where, "'maxLength' is below 'minLength'");
      return g().text("\"", g().repeat(character_, least, most, g().text("\"", next)));
    }
    if (type == "integer") return integer(schema, where);
    if (type == "number") return number(schema, where);
    if (type == "boolean") return g().call(boolean_, next);
    if (type == "null") return g().call(null_, next);
    refuse(where, "'type' is none of object, array, string, number, integer, boolean, null");
  }

  std::int32_t integer(const Json& schema, const std::string& where) {
    const auto bound = [&](const char* key, bool upper, std::int64_t step) -> std::optional<std::int64_t> {
      const auto found = schema.find(key);
      if (found == schema.end()) return {};
      if (!found->is_number() || !(std::abs(found->get<double>()) <= 9e15))
        refuse(where, fmt::format("'{}' must be a number within 9e15", key));
      const double value = found->get<double>(), whole = upper ? std::floor(value) : std::ceil(value);
      return static_cast<std::int64_t>(whole) + (whole == value ? step : 0);
    };
    std::int64_t low = -largest_free, high = largest_free;
    const auto least = bound("minimum", false, 0), above = bound("exclusiveMinimum", false, 1);
    const auto most = bound("maximum", true, 0), below = bound("exclusiveMaximum", true, -1);
    if (least || above) low = std::max(least.value_or(INT64_MIN), above.value_or(INT64_MIN));
    if (most || below) high = std::min(most.value_or(INT64_MAX), below.value_or(INT64_MAX));
    if (low > largest_free && !most && !below) high = low + largest_free;
    if (high < -largest_free && !least && !above) low = high - largest_free;
    if (low > high) refuse(where, "no integer lies between its bounds");
    return integer_range(g(), low, high, g().end());
  }

  // Between bounds that are whole: digits before the point decide, and the bound itself may be reached.
  std::int32_t number(const Json& schema, const std::string& where) {
    for (const char* key : {"exclusiveMinimum", "exclusiveMaximum"})
      if (schema.contains(key)) refuse(where, fmt::format("'{}' is supported for integers only", key));
    if (!schema.contains("minimum") && !schema.contains("maximum")) return g().call(number_, g().end());
    const auto bound = [&](const char* key, std::int64_t otherwise) {
      const auto found = schema.find(key);
      if (found == schema.end()) return otherwise;
      if (!found->is_number() || !(std::abs(found->get<double>()) <= largest_free) ||
          found->get<double>() != std::floor(found->get<double>()))
        refuse(where, fmt::format("'{}' of numbers must be a whole number within {}", key, largest_free));
      return static_cast<std::int64_t>(found->get<double>());
    };
    const std::int64_t low = bound("minimum", -largest_free), high = bound("maximum", largest_free);
    if (low > high) refuse(where, "no number lies between its bounds");
    const std::int32_t fraction = g().choice({g().end(), g().text(".", g().repeat(digit_, 1, 15, g().end()))});
    const auto between = [&](std::int64_t least, std::int64_t most) {  // not negative
      std::vector<std::int32_t> options{integer_range(g(), most, most, g().end())};
      if (least < most) options.push_back(integer_range(g(), least, most - 1, fraction));
      return g().choice(std::move(options));
    };
    std::vector<std::int32_t> options;
    if (high >= 0) options.push_back(between(std::max<std::int64_t>(low, 0), high));
    if (low < 0) options.push_back(g().text("-", between(std::max<std::int64_t>(-high, 0), -low)));
    return g().choice(std::move(options));
  }

  std::int32_t list(const Json& schema, const std::string& where, int depth) {
    const std::int64_t least = count(schema, "minItems", 0, where), most = count(schema, "maxItems", -1, where);
    if (most >= 0 && most < least) refuse(where, "'maxItems' is below 'minItems'");
    const std::int32_t item = schema.contains("items") ? rule_of(schema["items"], where + "/items", depth + 1) : value_;
    return array(item, least, most, g().end());
  }

  // Properties in their order, from the last to the first: what follows a property depends on whether one was written before it.
  std::int32_t object(const Json& schema, const std::string& where, int depth) {
    const Json properties = schema.value("properties", Json::object()), required = schema.value("required", Json::array());
    if (!properties.is_object()) refuse(where, "'properties' must be an object");
    if (!required.is_array()) refuse(where, "'required' must be a list");
    for (const Json& name : required)
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        refuse(where, "'required' has a name that 'properties' has not");
    const Json other = schema.value("additionalProperties", Json(true));
    if (properties.empty()) {
      if (other == false) return g().text("{", g().call(space_, g().text("}", g().end())));
      return other == true ? g().call(object_, g().end()) : map(rule_of(other, where + "/additionalProperties", depth + 1), g().end());
    }
    const std::int32_t close = g().call(space_, g().text("}", g().end()));
    std::int32_t first = close, later = close;  // what comes where none, or some, were written
    for (std::size_t i = properties.size(); i-- > 0;) {
      const auto property = std::next(properties.begin(), static_cast<std::ptrdiff_t>(i));
      const std::string& name = property.key();
      const std::int32_t value = rule_of(property.value(), fmt::format("{}/properties/{}", where, name), depth + 1);
      const std::int32_t pair = g().text(Json(name).dump(), g().call(space_, g().text(":", g().call(space_, g().call(value, later)))));
      const bool needed = std::ranges::find(required, Json(name)) != required.end();
      const std::int32_t begins = g().call(space_, pair), follows = comma(pair);
      first = needed ? begins : g().choice({begins, first});
      later = needed ? follows : g().choice({follows, later});
    }
    return g().text("{", first);
  }

  std::int32_t referred(const Json& reference, const std::string& where, int depth) {
    if (!reference.is_string() || !reference.get_ref<const std::string&>().starts_with("#")) refuse(where, "'$ref' must begin with #");
    const std::string to = reference.get<std::string>();
    if (const auto found = rules_.find(to); found != rules_.end()) return found->second;
    try {
      return rule_of(root_.at(Json::json_pointer(to.substr(1))), to, depth + 1);
    } catch (const Json::exception&) {
      refuse(where, fmt::format("'$ref' {} leads nowhere", to.substr(0, 100)));
    }
  }

  const Json& root_;
  std::shared_ptr<Grammar> grammar_ = std::make_shared<Grammar>();
  std::map<std::string, std::int32_t> rules_;  // by place in the schema
  std::int32_t space_ = 0, digit_ = 0, character_ = 0, string_ = 0, integer_ = 0, number_ = 0, boolean_ = 0, null_ = 0, array_ = 0,
               object_ = 0, value_ = 0;
};

}  // namespace

SchemaGrammar schema_grammar(const Json& schema) { return Compiler(schema).compile(); }

}  // namespace ppengine::runs::constraint
