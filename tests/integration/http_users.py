"""Faults that users of other servers report, each over HTTP under its number in tests/README.md, as far as http_api.py does not have it."""
import json
import re
import subprocess
import sys
import threading
import time

from http_support import DEADLINE, PROGRAM, SANITIZED, SLOW, Lag, Server, chat, equal, events, request, run, scaled, slow

drafted = Server("--draft-mode", "fixed", "--each-token", "--max-model-len", "4096", "--grammar-timeout", "1500")
plain = Server("--draft-mode", "off", "--max-model-len", "4096")
THINK = {"model": "tiny", "honour_sampling": True, "temperature": 0}


def completion(s, **more):
    return s.json("POST", "/v1/completions", {"model": "tiny", "temperature": 0, **more})


def o9_each_token_is_an_event_with_drafts_on():
    """However many tokens a draft brings at once: one event each, in order, none missing."""
    body = {"model": "tiny", "prompt": "What is 17 plus 25? 17 + 25 =", "max_tokens": 40, "ignore_eos": True, "temperature": 0, "logprobs": 0}
    whole = completion(plain, **{k: v for k, v in body.items() if k not in ("model", "temperature")})["choices"][0]["logprobs"]["tokens"]
    before = drafted.metrics()["bathyc_draft_accepted_tokens_total"]
    got = [json.loads(d) for _, d in events(drafted.call("POST", "/v1/completions", {**body, "stream": True})[2])[:-1]]
    tokens = [c["choices"][0]["logprobs"]["tokens"] for c in got if c["choices"] and c["choices"][0].get("logprobs")]
    equal((max(map(len, tokens)), [t for x in tokens for t in x]), (1, whole))
    equal(drafted.metrics()["bathyc_draft_accepted_tokens_total"] > before, True, "no draft was accepted: nothing was tested")


def o15_a_schema_binds_behind_the_reasoning():
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    for s in (plain, drafted):
        m = s.json("POST", "/v1/chat/completions", {**THINK, "messages": [{"role": "user", "content": "Is 2 plus 2 = 4? Answer in JSON."}], "max_tokens": 300,
                   "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}})["choices"][0]["message"]
        equal((type(json.loads(m["content"])["ok"]), m["reasoning_content"][:1] not in ("", "{")), (bool, True), m)


def o16_an_enum_behind_a_reference_holds():
    """50 seeds at temperature 2: whatever comes validates."""
    schema = {"$ref": "#/$defs/Row", "$defs": {"E": {"enum": ["левый", "右", None]}, "Row": {
        "type": "object", "required": ["côté"], "properties": {"côté": {"$ref": "#/$defs/E"}}, "additionalProperties": False}}}
    body = chat("JSON, please.", temperature=2, honour_sampling=True, max_tokens=60,
                response_format={"type": "json_schema", "json_schema": {"name": "row", "schema": schema}})
    seen = set()
    for seed in range(0, scaled(50, 20), 10):  # ten choices, each with a seed of its own
        for c in plain.json("POST", "/v1/chat/completions", {**body, "seed": seed, "n": 10})["choices"]:
            v = json.loads(c["message"]["content"])
            equal((list(v), v["côté"] in ("левый", "右", None)), (["côté"], True), v)
            seen.add(v["côté"])
    equal(len(seen) > 1, True, "the seeds change nothing")


def o17_nested_schemas_hold_nobody_up():
    """oneOf of two branches, 22 deep: an answer or a refusal within 2 s, and another client's stream goes on meanwhile. The schema comes
    in a field that the prompt does not show, since a prompt of 2,000 tokens in the same steps takes its time, too."""
    def nest(depth, salt):
        if depth == 0:
            return {"type": "string", "minLength": salt}
        return {"oneOf": [{"type": "object", "properties": {f"a{depth}": nest(depth - 1, salt)}, "required": [f"a{depth}"]},
                          {"type": "object", "properties": {f"b{depth}": nest(0, salt)}, "required": [f"b{depth}"]}]}

    def attempt(salt):
        with drafted.connect() as s:
            s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 3000, "ignore_eos": True, "stream": True}))
            gaps, errors, stop = [], [], threading.Event()

            def read():
                try:
                    last = None
                    while not stop.is_set() and s.recv(65536):
                        now = time.monotonic()
                        gaps.append(now - last if last else 0)
                        last = now
                except Exception as e:
                    errors.append(e)
            t = threading.Thread(target=read)
            t.start()
            end = time.monotonic() + DEADLINE
            while not gaps and t.is_alive() and time.monotonic() < end:
                time.sleep(0.01)
            equal((errors, len(gaps) > 0), ([], True), "the other stream does not begin")
            with Lag() as lag:
                began = time.monotonic()
                status, _, data = drafted.call("POST", "/v1/chat/completions", chat("JSON", max_tokens=4, structured_outputs={"json": nest(22, salt)}))
                took = time.monotonic() - began
            stop.set()
            t.join(DEADLINE)
            equal((errors, t.is_alive()), ([], False))
        return status, took < 2 * slow(), max(gaps) < 0.2 * SLOW + 4 * lag.most, len(gaps) > 2, took, max(gaps), lag.most
    seen = [attempt(1)]
    while not all(seen[-1][1:4]) and len(seen) < 4:  # others may use this machine, too
        seen.append(attempt(len(seen) + 1))
    status, *good, took, gap, lag = seen[-1]
    print(f"        status {status} after {took:.2f} s; largest gap of the other stream {gap * 1000:.0f} ms, of this program {lag * 1000:.0f} ms")
    equal((status in (200, 400), good), (True, [True] * 3), seen)


