"""The part of JSON Schema that the schemas here use: type, enum, const, pattern, required, properties, additionalProperties, items,
minItems, minimum, anyOf. check(value, schema) gives the list of what is wrong, each with its path."""
import re

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}
KNOWN = {"type", "enum", "const", "pattern", "required", "properties", "additionalProperties", "items", "minItems", "minimum", "anyOf", "title"}


def check(value, schema, path="$"):
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"schema at {path}: {sorted(unknown)} is not supported")
    if "anyOf" in schema and all(check(value, one, path) for one in schema["anyOf"]):
        return [f"{path}: fits none of the forms that are allowed"]
    wrong = []
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{path}: {value!r} is not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        wrong.append(f"{path}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        wrong.append(f"{path}: {value!r} is not {schema['const']!r}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        wrong.append(f"{path}: {value!r} does not match {schema['pattern']}")
    if "minimum" in schema and value < schema["minimum"]:
        wrong.append(f"{path}: {value} is below {schema['minimum']}")
    if isinstance(value, dict):
        wrong += [f"{path}: '{name}' is missing" for name in schema.get("required", []) if name not in value]
        for name, one in value.items():
            if name in schema.get("properties", {}):
                wrong += check(one, schema["properties"][name], f"{path}.{name}")
            elif schema.get("additionalProperties", True) is False:
                wrong.append(f"{path}: there is no '{name}'")
            elif isinstance(schema.get("additionalProperties"), dict):
                wrong += check(one, schema["additionalProperties"], f"{path}.{name}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            wrong.append(f"{path}: fewer than {schema['minItems']} entries")
        for i, one in enumerate(value):
            wrong += check(one, schema.get("items", {}), f"{path}[{i}]")
    return wrong
