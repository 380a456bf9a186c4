"""Compares answers with the original: seeded random model output through `deepseek-recipe` 0.2.0 and through
`bathyc conform`, row by row (kinds parse and stream).

usage: recipe_diff_answers.py --program bathyc --tokenizer tokenizer.json [--rows 20000] [--seed 1] [--show 10]

Needs deepseek-recipe==0.2.0. Prints the number of rows of each kind and of differing ones; exit code 1 when rows differ
that are not in DOCUMENTED.
"""
import argparse, json, random, re, subprocess, sys
import deepseek_recipe as d

# Differences that are meant: (rule of the row, reason). None.
DOCUMENTED = []

FLASH, PRO = "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"
T = "｜DSML｜"
ID = re.compile(r"call_(\d\d+)_(ET_)?[A-Za-z0-9]{24}(?![A-Za-z0-9])")
APIS = {"chat": (d.ChatCompletionRequest, d.ChatCompletionResponse), "responses": (d.ResponsesRequest, d.ResponsesResponse),
        "messages": (d.MessagesRequest, d.MessagesResponse)}
STAGES = {"reasoning_start": d.ThinkingInitialStage.ReasoningStart,
          "reasoning_continuation": d.ThinkingInitialStage.ReasoningContinuation,
          "content_continuation": d.ThinkingInitialStage.ContentContinuation}
FINISH = {"stop": d.InferenceFinishReason.Stop, "length": d.InferenceFinishReason.Length,
          "content_filter": d.InferenceFinishReason.ContentFilter}


# ---- the original ----

def scrub(j):
    if isinstance(j, dict):
        return {k: 0 if k in ("created", "created_at", "completed_at") and isinstance(v, int) else scrub(v) for k, v in j.items()}
    if isinstance(j, list):
        return [scrub(x) for x in j]
    return ID.sub(lambda m: f"call_{m[1]}_{m[2] or ''}{{ID}}", j) if isinstance(j, str) else j


def parsing_options(p):
    st = p.get("initial_stage")
    sp = p.get("special_tokens")
    return d.ParsingOptions(parse_tool_calls=p.get("parse_tool_calls", True),
                            starts_in_tool_calls=p.get("starts_in_tool_calls", False),
                            parse_json_output=p.get("parse_json_output", False),
                            thinking_initial_stage=STAGES[st] if st else None, stop_sequences=p.get("stop", []),
                            special_tokens=d.SpecialTokens(**sp) if sp else None)


def open_stream(inp, tok):
    K, R = APIS[inp["api"]]
    rq = K(json.dumps(inp["body"], ensure_ascii=False))
    opts = d.ConversionOptions()
    if inp["api"] == "responses":
        echo, spaces = rq.echo(), rq.namespace_tool_map(opts)
    model, c = rq.model, rq.convert(opts)
    g = K.chunk_generator(c, inp.get("id", "id-1"), model)
    if inp["api"] == "responses":
        g = g.with_namespace_tool_map(spaces).with_echo(echo)
    if "signature" in inp:
        g = g.with_signature(inp["signature"])
    po = parsing_options(inp["parsing"]) if "parsing" in inp else c.parsing_options
    return d.StreamProcessor(g, po, tok if "tokenizer" in inp else None), R, model


def chunk(op):
    if op["op"] == "ready":
        return d.InferenceChunk.ready(prompt_usage=d.PromptUsage(prompt_tokens=op["prompt_tokens"], prompt_cache_hit_tokens=op["cache_hit"]),
                                      system_fingerprint=op.get("fingerprint"))
    if op["op"] == "text":
        return d.InferenceChunk.text(op["text"], op["count"])
    if op["op"] == "tokens":
        lp = op.get("logprobs")
        return d.InferenceChunk.tokens(op["ids"], None if lp is None else [(a, [tuple(t) for t in b]) for a, b in lp])
    return d.InferenceChunk.finish(FINISH[op["reason"]])


