"""Requests to prompts, side by side in one run: the original (`deepseek-recipe` 0.2.0) and `bathyc bench recipe`.

usage: recipe_request_bench.py --program bathyc --tokenizer tokenizer.json [--rounds 5] [--copies 50]

Twenty Chat Completions bodies of 20 messages and 10 tools each (words of the GPL, seeded) go from JSON to a conversation, to the
prompt's text and to its token ids. Both run in turn, one thread; ours reports its own time without reading lines and printing.
A tokenizer file without the system token gets it in its place, for both. One JSON object a line: best and median
microseconds a request of both, the ratio of the medians, and whether the ids of all bodies are the same.
"""
import argparse, json, os, random, statistics, subprocess, tempfile, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import deepseek_recipe as d

STAGES = {"request JSON to conversation": "conversation", "request JSON to prompt text": "text", "request JSON to prompt ids": "seconds"}


def body(seed):
    g = random.Random(seed)
    gpl = "/usr/share/common-licenses/GPL-3"
    words = open(gpl).read().split() if os.path.exists(gpl) else [f"word{i}" for i in range(5000)]

    def para(n):
        at = g.randrange(len(words) - n)
        return " ".join(words[at:at + n])

    kinds = ["string", "integer", "boolean", "number"]
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": para(30), "parameters": {
        "type": "object", "properties": {f"arg{j}": {"type": kinds[j % 4], "description": para(12)} for j in range(5)},
        "required": ["arg0", "arg1"]}}} for i in range(10)]
    messages, k = [{"role": "system", "content": para(150)}], 0
    while len(messages) < 20:
        messages.append({"role": "user", "content": para(120)})
        if len(messages) >= 18:
            continue
        k += 1
        arguments = json.dumps({"arg0": para(10), "arg1": k, "arg2": True})
        messages.append({"role": "assistant", "content": para(20), "reasoning_content": para(80), "tool_calls": [
            {"id": f"c{k}", "type": "function", "function": {"name": f"tool_{k % 10}", "arguments": arguments}}]})
        messages.append({"role": "tool", "tool_call_id": f"c{k}", "content": para(100)})
    return json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": messages[:20], "tools": tools, "stream": True, "temperature": 0.7},
                      ensure_ascii=False)


def ours(a, lines):
    p = subprocess.run([a.program, "bench", "recipe", "--tokenizer", a.tokenizer, "--requests", "-"], input=lines, capture_output=True, check=True)
    return json.loads(p.stderr.decode().strip().splitlines()[-1]), p.stdout.decode().splitlines()


def load(path):
    raw = json.load(open(path, encoding="utf-8"))
    if not any(t["content"] == "<｜System｜>" for t in raw["added_tokens"]):
        for t in raw["added_tokens"]:
            if t["id"] == 128799:
                t["content"], t["special"] = "<｜System｜>", True
    return d.Tokenizer.from_str(json.dumps(raw))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--program", required=True)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--copies", type=int, default=50)
    a = ap.parse_args()
    tok, options = load(a.tokenizer), d.ConversionOptions()
    plain, encoding = d.DeepseekV41Encoding(), d.DeepseekV41Encoding().with_tokenizer(tok)
    bodies = [body(i) for i in range(20)]
    convert = lambda b: d.ChatCompletionRequest(b).convert(options)
    original = {"conversation": convert, "text": lambda b: plain.render_conversation(convert(b).conversation).prompt,
                "seconds": lambda b: encoding.encode(convert(b).conversation)}
    want = [list(original["seconds"](b)) for b in bodies]
    lines = ("\n".join(bodies) + "\n").encode()
    same = [json.loads(x)["ids"] for x in ours(a, lines)[1]] == want
    times = {(k, who): [] for k in original for who in ("original", "ours")}
    for _ in range(a.rounds):
        seconds, _ids = ours(a, lines * a.copies)
        for k in original:
            times[k, "ours"].append(seconds[k] / (a.copies * len(bodies)) * 1e6)
            t = time.perf_counter()
            for b in bodies * 2:
                original[k](b)
            times[k, "original"].append((time.perf_counter() - t) / (2 * len(bodies)) * 1e6)
    for name, k in STAGES.items():
        o, u = times[k, "original"], times[k, "ours"]
        print(json.dumps({"bench": name, "body_bytes": round(statistics.mean(len(b.encode()) for b in bodies)),
                          "tokens": round(statistics.mean(map(len, want))), "us_original_best": round(min(o), 1),
                          "us_original_median": round(statistics.median(o), 1), "us_ours_best": round(min(u), 1),
                          "us_ours_median": round(statistics.median(u), 1),
                          "ratio": round(statistics.median(o) / statistics.median(u), 1), "same_ids": same}))


main()
