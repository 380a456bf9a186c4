"""Checks JSON from standard input against a schema file; only the keywords used there, unknown ones are an error.

usage: check_schema.py SCHEMA < document
"""
import json
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"description", "type", "required", "additionalProperties", "properties", "items", "minItems", "enum", "const", "minimum"}


def has_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def check(value, schema, path):
    assert set(schema) <= KNOWN, f"{path}: unknown keyword {set(schema) - KNOWN}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(has_type(value, n) for n in names):
            yield f"{path}: {value!r} is not {' or '.join(names)}"
            return
    if "minimum" in schema and value is not None and value < schema["minimum"]:
        yield f"{path}: {value} is below {schema['minimum']}"
    if isinstance(value, dict):
        for key in schema.get("required", []):
            if key not in value:
                yield f"{path}.{key}: missing"
        for key, item in value.items():
            if key in schema.get("properties", {}):
                yield from check(item, schema["properties"][key], f"{path}.{key}")
            elif schema.get("additionalProperties") is False:
                yield f"{path}.{key}: not in the schema"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{path}: {len(value)} items, at least {schema['minItems']}"
        for i, item in enumerate(value):
            yield from check(item, schema.get("items", {}), f"{path}[{i}]")


problems = list(check(json.load(sys.stdin), json.load(open(sys.argv[1])), "$"))
for line in problems:
    print(line, file=sys.stderr)
sys.exit(1 if problems else 0)