def o18_schemas_and_drafts_give_the_same_bytes():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "l": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 3}},
              "required": ["n", "l"], "additionalProperties": False}
    for format in ({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, {"type": "json_object"}, {"type": "regex", "regex": "[a-c]{5,9}!"}):
        body = chat("What is 17 plus 25? Answer in JSON.", temperature=0, max_tokens=80, response_format=format)
        a, b = (s.json("POST", "/v1/chat/completions", body)["choices"][0]["message"]["content"] for s in (plain, drafted))
        equal(a, b, format)
        if format["type"] == "regex":
            equal(bool(re.fullmatch("[a-c]{5,9}!", a)), True, a)
        else:
            v = json.loads(a)
            equal(format["type"] == "json_object" or (type(v["n"]), set(v["l"]) <= {"x", "y"}) == (int, True), True, v)


def o21_log_probabilities_do_not_depend_on_drafts():
    body = {"prompt": "What is 17 plus 25? The", "max_tokens": 20, "ignore_eos": True, "logprobs": 5}
    a, b = (completion(s, **body)["choices"][0]["logprobs"] for s in (plain, drafted))
    equal(a["tokens"], b["tokens"])
    equal(max(abs(x - y) for x, y in zip(a["token_logprobs"], b["token_logprobs"])) < 1e-4, True, (a, b))
    for x, y in zip(a["top_logprobs"], b["top_logprobs"]):
        equal((set(x), all(abs(x[k] - y[k]) < 1e-4 for k in x)), (set(y), True))
    free = completion(drafted, **{**body, "temperature": 1, "seed": 3})["choices"][0]["logprobs"]["token_logprobs"]
    equal(any(x == 0 for x in free), False, free)


def o22_penalties_count_with_drafts():
    texts = {}
    for penalty in (2, -2):
        a, b = (completion(s, prompt="na na na na", max_tokens=scaled(100, 40), ignore_eos=True, frequency_penalty=penalty)["choices"][0]["text"] for s in (plain, drafted))
        equal(a, b, penalty)
        texts[penalty] = a
    equal(texts[2] != texts[-2], True, texts)


def o28_a_repeated_prompt_is_found():
    """Prompts of 700 tokens, the same twice: at least 512 are cached, whole and streamed, on every API."""
    text = "One more word. " * 240
    n = plain.json("POST", "/tokenize", {"prompt": text})["count"]
    equal(700 <= n <= 2000, True, n)
    user = [{"role": "user", "content": text}]
    for path, body, cached in (("/v1/completions", {"prompt": text + "1"}, lambda u: u["prompt_tokens_details"]["cached_tokens"]),
                               ("/v1/chat/completions", {"messages": user}, lambda u: u["prompt_tokens_details"]["cached_tokens"]),
                               ("/v1/responses", {"input": text + "2"}, lambda u: u["input_tokens_details"]["cached_tokens"]),
                               ("/v1/messages", {"messages": user, "system": "3"}, lambda u: u["cache_read_input_tokens"])):
        body = {"model": "tiny", "max_output_tokens" if "responses" in path else "max_tokens": 1, **body}
        plain.json("POST", path, body)
        got = cached(plain.json("POST", path, body)["usage"])
        equal(512 <= got <= n + 60, True, (path, got))


def o29_tool_turns_reuse_what_was_computed():
    """Three tool turns through /v1/responses with the ids sent back: 95 % of the earlier prompt and answer are found, up to a block."""
    tool = {"type": "function", "name": "get_weather", "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
    body = {"model": "tiny", "tools": [tool], "max_output_tokens": 300, "temperature": 0, "honour_sampling": True, "reasoning": {"effort": "low"}}
    r = plain.json("POST", "/v1/responses", {**body, "input": "A long story. " * scaled(600, 150) + "What is the weather in Oslo?"})
    for turn in range(3):
        calls = [i for i in r["output"] if i["type"] == "function_call"]
        before = r["usage"]["input_tokens"] + r["usage"]["output_tokens"]
        more = [{"type": "function_call_output", "call_id": c["call_id"], "output": "rainy"} for c in calls]
        r = plain.json("POST", "/v1/responses", {**body, "previous_response_id": r["id"],
                                                 "input": more + [{"role": "user", "content": f"What is the weather in {['Rome', 'Paris', 'Oslo'][turn]}?"}]})
        got = r["usage"]["input_tokens_details"]["cached_tokens"]
        equal(got >= min(0.95 * before, before // 128 * 128), True, f"turn {turn}: {got} of {before}")
    equal(before > scaled(2000, 500), True, before)


def o41_a_limit_of_512():
    s = Server("--max-model-len", "512")
    for body, numbers in (({"prompt": [300] * 500, "max_tokens": 64}, ("500", "64", "512")), ({"prompt": [300] * 513, "max_tokens": 1}, ("513", "512")),
                          ({"prompt": [300] * 513}, ("513", "512"))):
        e = s.json("POST", "/v1/completions", {"model": "tiny", **body}, want=400)["error"]
        equal((e["code"], [n for n in numbers if n not in e["message"]]), ("context_length_exceeded", []), e)
    a = s.json("POST", "/v1/completions", {"model": "tiny", "prompt": [300] * 500, "max_tokens": 12, "ignore_eos": True})  # exactly full
    equal((a["usage"]["total_tokens"], a["choices"][0]["finish_reason"]), (512, "length"))
    c = s.json("POST", "/v1/chat/completions", {**chat("word " * 300), "ignore_eos": True})  # no limit given: what is left
    equal((c["usage"]["total_tokens"], c["choices"][0]["finish_reason"]), (512, "length"))
    s.stop()


def o44_metrics_stay_in_their_ranges():
    """While requests come, end, break off and fail: counters never fall, gauges are within what they count."""
    counters = re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", plain.call("GET", "/metrics")[2].decode(), re.M)
    stop, errors, n_reads = threading.Event(), [], 0

    def load(k):
        try:
            i = 0
            while not stop.is_set():
                i += 1
                if i % 4 == 0:
                    with plain.connect() as s:  # leaves
                        s.sendall(request("POST", "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 2000, "stream": True, "ignore_eos": True}))
                        s.recv(100)
                elif i % 4 == 1:
                    plain.call("POST", "/v1/completions", {"model": "tiny", "prompt": 7})
                else:
                    completion(plain, prompt=[300 + (i * k) % 50] * 150, max_tokens=5, n=2, temperature=1)
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=load, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    before, end = {}, time.monotonic() + 2
    try:
        while time.monotonic() < end or n_reads <= 5:
            m = plain.metrics()
            n_reads += 1
            for name, value in m.items():
                family = re.sub(r"(_bucket|_sum|_count)?(\{.*\})?$", "", name)
                if value < 0 or (value < before.get(name, 0) and (family in counters or name.split("{")[0] in counters)):
                    raise AssertionError(f"{name}: {value} after {before.get(name)}")
            for part, whole in (("kv_blocks_used", "kv_blocks"), ("kv_blocks_keyed", "kv_blocks"), ("state_slots_used", "state_slots"),
                                ("cached_prompt_tokens_total", "prompt_tokens_total"), ("reasoning_tokens_total", "output_tokens_total")):
                equal(m["bathyc_" + part] <= m["bathyc_" + whole], True, (part, m["bathyc_" + part], m["bathyc_" + whole]))
            equal(m["bathyc_kv_usage_ratio"] <= 1, True)
            before = m
            time.sleep(0.05)
    finally:
        stop.set()
        for t in threads:
            t.join(DEADLINE)
    equal((errors, len(counters) > 20), ([], True))
    plain.wait_metric("bathyc_requests_running", lambda v: v == 0)
    plain.wait_metric("bathyc_kv_blocks_used", lambda v: v == 0)


def o45_knobs_are_read():
    """--ram is followed, unknown flags and names in the environment are refused, the time to readiness is told by phase."""
    seen = {}
    for ram in (2 << 20, 6 << 20):
        s = Server("--ram", str(ram), "--max-model-len", "2048", "--max-num-seqs", "16")
        line = s.wait_line("ready after")
        equal(bool(re.search(r"ready after [0-9.]+ s \(loading [0-9.]+ s, first token [0-9.]+ s\)", line)), True, line)
        for i in range(1 if SANITIZED else 4):
            completion(s, prompt=[300 + (i * 7 + j) % 200 for j in range(1500)], max_tokens=1)
            if i == 0:
                start = s.rss()  # what a step of so many rows needs is there
        m = s.metrics()
        seen[ram] = (m["bathyc_kv_blocks"], m['bathyc_memory_bytes{use="tensor"}'])
        if s.rss() - start > ram + (8 << 20) and not SANITIZED:
            raise AssertionError(f"--ram {ram}: {s.rss() - start} bytes more")
        s.stop()
    (small, small_bytes), (large, large_bytes) = seen.values()
    equal((large > 2 * small, 1 << 20 < large_bytes - small_bytes < 5 << 20), (True, True), seen)
    import os
    for flags, name, word in ((["--ramm", "1G"], None, "--ram"), (["--ram", "1X"], None, "--ram"), ([], "BATHYC_RAM", "BATHYC_RAM"), ([], "BATHYC_MODELL", "BATHYC_MODEL")):
        p = subprocess.run([PROGRAM, "serve", "--port", "0", *flags], env={**os.environ, **({name: "1"} if name else {})}, capture_output=True, text=True,
                           timeout=DEADLINE)
        equal((p.returncode, word in p.stderr), (2, True), (flags, name, p.stderr))


if __name__ == "__main__":
    sys.exit(run([o9_each_token_is_an_event_with_drafts_on, o15_a_schema_binds_behind_the_reasoning, o16_an_enum_behind_a_reference_holds,
                  o17_nested_schemas_hold_nobody_up, o18_schemas_and_drafts_give_the_same_bytes, o21_log_probabilities_do_not_depend_on_drafts,
                  o22_penalties_count_with_drafts, o28_a_repeated_prompt_is_found, o29_tool_turns_reuse_what_was_computed, o41_a_limit_of_512,
                  o44_metrics_stay_in_their_ranges, o45_knobs_are_read]))
