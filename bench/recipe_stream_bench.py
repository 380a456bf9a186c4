"""Answers to events, side by side in one run: the original (`deepseek-recipe` 0.2.0) and `bathyc bench recipe`.

usage: recipe_stream_bench.py --program bathyc --tokenizer tokenizer.json [--rounds 5] [--copies 200]

Both get the same answer (reasoning, text, two tool calls) in chunks of a token each, as text and as ids, and make Chat
Completions events as JSON. They run in turn, one thread; ours reports its own time without reading the input. One JSON
object a line: best and median microseconds a token of both, and the ratio of the medians.
"""
import argparse, json, statistics, subprocess, time
import deepseek_recipe as d

T = "｜DSML｜"


def answer():
    prose = ("The gardens are open from nine until the sun goes down, and the path along the river is the one to take if you "
             "have an hour; \"bring water\", says the keeper, since the shop closes early.\n")
    calls = "".join(f"<{T} invoke name=\"tool_{i}\">\n<{T} parameter name=\"arg0\" string=\"true\">{prose}</{T} parameter>\n"
                    f"<{T} parameter name=\"arg1\" string=\"false\">{i}</{T} parameter>\n</{T} invoke>\n" for i in range(2))
    return prose * 20 + "</think>\n\n" + prose * 8 + f"\n\n<{T} calls>\n" + calls + f"</{T} calls>"


def chunks_of(text, ids, spelling):
    """The text cut where tokens end, never inside a character."""
    raw, out, at, start = text.encode(), [], 0, 0
    for i in ids:
        at += len(spelling(i))
        if at < len(raw) and raw[at] & 0xC0 == 0x80:
            continue
        out.append(raw[start:at].decode())
        start = at
    assert "".join(out) == text
    return out


def byte_symbols():
    table, extra = {}, 0
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
            table[chr(b)] = b
        else:
            table[chr(256 + extra)] = b
            extra += 1
    return table


def original(tok, chunks, kind):
    body = json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "q"}], "stream": True,
                       "tools": [{"type": "function", "function": {"name": "tool_0"}}]})
    c = d.ChatCompletionRequest(body).convert(d.ConversionOptions())
    sp = d.StreamProcessor(d.ChatCompletionRequest.chunk_generator(c, "id-1", "m"), c.parsing_options, tok if kind == "ids" else None)
    sp.push(d.InferenceChunk.ready(prompt_usage=d.PromptUsage(prompt_tokens=10, prompt_cache_hit_tokens=0)))
    n = 0
    for x in chunks:
        for ev in sp.push(d.InferenceChunk.tokens([x]) if kind == "ids" else d.InferenceChunk.text(x, 1)):
            n += len(ev.to_json())
    for ev in sp.push(d.InferenceChunk.finish(d.InferenceFinishReason.Stop)):
        n += len(ev.to_json())
    return n


def ours(a, lines):
    p = subprocess.run([a.program, "bench", "recipe", "--tokenizer", a.tokenizer, "--lines", "-"], input=lines, capture_output=True, check=True)
    return json.loads(p.stderr.decode().strip().splitlines()[-1])["seconds"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--program", required=True)
    ap.add_argument("--tokenizer", required=True)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--copies", type=int, default=200)
    a = ap.parse_args()
    raw = json.load(open(a.tokenizer, encoding="utf-8"))
    tok, symbols = d.Tokenizer.from_file(a.tokenizer), byte_symbols()
    added = {t["id"]: t["content"].encode() for t in raw["added_tokens"]}
    vocab = {i: s for s, i in raw["model"]["vocab"].items()}
    text = answer()
    ids = tok.encode(text)
    inputs = {"text": chunks_of(text, ids, lambda i: added.get(i) or [symbols[c] for c in vocab[i]]), "ids": ids}
    times = {(kind, who): [] for kind in inputs for who in ("original", "ours")}
    for _ in range(a.rounds):
        for kind, chunks in inputs.items():
            lines = (json.dumps({"ids" if kind == "ids" else "chunks": chunks}, ensure_ascii=False) + "\n").encode() * a.copies
            times[kind, "ours"].append(ours(a, lines) / a.copies / len(chunks) * 1e6)
            t = time.perf_counter()
            for _ in range(a.copies // 10):
                original(tok, chunks, kind)
            times[kind, "original"].append((time.perf_counter() - t) / (a.copies // 10) / len(chunks) * 1e6)
    for kind, chunks in inputs.items():
        o, u = times[kind, "original"], times[kind, "ours"]
        print(json.dumps({"bench": "answer to chat events", "input": kind, "tokens": len(chunks), "us_original_best": round(min(o), 3),
                          "us_original_median": round(statistics.median(o), 3), "us_ours_best": round(min(u), 4),
                          "us_ours_median": round(statistics.median(u), 4),
                          "ratio": round(statistics.median(o) / statistics.median(u), 1)}))


main()
