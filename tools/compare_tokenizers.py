#!/usr/bin/env python3
"""Compares bathyc's ids and texts with those of Hugging Face `tokenizers` on random texts (pip install tokenizers==0.23.3).

    tools/compare_tokenizers.py build/bathyc TOKENIZER.JSON [--n 20000] [--seed 1]

Three comparisons: encoding with added tokens, encoding without, decoding of random ids. Exit 1 at a difference.
"""
import argparse
import json
import random
import subprocess
import sys

from tokenizers import Tokenizer

POOLS = ["abcdefghijklmnopqrstuvwxyz", "ABC", "    ", "\t\r\n", "\n", "\x0b\x0c\x85\xa0\u1680\u2003\u2028\u3000", "0123456789",
         "½²Ⅷ①٣", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "，。！？「」…€", "的一是在不了有和人这中大为上", "あいカタナー゛・", "々\u3400\u9fa6",
         "\u0301\u0308\u20dd\u0903", "\u200b\u200d\ufeff\u2060\xad", "éßıΩжאע한", "🙂\U0001f1e9\U0001d400\U00020000\U000105c0",
         "\x00\x01\x7f\ufffd\U0010ffff\ue000", "<｜▁>/"]


def random_text(rng, words):
    out = []
    for _ in range(rng.randint(0, 25)):
        kind = rng.randrange(10)
        if kind < 5:
            out.append(rng.choice(rng.choice(POOLS)))
        elif kind < 6:
            out.append(rng.choice(rng.choice(POOLS)) * rng.randint(1, 40))
        elif kind < 7:
            c = chr(rng.randrange(0x110000))
            out.append(c if not "\ud800" <= c <= "\udfff" else "?")
        else:
            out.append(rng.choice(words))
    return "".join(out)


def bathyc(program, command, tokenizer, rows, *flags):
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    run = subprocess.run([program, command, "--jsonl", "--tokenizer", tokenizer, *flags], input=lines, check=True,
                         capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.split("\n") if line]


def report(what, given, got, want):
    bad = [i for i in range(len(want)) if got[i] != want[i]]
    print(f"{what}: {len(want)} compared, {len(bad)} differ")
    for i in bad[:5]:
        print(f"  {given[i]!r}\n    bathyc     {got[i]!r}\n    tokenizers {want[i]!r}")
    return len(bad)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("program")
    p.add_argument("tokenizer")
    p.add_argument("--n", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    data = json.load(open(a.tokenizer, encoding="utf-8"))
    full = Tokenizer.from_file(a.tokenizer)
    plain = Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
    n_ids = full.get_vocab_size()
    words = [full.decode([i], skip_special_tokens=False) for i in range(n_ids)]
    words += [t["content"] for t in data["added_tokens"] for _ in range(20)]
    texts = [random_text(rng, words) for _ in range(a.n)]
    rows = [{"text": t} for t in texts]
    bad = 0
    for what, peer, flags in (("with added tokens", full, ()), ("plain", plain, ("--no-added-tokens",))):
        want = [e.ids for e in peer.encode_batch(texts, add_special_tokens=False)]
        bad += report(what, texts, [r["tokens"] for r in bathyc(a.program, "tokenize", a.tokenizer, rows, *flags)], want)
    ids = [[rng.randrange(n_ids) for _ in range(rng.randint(0, 12))] for _ in range(a.n)]
    want = full.decode_batch(ids, skip_special_tokens=False)
    got = [r["text"] for r in bathyc(a.program, "detokenize", a.tokenizer, [{"tokens": i} for i in ids])]
    bad += report("decoding", ids, got, want)
    want = full.decode_batch(ids, skip_special_tokens=True)
    got = [r["text"] for r in bathyc(a.program, "detokenize", a.tokenizer, [{"tokens": i} for i in ids], "--skip-special")]
    bad += report("decoding without special tokens", ids, got, want)
    return 1 if bad else 0


sys.exit(main())
