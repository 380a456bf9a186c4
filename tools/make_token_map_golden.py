#!/usr/bin/env python3
"""Golden data of the token normaliser, from the normalisers of Hugging Face `tokenizers`.

    pip install tokenizers==0.23.3 unicodedata2==16.0.0
    make_token_map_golden.py OUTDIR      # writes fold.txt and normalise.jsonl

fold.txt: `code point (hex)<TAB>text`, every code point whose text changes; all others stay as they are. That package's
normal forms are of an older Unicode version than its lower case. Code points where unicodedata2 16.0 says otherwise are
written as `?code point` and say nothing.
normalise.jsonl: {"text", "expected"} for strings from a seeded generator.
"""
import json
import pathlib
import random
import sys

import unicodedata2 as U
from tokenizers import Regex
from tokenizers.normalizers import NFD, NFKC, Lowercase, Replace, Sequence, Strip

FOLD = Sequence([NFKC(), NFD(), Replace(Regex(r"\p{M}"), ""), Lowercase()])
BLANKS = Replace(Regex("[ \t\r\n]+"), " ")
TRIM = Strip()


def other_opinion(c):
    """The same by unicodedata2, except for lower case."""
    text = U.normalize("NFD", U.normalize("NFKC", c))
    lower = Lowercase()
    return "".join(lower.normalize_str(x) if U.category(x) != "Cn" else x for x in text if U.category(x)[0] != "M")


def normalise(text):
    text = BLANKS.normalize_str(FOLD.normalize_str(text))
    return text if text == " " else TRIM.normalize_str(text)


def strings():
    rng = random.Random(20261129)
    pools = ["abcXYZ ", " \t\r\n\x0b\x0c\x85\xa0\u2003\u2028\u3000\u200b", "éÉñÅåöÖçßẞİıſ", "\u0301\u0308\u0327\u0345\u0903\u20dd\u3099",
             "가각힣각한국어", "ﬁﬂ㎏①²Ⅷ℃ﷺ½", "ΣςσΆάΩω", "漢字かガ", "🙂\U0001F1E9\U0001D400", "\u1e9b\u0323\u0344\ufb2c"]
    for _ in range(800):
        mix = rng.sample(pools, rng.randint(1, 4))
        yield "".join(rng.choice(rng.choice(mix)) for _ in range(rng.randint(0, 12)))


def main():
    out = pathlib.Path(sys.argv[1])
    with open(out / "fold.txt", "w", encoding="utf-8", newline="\n") as f:
        for cp in range(0x110000):
            if 0xD800 <= cp < 0xE000:
                continue
            text = FOLD.normalize_str(chr(cp))
            if text != other_opinion(chr(cp)):
                f.write(f"?{cp:X}\n")
            elif text != chr(cp):
                f.write(f"{cp:X}\t{text}\n")
    with open(out / "normalise.jsonl", "w", encoding="utf-8", newline="\n") as f:
        for s in strings():
            f.write(json.dumps({"text": s, "expected": normalise(s)}, ensure_ascii=False) + "\n")


main()