def run_stream(inp, tok):
    sp, R, model = open_stream(inp, tok)
    ready = next((o for o in inp["ops"] if o["op"] == "ready"), {"prompt_tokens": 0, "cache_hit": 0})
    acc, steps = R(inp.get("id", "id-1"), model, 0, ready["prompt_tokens"], ready["cache_hit"]), []
    for op in inp["ops"]:
        try:
            if op["op"] == "close":
                sp.close()
                xs = []
            else:
                xs = sp.finish() if op["op"] == "end" else sp.push(chunk(op))
        except RuntimeError as e:
            steps.append({"error": str(e)})
            continue
        steps.append({"events": [{"sse": R.sse_event_name(x), "data": scrub(json.loads(x.to_json()))} for x in xs]})
        for x in xs:
            acc.accumulate(x)
    return {"ok": True, "steps": steps, "finished": sp.finished, "final": scrub(json.loads(acc.to_json()))}


def run_parse(inp, tok):
    thinking = bool(inp["parsing"].get("initial_stage"))
    body = {"model": FLASH, "messages": [{"role": "user", "content": "q"}], "stream": True,
            "thinking": {"type": "enabled" if thinking else "disabled"}}
    sp, R, model = open_stream({"api": "chat", "body": body, **{k: inp[k] for k in ("parsing", "tokenizer") if k in inp}}, tok)
    final = {"reasoning": "" if thinking else None, "content": "", "tool_calls": [], "finish_reason": None}

    def deltas(xs):
        out = []
        for x in xs:
            ch = json.loads(x.to_json())["choices"][0]
            dl = ch["delta"]
            if ch["finish_reason"]:
                out.append({"finish": ch["finish_reason"]})
                final["finish_reason"] = ch["finish_reason"]
                continue
            if "role" in dl:
                continue
            if dl.get("reasoning_content") is not None:
                out.append({"r": dl["reasoning_content"]})
                final["reasoning"] += dl["reasoning_content"]
            if dl.get("content") is not None:
                out.append({"c": dl["content"]})
                final["content"] += dl["content"]
            for t in dl.get("tool_calls", []):
                f = t["function"]
                if "id" in t:
                    out.append({"call": t["index"], "name": f["name"], "et": "_ET_" in t["id"]})
                    final["tool_calls"].append({"name": f["name"], "arguments": ""})
                else:
                    out.append({"args": f["arguments"], "call": t["index"]})
                    final["tool_calls"][t["index"]]["arguments"] += f["arguments"]
        return out

    sp.push(d.InferenceChunk.ready())
    res, early = [], None
    for i, ch in enumerate(inp["chunks"]):
        if sp.finished:
            early = i
            break
        res.append(deltas(sp.push(d.InferenceChunk.tokens(ch) if isinstance(ch, list) else d.InferenceChunk.text(ch, 1))))
    if not sp.finished:
        res.append(deltas(sp.push(d.InferenceChunk.finish(FINISH[inp["finish"]])) if inp["finish"] else sp.finish()))
    return {"deltas": res, "finished_before_chunk": early, "final": final}


# ---- inputs ----

WORDS = ["a", "b", "Hm, ", "the answer is 42", " ", "\n", "\n\n", "\t", "é", "漢字", "🧑🏽‍🚀", "€ 12", "\\", "\"", "\u0001", "\r\n", "if 3 <", "<b>", "...", "STOP", "STO", "<<EN",
         "</", "<", "</thi", "｜", "<｜", "<｜DSM", "<think>", "</think>", "<｜User｜>", "<｜end▁of▁sentence｜>", "\ufffd", "call_00_abcdefghijklmnopqrstuvwx", "\u2028", "\x85"]
