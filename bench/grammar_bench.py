#!/usr/bin/env python3
"""Runs grammars through this engine, xgrammar and llguidance, side by side: same cases, same tokens, one thread, in turns.

   grammar_bench.py --tokenizer tokenizer.json [--engines bathyc,xgrammar,llguidance] [--program build/bathyc] CASES.jsonl[.gz]...

A case is {"id", "kind", "grammar", "options"?, "tests": [{"tokens", "valid"}]}. The other engines come from PyPI (xgrammar,
llguidance, tokenizers, numpy; xgrammar needs torch); one that is not installed is left out. Times are processor time of one
thread, so that a busy machine does not disturb them; a mask counts until it is complete in memory. Each test runs twice on
one compiled grammar: cold, then warm."""
import argparse
import gzip
import json
import os
import subprocess
import time

os.environ.setdefault("RAYON_NUM_THREADS", "1")
EOS = 1


def clock():
    return time.thread_time_ns() / 1000.0


class Bathyc:
    def __init__(self, program, tokenizer):
        self.p = subprocess.Popen([program, "grammar-bench", "--cpu-time", "--tokenizer", tokenizer], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.p.stdout.readline()

    def run(self, case):
        req = {"op": "case", "id": case["id"], "kind": case["kind"], "grammar": case["grammar"],
               "options": case.get("options") or {"whitespace": "any"}, "repeat": 2,
               "tests": [{"tokens": t["tokens"]} for t in case["tests"]]}
        self.p.stdin.write(json.dumps(req) + "\n")
        self.p.stdin.flush()
        r = json.loads(self.p.stdout.readline())
        if not r["ok"]:
            return None
        return r["compile_us"], [(x["accepted"], [q["mask_us"] for q in x["passes"]]) for x in r["results"]]


class Peer:
    """An engine in this process: compile, start, mask (fills), allowed, accept."""

    def run(self, case):
        t0 = clock()
        try:
            g = self.compile(case)
        except Exception:
            return None
        compile_us, out = clock() - t0, []
        for test in case["tests"]:
            passes, accepted = [], True
            for _ in range(2):
                m, times, ok = self.start(g), [], True
                for id in test["tokens"] + [EOS]:
                    t0 = clock()
                    self.mask(m)
                    times.append(clock() - t0)
                    if not self.words[id >> 5] >> (id & 31) & 1 or (id != EOS and not self.accept(m, id)):
                        ok = False
                        break
                passes.append(times)
                accepted = accepted and ok
            out.append((accepted, passes))
        return compile_us, out


class XGrammar(Peer):
    def __init__(self, _, tokenizer):
        import tokenizers
        import xgrammar
        self.x = xgrammar
        tok = tokenizers.Tokenizer.from_file(tokenizer)
        vocab = [t for t, _ in sorted(tok.get_vocab(True).items(), key=lambda kv: kv[1])]
        info = xgrammar.TokenizerInfo(vocab, xgrammar.VocabType.BYTE_LEVEL, vocab_size=len(vocab), stop_token_ids=[EOS])
        self.c = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, len(vocab))
        self.words = self.bits.numpy()[0].view("uint32")

    def compile(self, case):
        kind, g = case["kind"], case["grammar"]
        if kind == "json_schema":
            return self.c.compile_json_schema(json.dumps(g), any_whitespace=True, strict_mode=False)
        if kind == "regex":
            return self.c.compile_regex(g)
        if kind == "ebnf":
            return self.c.compile_grammar(g)
        raise ValueError(kind)

    def start(self, g):
        return self.x.GrammarMatcher(g)

    def mask(self, m):
        m.fill_next_token_bitmask(self.bits)

    def accept(self, m, id):
        return m.accept_token(id)


class LLGuidance(Peer):
    def __init__(self, _, tokenizer):
        import llguidance
        import numpy
        self.l = llguidance
        self.tok = llguidance.LLTokenizer(tokenizer, eos_token=EOS)
        self.words = numpy.zeros((self.tok.vocab_size + 31) // 32, dtype="uint32")
        self.address, self.n_bytes = self.words.ctypes.data, self.words.nbytes

    def compile(self, case):
        kind, g, m = case["kind"], case["grammar"], self.l.LLMatcher
        if kind == "json_schema":
            text = m.grammar_from_json_schema(g, defaults={"whitespace_flexible": True})
        elif kind == "regex":
            text = m.grammar_from_regex(g)
        elif kind == "lark":
            text = m.grammar_from_lark(g)
        else:
            raise ValueError(kind)
        matcher = m(self.tok, text)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, g):
        return g.deep_copy()

    def mask(self, m):
        m.unsafe_compute_mask_ptr(self.address, self.n_bytes)

    def accept(self, m, id):
        return m.consume_token(id)


ENGINES = {"bathyc": Bathyc, "xgrammar": XGrammar, "llguidance": LLGuidance}


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def share(v, p):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * p))] if v else float("nan")


def row(name, v):
    return "| %-22s | %8d | %9.2f | %8.2f | %8.2f | %9.2f | %10.1f |" % (
        name, len(v), sum(v) / max(1, len(v)), share(v, .5), share(v, .9), share(v, .99), max(v or [0]))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--tokenizer", required=True)
    a.add_argument("--program", default="build/bathyc")
    a.add_argument("--engines", default="bathyc,xgrammar,llguidance")
    a.add_argument("--limit", type=int, default=0, help="at most so many cases")
    a.add_argument("cases", nargs="+")
    o = a.parse_args()
    cases = [c for p in o.cases for c in read(p)]
    cases = cases[:o.limit] if o.limit else cases
    engines = {}
    for n in o.engines.split(","):
        try:
            engines[n] = ENGINES[n](o.program, o.tokenizer)
        except ImportError as e:
            print("%s is left out: %s" % (n, e))
    got = {n: [] for n in engines}
    for c in cases:
        for n, e in engines.items():
            got[n].append(e.run(c))
    common = [i for i in range(len(cases)) if all(got[n][i] for n in engines)]
    print("%d cases, %d compiled by all\n" % (len(cases), len(common)))
    head = "| %-22s | %8s | %9s | %8s | %8s | %9s | %10s |" % ("", "n", "mean us", "p50", "p90", "p99", "max")
    for title, which in (("all that the engine compiles", None), ("compiled by all", common)):
        print(title + "\n" + head + "\n" + "|---" * 7 + "|")
        for n in engines:
            rs = [got[n][i] for i in (which if which is not None else range(len(cases))) if got[n][i]]
            cold, warm = ([t for r in rs for _, ps in r[1] for t in ps[k]] for k in (0, 1))
            print(row(n + " compile", [r[0] for r in rs]))
            print(row(n + " mask cold", cold))
            print(row(n + " mask warm", warm))
            print(row(n + " mask both", cold + warm))
        print()
    for n in engines:
        wrong = [0, 0]
        for c, r in zip(cases, got[n]):
            for t, (ok, _) in zip(c["tests"], r[1] if r else []):
                if ok != t["valid"]:
                    wrong[ok] += 1
        print("%s: compiled %d of %d; valid texts refused %d, invalid accepted %d" % (
            n, sum(r is not None for r in got[n]), len(cases), wrong[0], wrong[1]))


if __name__ == "__main__":
    main()
