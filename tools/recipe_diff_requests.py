"""Differential test of the recipe library: seeded random requests through deepseek-recipe 0.2.0 and `bathyc conform`.

usage: recipe_diff_requests.py PROGRAM TOKENIZER [--n N] [--seed S] [--only KIND,...] [--show N]

Kinds: chat, responses, messages (requests of each API, a part of them broken on purpose), text (broken JSON), render
(conversations given directly), resolve, ids. Needs the PyPI package deepseek-recipe==0.2.0; nothing else outside the
standard library. Exit code 1 when a difference outside the documented list (docs/recipe.md, "Differences") is found."""
import argparse
import copy
import json
import random
import subprocess
import sys

import deepseek_recipe as dr

FLASH, PRO = "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"
REQUESTS = {"chat": dr.ChatCompletionRequest, "responses": dr.ResponsesRequest, "messages": dr.MessagesRequest}

# ---- the original ----


def options_of(o):
    kw = {k: o[k] for k in ("default_thinking_mode", "thinking_max_tokens_upper_bound", "non_thinking_max_tokens_upper_bound") if k in o}
    if "reasoning_content_behavior" in o:
        kw["reasoning_content_behavior"] = getattr(dr.ReasoningContentBehavior, o["reasoning_content_behavior"])
    for k in ("responses_web_search", "messages_web_search"):
        if k in o:
            kw[k] = getattr(dr.WebSearchBehavior, o[k])
    opts = dr.ConversionOptions(**kw)
    if "special_tokens" in o:
        opts = opts.with_special_tokens(dr.SpecialTokens(**o["special_tokens"]))
    return opts


def failure(e):
    if isinstance(e, dr.ConversionError):
        return {"ok": False, "error": {"kind": "conversion", "status": e.status_code, "body": json.loads(e.body)}}
    if isinstance(e, ValueError):
        kind = "invalid_json" if str(e).startswith("invalid JSON request") else "invalid_body"
        return {"ok": False, "error": {"kind": kind, "message": str(e)}}
    return {"ok": False, "error": {"kind": "runtime", "message": str(e)}}


def encoding(version, specials=None):
    e = dr.DeepseekV41Encoding() if version == dr.ModelVersion.DeepseekV41Flash else dr.DeepseekV4Encoding()
    return e.with_special_tokens(specials) if specials is not None else e


def body_text(inp):
    return inp["body_text"] if "body_text" in inp else json.dumps(inp["body"], ensure_ascii=False)


def original_convert(inp):
    try:
        opts = options_of(inp.get("options", {}))
        request = REQUESTS[inp["api"]](body_text(inp))
        names = {k: list(v) for k, v in request.namespace_tool_map(opts).items()} if inp["api"] == "responses" else None
        c = request.convert(opts)
    except Exception as e:  # noqa: BLE001
        return failure(e)
    r = encoding(c.model_version, opts.special_tokens if "special_tokens" in inp.get("options", {}) else None).render_conversation(c.conversation)
    io, cv, po = c.inference_options, c.conversation, c.parsing_options
    stage = {"ReasoningStart": "reasoning_start", "ReasoningContinuation": "reasoning_continuation",
             "ContentContinuation": "content_continuation"}
    images = []
    for s in r.image_sources:
        images.append({"kind": s.kind, "detail": s.detail, "path": s.path, s.kind: s.url if s.kind == "url" else s.data_url})
    out = {
        "ok": True, "model_version": "v4.1-flash" if c.model_version == dr.ModelVersion.DeepseekV41Flash else "v4-pro",
        "stream": c.stream, "prompt": r.prompt, "special_ranges": [list(x) for x in r.special_ranges], "image_sources": images,
        "thinking_mode": cv.thinking_mode, "reasoning_effort": cv.reasoning_effort, "tool_choice": cv.tool_choice,
        "response_format": cv.response_format,
        "parsing": {"parse_tool_calls": po.parse_tool_calls, "starts_in_tool_calls": po.starts_in_tool_calls,
                    "parse_json_output": po.parse_json_output,
                    "initial_stage": stage[str(po.thinking_initial_stage).split(".")[-1]] if po.thinking_initial_stage else None,
                    "stop": list(po.stop_sequences)},
        "inference": {"max_tokens": io.max_tokens, "temperature": io.temperature, "top_p": io.top_p, "logprobs": io.logprobs,
                      "top_logprobs": io.top_logprobs, "seed": io.seed,
                      "constraint": io.output_constraint and {"kind": io.output_constraint.kind, "schema": io.output_constraint.schema}},
    }
    if names:
        out["namespace_tool_map"] = names
    return out


