// JSON, and what a JSON schema allows of it, as a grammar.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>

#include <ppengine/runs/constraint/grammar.hpp>

namespace ppengine::runs::constraint {

struct SchemaGrammar {
  std::shared_ptr<const Grammar> grammar;
  std::int32_t root = 0;
};

// Enforced: type, properties, required, additionalProperties, items, minItems, maxItems, minLength, maxLength, enum, const, anyOf, oneOf
// (as anyOf), allOf of one, $ref within the schema; minimum and maximum, of numbers where they are whole. Notes (title, description,
// default, format and the like) are passed over. ConfigError names a keyword that would have to be enforced and cannot be. Properties come
// in the schema's order; others than those that are named are not generated.
SchemaGrammar schema_grammar(const nlohmann::ordered_json& schema);

}  // namespace ppengine::runs::constraint