STOPS = ["STOP", "<<END>>", "\n\n", "\n", "aab", "漢", "</think>", "42", "ab", "<", "``", "\ufffd", "b\n"]
KEYS = ["city", "n", "input", "a b", "k\"q", "é", "", "input", "\\u0041"]
VALUES_S = ["Oslo", "", "line\nbreak \"quoted\" \\ back", "漢字 é", "*** Begin Patch\n+x\n*** End Patch", "1", "<b>", "tab\there", "\u0001"]
VALUES_R = ["1", "-0.5", "[1, null]", "{\"k\": true}", "\"raw \\n \\u00e9\"", "\"cut", "nul", "1e400", "{\"a\":1,\"a\":2}", "", " 7", "\"\\ud83d\\ude00\"", "\"\\ud83d\""]


def markup_call(g, names):
    s = g.choice(["", "\n"]) + f"<{T} invoke name=\"{g.choice(names)}\">\n"
    for _ in range(g.choice([0, 1, 1, 2, 3])):
        k, raw = g.choice(KEYS), g.random() < .4
        v = g.choice(VALUES_R if raw else VALUES_S)
        s += f"<{T} parameter name=\"{k}\" string=\"{'false' if raw else 'true'}\">{v}</{T} parameter>\n"
    return s + f"</{T} invoke>\n"


def answer(g, names, jsonish=False):
    s = ""
    if g.random() < .6:
        s += "".join(g.choice(WORDS) for _ in range(g.randrange(6))) + g.choice(["", "\n", "\n\n"]) + "</think>" + g.choice(["", "\n\n", "\n"])
    s += "".join(g.choice(WORDS) for _ in range(g.randrange(9)))
    if jsonish:
        s += g.choice(["```json\n", "```\n", "", "`"]) + g.choice(["{\"a\": 1}", "[1,\n2]", "{"]) + g.choice(["\n```", "", "\n``"])
    if g.random() < .5:
        s += g.choice(["", "\n\n", "\n"]) + g.choice([f"<{T} calls>\n", f"<{T}tool_calls>\n", f"<{T}"])
        s += "".join(markup_call(g, names) for _ in range(g.randrange(4)))
        s += g.choice([f"</{T} calls>", f"</{T}tool_calls>", "", f"</{T}"]) + g.choice(["", "", "tail"])
    if g.random() < .25 and s:
        s = s[:g.randrange(len(s))]
    if g.random() < .15:
        i = g.randrange(len(s) + 1)
        s = s[:i] + g.choice(WORDS + [T, f"<{T}", f"</{T}", "invoke name=\"", "parameter name="]) + s[i:]
    return s


def cut(g, s):
    out, most = [], g.choice([1, 2, 4, 9, 30, 10 ** 6])
    while s:
        n = g.randint(1, most)
        out.append(s[:n])
        s = s[n:]
        if g.random() < .03:
            out.append("")
    return out


def token_chunks(g, s, tok, n_ids):
    """The text as ids (markup as tokens of its own, or typed), cut into chunks, with some odd ids."""
    ids = tok.encode(s) if g.random() < .8 else [i for c in s for i in tok.encode(c)]
    while g.random() < .3:
        ids.insert(g.randrange(len(ids) + 1), g.choice([g.randrange(n_ids), g.randrange(256) + 3, n_ids + 7, 0, 1]))
    out, most = [], g.choice([1, 1, 2, 5, 40])
    while ids:
        n = g.randint(1, most)
        out.append(ids[:n])
        ids = ids[n:]
        if g.random() < .03:
            out.append([])
    return out


SPELLINGS = [{"dsml": "#D#"}, {"thinking_end": "[/t]"}, {"dsml": "\n#", "thinking_end": "<｜User｜>"}, {"thinking_end": "aa"}, {"dsml": "<｜ref｜>"}]


def respell(s, tokens):
    return s.replace(T, tokens.get("dsml", T)).replace("</think>", tokens.get("thinking_end", "</think>"))