def original_render(inp):
    c = inp["conversation"]

    def tool(t):
        return dr.ToolDefinition(t["name"], t.get("description"), t.get("parameters"), t.get("strict"), t.get("defer_loading", False))

    def message(m):
        images = [dr.UrlImageSource(u) for u in m.get("images", [])] or None
        if m["role"] == "system":
            return dr.SystemMessage(m["content"], images, [tool(t) for t in m["tools"]] if "tools" in m else None)
        if m["role"] == "user":
            return dr.UserMessage(m["content"], images)
        if m["role"] == "assistant":
            calls = [dr.ToolCall(t["id"], t["name"], t["arguments"]) for t in m["tool_calls"]] if "tool_calls" in m else None
            return dr.AssistantMessage(m["content"], m.get("reasoning_content"), calls, m.get("prefix", False))
        if m["role"] == "tool":
            return dr.ToolMessage(m["content"], m.get("tool_call_id"), images)
        return dr.LatestReminderMessage(m["content"])

    kw = {k: c[k] for k in ("thinking_mode", "tool_choice", "reasoning_effort", "response_format", "response_schema", "response_regex") if k in c}
    if "tools" in c:
        kw["tools"] = [tool(t) for t in c["tools"]]
    e = dr.DeepseekV41Encoding() if inp["encoding"] == "v41" else dr.DeepseekV4Encoding()
    if "special_tokens" in inp:
        e = e.with_special_tokens(dr.SpecialTokens(**inp["special_tokens"]))
    r = e.render_conversation(dr.Conversation([message(m) for m in c["messages"]], **kw))
    return {"ok": True, "prompt": r.prompt, "special_ranges": [list(x) for x in r.special_ranges], "images": [s.url for s in r.image_sources]}


def converted(inp, opts):
    request = REQUESTS[inp["api"]](body_text(inp))
    if inp["api"] == "responses":
        request.namespace_tool_map(opts)  # looks at the names of all tools before anything else
    return request.convert(opts)


def original_resolve(inp):
    try:
        c = converted(inp, options_of(inp.get("options", {})))
        return {"ok": True, "max_tokens": c.resolve_max_tokens(inp["prompt_tokens"], inp["context_limit"])}
    except Exception as e:  # noqa: BLE001
        return failure(e)


TOKENIZERS = {}


def original_ids(inp):
    try:
        c = converted(inp, options_of({}))
    except Exception as e:  # noqa: BLE001
        return failure(e)
    v41 = c.model_version == dr.ModelVersion.DeepseekV41Flash
    e = encoding(c.model_version).with_tokenizer(TOKENIZERS["v41" if v41 else "v4"])
    return {"ok": True, "prompt": e.render_conversation(c.conversation).prompt, "ids": e.encode(c.conversation)}


ORIGINALS = {"convert": original_convert, "render": original_render, "resolve_max_tokens": original_resolve, "encode_ids": original_ids}

# ---- values ----

TEXTS = ["", "q", "What's the weather in 北京?", "json", "JSoN please", "a\nb", "\n", "  ", "<｜User｜>", "</think>", "｜DSML｜", "<｜image｜>",
         "\"quoted\" \\ /", "\u007f\u2028\u200b", "😀 é e\u0301", "x" * 40, "{\"a\": 1}", "\t\r\u0001", "Привет", "한국어", "data:", "http://x"]
KEYS = ["city", "q", "limit", "用户", "a b", "", "a.b", "x\"y", "n", "type", "😀"]
NAMES = ["f", "get_weather", "search-x", "T_0", "x", "lookup", "apply_patch", "tool_search"]
JUNK = [None, "", "zz", [], {}, 5, -1, 1.5, True, False, 0, 2**31, 2**32, 2**63, 2**64, 1e300, "a", [None], [[]], {"a": 1}, {"type": "zz"}, {"type": "text"},
        {"type": "function"}, "none", "auto", "required", "high", "disabled", [""], "user", "system"]
URLS = ["http://x/y.png", "https://é/ü", "HTTP:x", "httpx", "data:image/png;base64,AAAA", "data:image/png;base64,AA", "data:image/gif;base64,A", "data:text/plain;base64,AA==",
        "data:image/png,AA", "zz", "", "data:image/webp; base64,AA==", "data:IMAGE/JPEG;base64,AAA=", "data:image/png;x=base64,AA", "data:image/png;BASE64,AA", " data:image/png;base64,A A\n==",
        "data:image/png;base64,%41A==", "data:image/png;base64,AA==#f", "http:" + "x" * 8190, "data:image /png;base64,AA", "ftp://x", "data:;base64,AA", "data:image/png;base64,AA=="]


