"""Answers against the document at /openapi.json. Standard library only: the keywords of JSON Schema that the document uses; an unknown
one is an error. Stricter than the document in one point: an object of an answer has no member that its schema does not name."""
import json
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$ref", "type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", "allOf", "oneOf", "minimum", "maximum",
         "exclusiveMinimum", "minLength", "minItems", "maxItems", "maxProperties", "propertyNames", "pattern", "format", "default", "description"}


def has_type(value, name):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def same(a, b):
    return type(a) is type(b) and a == b


class Contract:
    def __init__(self, path):
        with open(path) as f:
            self.doc = json.load(f)
        self.seen = set()  # (method, path, status, media type)
        self.paths = [(re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(p)) + r"\Z"), p, ops) for p, ops in self.doc["paths"].items()]

    def follow(self, v):
        while "$ref" in v:
            at = self.doc
            for name in v["$ref"][2:].split("/"):
                at = at[name]
            v = at
        return v

    def problems(self, value, schema, at="$"):
        schema = self.follow(schema)
        if set(schema) - KNOWN:
            raise AssertionError(f"unknown keywords {set(schema) - KNOWN}")
        if "const" in schema and not same(value, schema["const"]):
            yield f"{at}: {value!r} is not {schema['const']!r}"
        if "enum" in schema and not any(same(value, x) for x in schema["enum"]):
            yield f"{at}: {value!r} is not one of {schema['enum']}"
        names = schema.get("type", [])
        if names and not any(has_type(value, n) for n in ([names] if isinstance(names, str) else names)):
            yield f"{at}: {value!r} is no {names}"
            return
        for key in ("anyOf", "oneOf"):
            if key in schema and all(list(self.problems(value, s, at)) for s in schema[key]):
                yield f"{at}: {value!r} fits nothing of {key}"
        for s in schema.get("allOf", []):
            yield from self.problems(value, s, at)
        if has_type(value, "number"):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                yield f"{at}: {value} is out of range"
        if isinstance(value, str) and len(value) < schema.get("minLength", 0):
            yield f"{at}: too short"
        if isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                yield f"{at}: {len(value)} items"
            for i, x in enumerate(value):
                yield from self.problems(x, schema.get("items", {}), f"{at}[{i}]")
        if isinstance(value, dict):
            yield from self.object_problems(value, schema, at)

    def object_problems(self, value, schema, at):
        for key in schema.get("required", []):
            if key not in value:
                yield f"{at}.{key}: missing"
        others = schema.get("additionalProperties", not schema.get("properties"))
        for key, x in value.items():
            if key in schema.get("properties", {}):
                yield from self.problems(x, schema["properties"][key], f"{at}.{key}")
            elif isinstance(others, dict):
                yield from self.problems(x, others, f"{at}.{key}")
            elif not others:
                yield f"{at}.{key}: not in the schema"

    def check(self, method, path, status, headers, body):
        """Raises AssertionError when an answer is not as the document says. Paths that are not in it are passed over."""
        method, path = "get" if method == "HEAD" else method.lower(), path.split("?")[0]
        found = [(p, ops) for pattern, p, ops in self.paths if pattern.match(path)]
        if not found or method not in found[0][1]:
            return
        p, ops = found[0]
        answers = ops[method]["responses"]
        answer = answers.get(str(status)) or answers.get(f"{status // 100}XX")
        if not answer:
            raise AssertionError(f"{method} {p}: status {status} is not described")
        content = self.follow(answer).get("content", {})
        kind = headers.get("content-type", "").split(";")[0]
        if kind not in content:
            raise AssertionError(f"{method} {p}: {status}: type {kind!r} is not described")
        self.seen.add((method, p, status, kind))
        where = f"{method} {p}: {status}: "
        if kind == "text/event-stream":
            for block in body.decode().split("\n\n"):
                data = [x[6:] for x in block.split("\n") if x.startswith("data: ")]
                if data and data[0] != "[DONE]":
                    self.expect(where, json.loads(data[0]), content[kind]["x-event-schema"])
        elif kind == "application/json" and body:
            self.expect(where, json.loads(body), content[kind]["schema"])

    def expect(self, where, value, schema):
        wrong = list(self.problems(value, schema))
        failed = isinstance(value, dict) and "error" in value and not list(self.problems(value, {"$ref": "#/components/schemas/Error"}))
        if wrong and not (failed and where.endswith("200: ")):  # a stream that fails ends with an error
            raise AssertionError(where + "; ".join(wrong[:5]))