def parsing(g):
    p = {}
    if g.random() < .1:
        p["special_tokens"] = g.choice(SPELLINGS)
    if g.random() < .6:
        p["initial_stage"] = g.choice(list(STAGES))
    if g.random() < .3:
        p["parse_tool_calls"] = g.random() < .5
    if g.random() < .08:
        p["starts_in_tool_calls"] = True
    if g.random() < .15:
        p["parse_json_output"] = True
    if g.random() < .35:
        p["stop"] = [g.choice(STOPS) for _ in range(g.randint(1, 3))]
    return p


def parse_row(g, tok, n_ids):
    p = parsing(g)
    s = respell(answer(g, ["f", "get_x", ""], p.get("parse_json_output")), p.get("special_tokens", {}))
    inp = {"parsing": p, "chunks": cut(g, s), "finish": g.choice(["stop", "stop", "length", "content_filter", None])}
    if g.random() < .4:
        inp["tokenizer"] = "v4"
        inp["chunks"] = token_chunks(g, s, tok, n_ids)
        if g.random() < .3:
            inp["chunks"] = [x if g.random() < .7 else "".join(cut(g, answer(g, ["f"]))[:2]) for x in inp["chunks"]]
    return {"kind": "parse", "input": inp}


def body_of(g, api):
    thinking, tools = g.random() < .6, g.random() < .6
    b = {"model": g.choice([FLASH, FLASH, PRO])}
    if g.random() < .6:
        b["stream"] = g.random() < .7
    if api == "responses":
        b["input"] = "q"
        if not thinking:
            b["reasoning"] = {"effort": "none"}
        if tools:
            b["tools"] = g.sample([{"type": "function", "name": "f"}, {"type": "function", "name": "get", "description": "d", "parameters": {"type": "object"}},
                                   {"type": "custom", "name": "apply_patch"}, {"type": "tool_search", "execution": "client"},
                                   {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}]}], g.randint(1, 5))
        for k, v in (("instructions", "Be brief."), ("max_output_tokens", 77), ("temperature", .3), ("top_p", .9), ("user", "u"), ("top_logprobs", 2)):
            if g.random() < .2:
                b[k] = v
        return b
    b["messages"] = [{"role": "user", "content": "q, as json"}]
    b["thinking"] = {"type": "enabled" if thinking else "disabled"}
    if api == "messages":
        b["max_tokens"] = 100
        if tools:
            b["tools"] = [{"name": n, "input_schema": {"type": "object"}} for n in ("f", "get")]
    else:
        if tools:
            b["tools"] = [{"type": "function", "function": {"name": n}} for n in ("f", "get")]
        if b.get("stream") and g.random() < .4:
            b["stream_options"] = {"include_usage": g.random() < .7}
        if g.random() < .2:
            b["response_format"] = {"type": "json_object"}
        if g.random() < .3:
            b["logprobs"] = True
    if g.random() < .3:
        b["stop_sequences" if api == "messages" else "stop"] = [g.choice(STOPS) for _ in range(g.randint(1, 2))]
    return b


def logprob(g):
    return g.choice([-0.5, -0.1, -1e-9, -123456.789, 0, -3.4e-5, -0.00001, -17.25, -1 / 3])