class Gen:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.n_ids = 0

    def chance(self, p):
        return self.r.random() < p

    def text(self):
        return self.r.choice(TEXTS) if self.chance(0.7) else self.r.choice(TEXTS) + self.r.choice(["", " ", "\n\n"]) + self.r.choice(TEXTS)

    def url(self):
        return self.r.choice(URLS[:6] if self.chance(0.8) else URLS)

    def scalar(self):
        return self.r.choice([lambda: self.r.randint(-(10**6), 10**6), lambda: self.r.choice([0.5, -2.75, 1e-7, 1e-5, 3.0, 1e16, 6.02e23, -0.0, 1e22, 123456789.125]),
                              lambda: True, lambda: False, lambda: None, self.text, lambda: 2**63, lambda: -(2**63), lambda: 2**64, lambda: self.r.uniform(-1, 1)])()

    def value(self, depth=0):
        x = self.r.random()
        if depth > 2 or x < 0.6:
            return self.scalar()
        if x < 0.8:
            return [self.value(depth + 1) for _ in range(self.r.randint(0, 3))]
        return {self.r.choice(KEYS): self.value(depth + 1) for _ in range(self.r.randint(0, 3))}

    # ---- schemas ----

    def schema(self, depth=0):
        kind = self.r.choice(["string", "integer", "number", "boolean", "null", "array", "object", "anyOf", "list", "ref", "enum", "any"]) if depth < 3 else "string"
        if kind == "array":
            return {"type": "array", "items": self.schema(depth + 1)}
        if kind == "object":
            return self.object_schema(depth + 1)
        if kind == "anyOf":
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.r.randint(1, 2))]}
        if kind == "list":
            return {"type": self.r.sample(["string", "null", "integer", "boolean", "number"], self.r.randint(1, 2))}
        if kind == "ref":
            return {"$ref": self.r.choice(["#", "#/properties", "#/$defs/n", "#/nowhere"])}
        if kind == "enum":
            return {"type": "string", "enum": [self.text() for _ in range(self.r.randint(0, 3))]}
        if kind == "any":
            return {}
        s = {"type": kind}
        if self.chance(0.3):
            s["description"] = self.text()
        if kind in ("integer", "number") and self.chance(0.4):
            s[self.r.choice(["minimum", "maximum", "exclusiveMinimum", "multipleOf", "const", "default"])] = self.r.choice([1, 2, 0.5, 10, 7])
        if kind == "string" and self.chance(0.3):
            s[self.r.choice(["pattern", "format", "title"])] = self.r.choice(["x", "uuid", "email", "[a-z]+"])
        return s

    def object_schema(self, depth=0):
        keys = self.r.sample(KEYS, self.r.randint(0 if depth else 1, 3))
        s = {"type": "object", "properties": {k: self.schema(depth + 1) for k in keys}}
        if self.chance(0.5):
            s["required"] = self.r.sample(keys, self.r.randint(0, len(keys))) if self.chance(0.5) else keys
        if self.chance(0.3):
            s["additionalProperties"] = self.r.choice([False, False, True, {}])
        if self.chance(0.2):
            s["$defs"] = {"n": self.schema(2)}
        if self.chance(0.1):
            s["description"] = self.text()
        if self.chance(0.04):  # any keyword with any value: the meta-schema
            s[self.r.choice(["minLength", "pattern", "items", "allOf", "not", "required", "type", "enum", "const", "if", "format", "$id", "$anchor", "$schema",
                             "prefixItems", "dependentRequired", "uniqueItems", "title", "default", "examples", "patternProperties", "minItems", "$comment", "oneOf"])] = self.r.choice(JUNK)
        return s

    def parameters(self):
        x = self.r.random()
        return self.object_schema() if x < 0.95 else self.schema() if x < 0.98 else self.r.choice(JUNK)

    # ---- requests ----

    def call_id(self):
        self.n_ids += 1
        return self.r.choice(["c", "call_", "z", "A"]) + str(self.n_ids % 97)

    def arguments(self):
        x = self.r.random()
        if x < 0.7:
            return json.dumps({self.r.choice(KEYS): self.value() for _ in range(self.r.randint(0, 3))}, ensure_ascii=self.chance(0.5))
        return self.r.choice(["", "{}", " {} ", "not json", "[1]", "\"s\"", "null", "{\"a\":1,\"a\":2}", "{\"a\":1}x", "{\"b\":\"\\ud800\"}", "{\"n\":1e400}", "{\"deep\":" + "[" * 130 + "]" * 130 + "}"])

    def names(self):
        return self.r.sample(NAMES, self.r.randint(1, 4))

    def effort(self):
        return self.r.choice(["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"])

    def settings(self, b, tokens):
        if self.chance(0.3):
            b["temperature"] = self.r.choice([0, 0.3, 1, 1.5, 2] * 3 + [2.5, -1])
        if self.chance(0.3):
            b["top_p"] = self.r.choice([0.05, 0.5, 0.95, 0.97, 1] * 3 + [0, 1.01])
        if self.chance(0.3):
            b[tokens] = self.r.choice([1, 256, 393216] * 4 + [393217, 0])
        if self.chance(0.2):
            b["stream"] = self.r.choice([True, False, None])

    def options(self):
        o = {}
        if self.chance(0.1):
            o["default_thinking_mode"] = False
        if self.chance(0.15):
            o["reasoning_content_behavior"] = self.r.choice(["Reject", "FillEmpty"])
        if self.chance(0.15):
            o["messages_web_search"] = o["responses_web_search"] = self.r.choice(["Drop", "Reject"])
        if self.chance(0.05):
            o["thinking_max_tokens_upper_bound"] = 100
        if self.chance(0.05):
            o["special_tokens"] = {"user": "<U>", "image": "<I>", "dsml": "|D|", "thinking_end": "[/t]"}
        return o

    def chat_content(self):
        if self.chance(0.75):
            return self.text()
        parts = []
        for _ in range(self.r.randint(0, 3)):
            x = self.r.random()
            if x < 0.6:
                parts.append({"type": "text", "text": self.text()})
            elif x < 0.85:
                p = {"url": self.url()}
                if self.chance(0.3):
                    p["detail"] = self.r.choice(["low", "high", "original", "auto"])
                parts.append({"type": "image_url", "image_url": p})
            else:
                parts.append({"type": "file", **{k: self.url() for k in self.r.sample(["file_data", "file_id", "filename"], self.r.randint(0, 2))}})
        return parts

    def chat_tool(self, name, strict):
        f = {"name": name}
        if self.chance(0.7):
            f["description"] = self.text()
        if self.chance(0.85):
            f["parameters"] = self.parameters()
        if strict or self.chance(0.05):
            f["strict"] = True
        return {"type": "function", "function": f}

    def chat(self):
        names, ms = self.names(), []
        for _ in range(self.r.randint(1, 5)):
            x = self.r.random()
            if x < 0.15:
                ms.append({"role": "system", "content": self.chat_content()})
            elif x < 0.25:
                ms.append({"role": "latest_reminder", "content": self.text()})
            elif x < 0.55:
                ms.append({"role": "user", "content": self.chat_content()})
            else:
                m = {"role": "assistant", "content": self.chat_content() if self.chance(0.85) else None}
                if self.chance(0.5):
                    m["reasoning_content"] = self.text()
                ms.append(m)
                if self.chance(0.5):
                    ids = [self.call_id() for _ in range(self.r.randint(1, 3))]
                    m["tool_calls"] = [{"id": i, "type": "function", "function": {"name": self.r.choice(names), "arguments": self.arguments()}} for i in ids]
                    self.r.shuffle(ids)
                    ms += [{"role": "tool", "tool_call_id": i, "content": self.chat_content()} for i in ids]
        if ms[-1]["role"] == "assistant" and self.chance(0.4):
            ms[-1]["prefix"] = True
        b = {"model": self.r.choice([FLASH, FLASH, PRO]), "messages": ms}
        if self.chance(0.6):
            strict = self.chance(0.2)
            b["tools"] = [self.chat_tool(n, strict) for n in names]
            if self.chance(0.4):
                b["tool_choice"] = self.r.choice(["auto", "none", "required", {"type": "function", "function": {"name": self.r.choice(NAMES)}}])
        if self.chance(0.4):
            b["thinking"] = {"type": self.r.choice(["enabled", "disabled", "disabled", "adaptive"])}
        if self.chance(0.4):
            b["reasoning_effort"] = self.effort()
        if self.chance(0.2):
            b["response_format"] = self.r.choice([{"type": "text"}, {"type": "json_object"}, {"type": "regex", "regex": self.text()},
                                                  {"type": "json_schema", "json_schema": {"schema": self.parameters(), "strict": self.chance(0.4)}}])
        if self.chance(0.2):
            b["stop"] = self.r.choice(["###", ["a", "b"], [], ["x"] * 17, "", ["", "a"]])
        if self.chance(0.1):
            b["logprobs"] = True
        if self.chance(0.1):
            b["top_logprobs"] = self.r.choice([0, 20, 21])
        for k, vs in (("n", [1, 2]), ("seed", [0, 7, 2**63 - 1, 2**63]), ("presence_penalty", [0, 2, 3]), ("frequency_penalty", [-2, -2.5]), ("stream_options", [{}, {"include_usage": True}])):
            if self.chance(0.05):
                b[k] = self.r.choice(vs)
        self.settings(b, "max_tokens")
        return b

    def responses_content(self, output=False):
        if self.chance(0.7):
            return self.text()
        parts = []
        for _ in range(self.r.randint(0, 3)):
            x = self.r.random()
            if x < 0.6:
                parts.append({"type": "input_text" if output or self.chance(0.7) else "output_text", "text": self.text()})
            elif x < 0.85:
                parts.append({"type": "input_image", **{k: self.url() for k in self.r.sample(["image_url", "image_url", "file_id"], self.r.randint(0, 2))}})
            else:
                parts.append({"type": "input_file"})
        return parts

    def responses_tool(self, name, strict):
        x = self.r.random()
        if x < 0.65:
            return dict(type="function", **self.chat_tool(name, strict)["function"])
        if x < 0.8:
            return {"type": "namespace", "name": self.r.choice(["ns", "a", "crm", "x y"]), **({"description": self.text()} if self.chance(0.6) else {}),
                    "tools": [dict(type="function", **self.chat_tool(n, strict)["function"]) for n in self.names()]}
        return self.r.choice([{"type": "custom", "name": "apply_patch"}, {"type": "custom", "name": "zz"}, {"type": "tool_search", "execution": "client"}, {"type": "tool_search"},
                              {"type": "web_search"}, {"type": "web_search_2025_08_26", "search_context_size": "low"}, {"type": "mcp"}])

    def responses(self):
        names, items = self.names(), []
        for _ in range(self.r.randint(1, 6)):
            x = self.r.random()
            if x < 0.35:
                m = {"role": self.r.choice(["user", "user", "system", "developer", "assistant"]), "content": self.responses_content()}
                if self.chance(0.4):
                    m["type"] = "message"
                items.append(m)
            elif x < 0.5:
                items.append({"type": "reasoning", "content": [{"type": "reasoning_text", "text": self.text()} for _ in range(self.r.randint(0, 2))]})
            elif x < 0.55:
                items.append(self.r.choice([{"type": "item_reference", "id": "x"}, {"type": "web_search_call"}]))
            else:
                outs = []
                for _ in range(self.r.randint(1, 3)):
                    i, y = self.call_id(), self.r.random()
                    if y < 0.7:
                        c = {"type": "function_call", "call_id": i, "name": self.r.choice(names), "arguments": self.arguments()}
                        if self.chance(0.2):
                            c["namespace"] = self.r.choice(["ns", "a", "crm"])
                        items.append(c)
                        outs.append({"type": "function_call_output", "call_id": i, "output": self.responses_content(True)})
                    elif y < 0.85:
                        items.append({"type": "custom_tool_call", "call_id": i, "name": "apply_patch", "input": self.text()})
                        outs.append({"type": "custom_tool_call_output", "call_id": i, "output": self.responses_content(True)})
                    else:
                        items.append({"type": "tool_search_call", "call_id": i, "arguments": {"q": self.value()}})
                        outs.append({"type": "tool_search_output", "call_id": i, "tools": [self.responses_tool(n, False) for n in self.names()[:2]]})
                if self.chance(0.5):
                    self.r.shuffle(outs)
                items += outs
        b = {"model": self.r.choice([FLASH, FLASH, PRO]), "input": items if self.chance(0.9) else self.text()}
        if self.chance(0.4):
            b["instructions"] = self.text()
        if self.chance(0.6):
            strict = self.chance(0.15)
            b["tools"] = [self.responses_tool(n, strict) for n in names]
            if self.chance(0.3):
                b["tool_choice"] = self.r.choice(["auto", "none", "required", {"type": "function", "name": self.r.choice(NAMES)}, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}])
        if self.chance(0.5):
            b["reasoning"] = {"effort": self.effort()}
        if self.chance(0.2):
            b["text"] = {"format": self.r.choice([{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "name": "n", "schema": self.parameters(), "strict": self.chance(0.4)}])}
        if self.chance(0.1):
            b["top_logprobs"] = self.r.choice([0, 3, 21])
        self.settings(b, "max_output_tokens")
        return b

    def messages_image(self):
        return {"type": "image", "source": self.r.choice([{"type": "url", "url": self.url()}, {"type": "file", "file_id": "x"},
                                                          {"type": "base64", "media_type": self.r.choice(["image/png", "image/jpg"]), "data": self.r.choice(["", "AAAA", "AA==", "AB==", "AA", "!"])}])}

    def messages_blocks(self, result=False):
        if self.chance(0.5):
            return self.text()
        blocks = []
        for _ in range(self.r.randint(0, 3)):
            x = self.r.random()
            if x < 0.65:
                blocks.append({"type": "text", "text": self.text()})
            elif x < 0.8:
                blocks.append(self.messages_image())
            elif x < 0.9:
                blocks.append({"type": "document", "source": self.r.choice([{}, {"media_type": self.text()}])})
            elif result:
                blocks.append({"type": "tool_reference", "tool_name": self.r.choice(NAMES)})
        return blocks

    def messages(self):
        names, ms = self.names(), []
        for _ in range(self.r.randint(1, 5)):
            x = self.r.random()
            if x < 0.15:
                c = self.messages_blocks()
                if isinstance(c, list) and self.chance(0.4):
                    c.insert(0, {"type": "tool_addition", "tool": {"type": "tool_reference", "name": self.r.choice(names if self.chance(0.8) else NAMES)}})
                ms.append({"role": "system", "content": c})
            elif x < 0.5:
                ms.append({"role": "user", "content": self.messages_blocks()})
            else:
                blocks = []
                for _ in range(self.r.randint(0, 2)):
                    blocks.append({"type": "thinking", "thinking": self.text(), "signature": "s"})
                if self.chance(0.7):
                    blocks.append({"type": "text", "text": self.text()})
                if self.chance(0.1):
                    blocks.append(self.r.choice([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, self.messages_image()]))
                ids = [self.call_id() for _ in range(self.r.randint(1, 3))] if self.chance(0.5) else []
                blocks += [{"type": "tool_use", "id": i, "name": self.r.choice(names), "input": {self.r.choice(KEYS): self.value()} if self.chance(0.9) else self.value()} for i in ids]
                if self.chance(0.1):
                    self.r.shuffle(blocks)
                ms.append({"role": "assistant", "content": blocks if blocks or self.chance(0.3) else self.text()})
                if ids:
                    self.r.shuffle(ids)
                    results = [{"type": "tool_result", "tool_use_id": i, **({"content": self.messages_blocks(True)} if self.chance(0.9) else {})} for i in ids]
                    extra = self.messages_blocks()
                    ms.append({"role": "user", "content": results + (extra if isinstance(extra, list) else [])})
        b = {"model": self.r.choice([FLASH, FLASH, PRO]), "messages": ms}
        if self.chance(0.4):
            b["system"] = self.text() if self.chance(0.5) else [{"type": "text", "text": self.r.choice(TEXTS + ["x-anthropic-billing-header: a"])} for _ in range(self.r.randint(0, 3))]
        if self.chance(0.7):
            b["tools"] = [{"name": n, **({"description": self.text()} if self.chance(0.7) else {}), "input_schema": self.parameters(), **({"defer_loading": True} if self.chance(0.25) else {})} for n in names]
            if self.chance(0.05):
                b["tools"].append(self.r.choice([{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash", "name": "x"}]))
            if self.chance(0.3):
                b["tool_choice"] = self.r.choice([{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": self.r.choice(NAMES + ["web_search"])}])
        if self.chance(0.4):
            b["thinking"] = {"type": self.r.choice(["enabled", "disabled", "disabled", "adaptive"])}
        if self.chance(0.3):
            b["output_config"] = {"effort": self.effort()}
        if self.chance(0.2):
            b["stop_sequences"] = self.r.choice([["a"], [], [""], ["x"] * 17])
        self.settings(b, "max_tokens")
        return b

    # ---- breaking ----

    def places(self, v, out, path=()):
        out.append(path)
        if isinstance(v, dict):
            for k, x in v.items():
                self.places(x, out, path + (k,))
        elif isinstance(v, list):
            for i, x in enumerate(v):
                self.places(x, out, path + (i,))

    def broken(self, body):
        """One random change somewhere in the body, or two."""
        body = copy.deepcopy(body)
        for _ in range(self.r.choice([1, 1, 2])):
            paths = []
            self.places(body, paths)
            path = self.r.choice(paths)
            if not path:
                continue
            at = body
            for k in path[:-1]:
                at = at[k]
            x = self.r.random()
            if x < 0.4:
                at[path[-1]] = copy.deepcopy(self.r.choice(JUNK))
            elif x < 0.6:
                del at[path[-1]]
            elif isinstance(at, list):
                if x < 0.8:
                    at.insert(path[-1], copy.deepcopy(self.r.choice(at)))
                else:
                    self.r.shuffle(at)
            else:
                at[self.r.choice(["zz", "type", "content", "name", "strict", "description"])] = copy.deepcopy(self.r.choice(JUNK))
        return body

    def broken_text(self, text):
        i = self.r.randrange(len(text))
        x = self.r.random()
        if x < 0.3:
            return text[:i]
        if x < 0.6:
            return text[:i] + self.r.choice("{}[],:\"\\ 0-.eEtn\u0001a") + text[i + 1:]
        return text[:i] + text[i + 1:] if x < 0.8 else text[:i] + text[i] + text[i:]

    # ---- conversations given directly ----

    def conversation(self):
        ms, names = [], self.names()
        ids = ["t%d" % i for i in range(4)]
        for _ in range(self.r.randint(0, 8)):
            role = self.r.choice(["system", "user", "user", "assistant", "assistant", "tool", "tool", "latest_reminder"])
            m = {"role": role, "content": self.text()}
            if role == "system" and self.chance(0.3):
                m["tools"] = [{"name": self.r.choice(names), "description": self.text(), "parameters": self.object_schema()}]
            if role in ("user", "tool", "system") and self.chance(0.15):
                m["content"] += "<｜image｜>" * self.r.randint(0, 3)
                m["images"] = ["https://i/%d.png" % k for k in range(self.r.randint(1, 2))]
            if role == "tool" and self.chance(0.85):
                m["tool_call_id"] = self.r.choice(ids + ["a", "zzz"])
            if role == "assistant":
                if self.chance(0.6):
                    m["reasoning_content"] = self.text()
                if self.chance(0.5):
                    m["tool_calls"] = [{"id": self.r.choice(ids + ["zz"]), "name": self.r.choice(names), "arguments": self.arguments()} for _ in range(self.r.randint(1, 3))]
                if self.chance(0.15):
                    m["prefix"] = True
            ms.append(m)
        c = {"messages": ms, "thinking_mode": self.chance(0.6)}
        if self.chance(0.5):
            c["tools"] = [{"name": n, "description": self.text() if self.chance(0.7) else None, "parameters": self.value() if self.chance(0.2) else self.object_schema(), "defer_loading": self.chance(0.3)} for n in names]
            c["tool_choice"] = self.r.choice(["auto", "auto", "none", "required"])
        if self.chance(0.5):
            c["reasoning_effort"] = self.r.choice(["low", "high", "xhigh", "max"])
        x = self.r.random()
        if x < 0.15:
            c["response_format"] = "json_object"
        elif x < 0.3:
            c["response_schema"] = self.object_schema()
        elif x < 0.36:
            c["response_regex"] = "[a-z]+"
        return c


def small_numbers(v):
    """The original's Python classes take no integers from 2^64 on."""
    if isinstance(v, dict):
        return {k: small_numbers(x) for k, x in v.items()}
    if isinstance(v, list):
        return [small_numbers(x) for x in v]
    return 2**64 - 1 if isinstance(v, int) and v >= 2**64 else v


def rows(kinds, n, seed):
    """n rows of each kind."""
    for kind in kinds:
        g = Gen("%s-%s" % (seed, kind))
        for _ in range(n):
            if kind in REQUESTS:
                body = getattr(g, kind)()
                inp = {"api": kind, "body": g.broken(body) if g.chance(0.45) else body}
                o = g.options()
                if o:
                    inp["options"] = o
                yield "convert", inp
            elif kind == "text":
                api = g.r.choice(list(REQUESTS))
                text = json.dumps(getattr(g, api)(), ensure_ascii=False)
                yield "convert", {"api": api, "body_text": g.broken_text(text)}
            elif kind == "render":
                inp = {"encoding": g.r.choice(["v41", "v41", "v4"]), "conversation": small_numbers(g.conversation())}
                if g.chance(0.1):
                    inp["special_tokens"] = {"user": "<U>", "image": "<I>", "dsml": "|D|", "eos": "</s>", "thinking_start": "[t]"}
                yield "render", inp
            elif kind == "resolve":
                api = g.r.choice(list(REQUESTS))
                limit = g.r.choice([0, 1, 1000, 65536, 131072, 1048576])
                yield "resolve_max_tokens", {"api": api, "body": getattr(g, api)(), "prompt_tokens": max(0, limit - g.r.choice([-1, 0, 1, 300, 8192, 70000])), "context_limit": limit}
            elif kind == "ids":
                api = g.r.choice(list(REQUESTS))
                yield "encode_ids", {"api": api, "body": getattr(g, api)()}


# ---- comparison ----


def differences(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        for k in want:
            if k not in got:
                yield f"{path}.{k} is missing"
            else:
                yield from differences(want[k], got[k], f"{path}.{k}")
        for k in got:
            if k not in want:
                yield f"{path}.{k} is too much"
    elif path.endswith((".temperature", ".top_p")) and isinstance(got, (int, float)) and isinstance(want, (int, float)):
        if abs(want - got) > 1e-6:
            yield f"{path}: want {want}, got {got}"
    elif isinstance(want, str) and isinstance(got, str) and want != got:
        i = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        yield f"{path} at {i}: want {want[max(0, i - 40):i + 60]!r}, got {got[max(0, i - 40):i + 60]!r}"
    elif want != got or type(want) is not type(got):
        yield f"{path}: want {str(want)[:200]}, got {str(got)[:200]}"


def compare(want, got):
    """Differences as texts; errors are compared as the vectors' ORIGIN.md says."""
    if want["ok"] or got.get("ok") is not False:
        return list(differences(want, got))
    we, ge = want["error"], got["error"]
    if we["kind"] != ge["kind"]:
        return [f"another kind of error: want {we}, got {ge}"]
    if we["kind"] != "conversion":
        return []
    wm, gm = we["body"]["error"]["message"], ge["body"]["error"]["message"]
    any_of = "No tool output found for tool call "  # of several, the original names any
    if wm.startswith(any_of) and gm.startswith(any_of):
        return []
    for front in ("Invalid schema for function", "Invalid json schema"):
        if wm.startswith(front) and not ("got 'type: " in wm and wm.endswith("'.")):
            return [] if gm.startswith(front) else [f"want {wm}, got {gm}"]
    return list(differences(we, ge))


def documented(want, got):
    """Differences that docs/recipe.md lists."""
    ours, theirs = got.get("error", {}), want.get("error", {})
    if ours.get("kind") == "invalid_body" and theirs.get("kind") != "invalid_body":
        if "got array" in ours["message"]:
            return "a list in place of an object"
        if ours["message"].endswith(("got object", "got integer")):
            return "a word given as a map or a number"
    return None


class Ours:
    """A running conform."""

    def __init__(self, program, tokenizer):
        self.p = subprocess.Popen([program, "conform", "--tokenizer", tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, inp):
        self.p.stdin.write((json.dumps({"kind": kind, "input": inp}, ensure_ascii=False) + "\n").encode())
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())


def differs(ours, kind, inp):
    try:
        want = ORIGINALS[kind](inp)
        answer = ours.ask(kind, inp)
    except Exception:  # noqa: BLE001
        return []
    result = answer.get("result")
    return [] if result is None or documented(want, result) else compare(want, result)


def shrink(ours, kind, inp):
    """Takes parts away as long as a difference is left."""
    def paths(v, path=()):
        items = v.items() if isinstance(v, dict) else enumerate(v) if isinstance(v, list) else ()
        for k, x in items:
            yield path + (k,)
            yield from paths(x, path + (k,))

    again = True
    while again:
        again = False
        for path in sorted(paths(inp), key=lambda p: (len(p), str(p)), reverse=False):
            smaller = copy.deepcopy(inp)
            at = smaller
            try:
                for k in path[:-1]:
                    at = at[k]
                if isinstance(at[path[-1]], str) and len(at[path[-1]]) > 1 and path[-1] not in ("model", "api", "encoding"):
                    at[path[-1]] = at[path[-1]][:1]
                    if differs(ours, kind, smaller):
                        inp, again = smaller, True
                        break
                del at[path[-1]]
            except (KeyError, IndexError):
                continue
            if differs(ours, kind, smaller):
                inp, again = smaller, True
                break
    return inp


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program")
    ap.add_argument("tokenizer")
    ap.add_argument("--n", type=int, default=3000, help="rows of each kind")
    ap.add_argument("--seed", default="1")
    ap.add_argument("--only", default="chat,responses,messages,text,render,resolve,ids")
    ap.add_argument("--show", type=int, default=10)
    ap.add_argument("--shrink", action="store_true", help="make the rows that are shown as small as they go")
    a = ap.parse_args()
    raw = json.load(open(a.tokenizer, encoding="utf-8"))
    TOKENIZERS["v4"] = dr.Tokenizer.from_str(json.dumps(raw))
    if not any(t["content"] == "<｜System｜>" for t in raw["added_tokens"]):
        for t in raw["added_tokens"]:
            if t["id"] == 128799:
                t["content"] = "<｜System｜>"
    TOKENIZERS["v41"] = dr.Tokenizer.from_str(json.dumps(raw))
    cases = list(rows(a.only.split(","), a.n, a.seed))
    lines = "".join(json.dumps({"kind": k, "input": i}, ensure_ascii=False) + "\n" for k, i in cases)
    run = subprocess.run([a.program, "conform", "--tokenizer", a.tokenizer], input=lines.encode(), capture_output=True, check=False)
    if run.returncode:
        sys.exit("conform failed: " + run.stderr.decode()[-400:])
    answers = [json.loads(x) for x in run.stdout.decode().split("\n") if x]
    assert len(answers) == len(cases), (len(answers), len(cases))
    counts, known, bad, ours = {}, {}, 0, None
    for (kind, inp), answer in zip(cases, answers):
        want = ORIGINALS[kind](inp)
        api = inp.get("api", inp.get("encoding"))
        c = counts.setdefault(f"{kind} {api}", [0, 0])
        c[0] += 1
        c[1] += want["ok"]
        found = compare(want, answer["result"]) if "result" in answer else [answer.get("error")]
        if not found:
            continue
        why = documented(want, answer.get("result", {}))
        if why:
            known[why] = known.get(why, 0) + 1
            continue
        bad += 1
        if bad <= a.show:
            if a.shrink and "body_text" not in inp:
                ours = ours or Ours(a.program, a.tokenizer)
                inp = shrink(ours, kind, inp)
                found = differs(ours, kind, inp)
            print(json.dumps({"kind": kind, "input": inp}, ensure_ascii=False)[:3000])
            print("   ", "\n    ".join(map(str, found[:4])))
    for name, (n, ok) in sorted(counts.items()):
        print(f"{name}: {n} rows, {ok} of them accepted by the original")
    print(f"{len(cases)} rows, {bad} differences, {sum(known.values())} documented ones {known or ''}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