def stream_row(g, tok, n_ids):
    api = g.choice(list(APIS))
    body = body_of(g, api)
    s = answer(g, ["f", "get", "apply_patch", "tool_search", "crm::get", "xx"], "response_format" in body)
    inp = {"api": api, "body": body}
    if g.random() < .5:
        inp["tokenizer"] = "v4"
        ops = [{"op": "tokens", "ids": x} for x in token_chunks(g, s, tok, n_ids)]
        mode = g.random()
        for o in ops:
            if mode < .3 or (mode < .35 and g.random() < .8):
                o["logprobs"] = [[logprob(g), [[g.choice([i, g.randrange(n_ids)]), logprob(g)] for _ in range(g.randrange(3))]] for i in o["ids"]]
            if mode > .98 and o["ids"]:
                o["logprobs"] = []
        if g.random() < .2:
            ops = [o if g.random() < .8 else {"op": "text", "text": g.choice(WORDS), "count": 2} for o in ops]
    else:
        ops = [{"op": "text", "text": x, "count": g.randrange(4)} for x in cut(g, s)]
    ready = {"op": "ready", "prompt_tokens": g.randrange(200), "cache_hit": 0}
    ready["cache_hit"] = g.randrange(ready["prompt_tokens"] + 1)
    if g.random() < .5:
        ready["fingerprint"] = "fp_x"
    at = 0 if g.random() < .9 else g.randrange(len(ops) + 1)
    ops.insert(at, ready)
    if g.random() < .85:
        ops.append({"op": "finish", "reason": g.choice(["stop", "stop", "stop", "length", "content_filter"])})
    ops.append({"op": "end"})
    if g.random() < .06:
        ops.insert(g.randrange(len(ops) + 1), g.choice([{"op": "close"}, {"op": "end"}, {"op": "tokens", "ids": [5]}, dict(ready), {"op": "text", "text": "", "count": 0}]))
    inp["ops"] = ops
    if g.random() < .1:
        inp["parsing"] = parsing(g)
    if api == "messages" and g.random() < .2:
        inp["signature"] = "sig"
    if g.random() < .1:
        inp["id"] = "resp_é\"1"
    return {"kind": "stream", "input": inp}


# ---- comparison ----

def first_difference(a, b, path=""):
    if type(a) is not type(b):
        return path, a, b
    if isinstance(a, dict):
        if list(a) != list(b):
            return path + " keys", list(a), list(b)
        for k in a:
            r = first_difference(a[k], b[k], f"{path}.{k}")
            if r:
                return r
    elif isinstance(a, list):
        for i, (x, y) in enumerate(zip(a, b)):
            r = first_difference(x, y, f"{path}[{i}]")
            if r:
                return r
        if len(a) != len(b):
            return path + " length", a[len(b):][:2], b[len(a):][:2]
    elif a != b:
        return path, a, b
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--program", required=True)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--rows", type=int, default=20000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--show", type=int, default=10)
    a = ap.parse_args()
    tok = d.Tokenizer.from_file(a.tokenizer)
    raw = json.load(open(a.tokenizer, encoding="utf-8"))
    n_ids = 1 + max(list(raw["model"]["vocab"].values()) + [t["id"] for t in raw["added_tokens"]])
    g = random.Random(a.seed)
    rows = [(parse_row if g.random() < .5 else stream_row)(g, tok, n_ids) for _ in range(a.rows)]
    lines = "".join(json.dumps(PREPARE(row), ensure_ascii=False) + "\n" for row in rows)
    p = subprocess.run([a.program, "conform", "--tokenizer", a.tokenizer], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    answers = [x for x in p.stdout.decode().split("\n") if x]
    if len(answers) != len(rows):
        raise SystemExit(f"{len(answers)} answers to {len(rows)} rows")
    counts, bad, listed = {}, 0, 0
    for i, (row, answer) in enumerate(zip(rows, answers)):
        want = (run_parse if row["kind"] == "parse" else run_stream)(row["input"], tok)
        got = json.loads(answer)
        counts[row["kind"]] = counts.get(row["kind"], 0) + 1
        diff = ("error", got.get("error"), None) if "result" not in got else first_difference(got["result"], want)
        if diff is None:
            continue
        if any(rule(row) for rule, _ in DOCUMENTED):
            listed += 1
            continue
        bad += 1
        if bad <= a.show:
            print("row", i, json.dumps(row, ensure_ascii=False)[:1500])
            print("   at", diff[0], "\n   got ", json.dumps(diff[1], ensure_ascii=False), "\n   want", json.dumps(diff[2], ensure_ascii=False), flush=True)
    print(f"seed {a.seed}: {counts}, documented differences {listed}, other differences {bad}")
    return bad != 0 or p.returncode != 0


def PREPARE(row):
    return row


if __name__ == "__main__":
    sys.exit(main())
