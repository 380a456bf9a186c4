#!/usr/bin/env python3
"""Writes the Unicode tables of src/tok from two PyPI packages of Unicode 16.0.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install unicodedata2==16.0.0 tokenizers==0.23.3
    /tmp/venv/bin/python tools/gen_unicode.py            # rewrites src/tok/*_table.c
    /tmp/venv/bin/python tools/gen_unicode.py --check    # exit 1 when a file differs

unicode_class_table.c: one class per code point for the pre-tokenizer (src/tok/unicode_class.h).
unicode_fold_table.c: what a code point becomes in a normalised token text (src/tok/unicode_fold.h). Lower case comes from
`tokenizers` (code point by code point), since unicodedata2 has no case mappings; the rest from unicodedata2.
"""
import pathlib
import sys

import unicodedata2 as U
from tokenizers.normalizers import Lowercase

VERSION = "16.0.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent / "src" / "tok"
LIMIT = 0x110000
SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
OTHER, LETTER, MARK, NUMBER, PUNCT, WHITE, NEWLINE, CJK = range(8)


def pretoken_class(cp):
    """The class by general category; white space and the CJK ranges of the second split come first."""
    if 0x4E00 <= cp <= 0x9FA5 or 0x3040 <= cp <= 0x30FF:
        assert U.category(chr(cp))[0] != "N"  # the first split (numbers) must not reach into the second
        return CJK
    if cp in SPACE:
        assert U.category(chr(cp))[0] not in "LMNPS"
        return NEWLINE if cp in (10, 13) else WHITE
    return {"L": LETTER, "M": MARK, "N": NUMBER, "P": PUNCT, "S": PUNCT}.get(U.category(chr(cp))[0], OTHER)


SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic in unicode_fold.c
DELETE, TEXT, SHIFT, SHIFT_2 = range(4)
RUN_MAX = (1 << 14) - 1


def folded():
    """{code point: text} for all that change, without Hangul syllables.

    The text of a string is: NFKC, NFD, without M*, lower case. NFD after NFKC is NFKD, which decomposes code point by
    code point and then orders those with a combining class; all of these are marks and go away. So the whole is one mapping
    of single code points."""
    lowercase = Lowercase()
    lower, out = {}, {}
    for cp in range(LIMIT):
        c = chr(cp)
        if cp in SURROGATES:
            continue
        assert U.combining(c) == 0 or U.category(c)[0] == "M"
        lower[c] = lowercase.normalize_str(c) if U.category(c) != "Cn" else c
    for cp in range(LIMIT):
        if cp in SURROGATES or cp in HANGUL:
            continue
        text = "".join(lower[c] for c in U.normalize("NFKD", chr(cp)) if U.category(c)[0] != "M")
        if text != chr(cp):
            out[cp] = text
    return out


def fold_runs(fold):
    """Runs (first, count, kind, value): neighbours that are deleted, have one text, or move by one distance (all, or
    every second code point). value is the text, or the distance."""
    cps, runs, i = sorted(fold), [], 0

    def length(step, same):
        j = i
        while j + 1 < len(cps) and cps[j + 1] == cps[j] + step and j + 1 - i < RUN_MAX and same(cps[j + 1]):
            j += 1
        return j + 1 - i

    while i < len(cps):
        first, text = cps[i], fold[cps[i]]
        best = (length(1, lambda c: fold[c] == text), TEXT if text else DELETE, text)
        if len(text) == 1:
            distance = ord(text) - first
            for step, kind in ((1, SHIFT), (2, SHIFT_2)):
                n = length(step, lambda c: len(fold[c]) == 1 and ord(fold[c]) - c == distance)
                best = max(best, (n, kind, distance), key=lambda b: b[0])
        runs.append((first, *best))
        i += best[0]
    return runs


def fold_table():
    runs, pool, texts, shifts = fold_runs(folded()), bytearray(), {}, {}
    rows, longest = [], 0
    for first, count, kind, value in runs:
        if kind == TEXT:
            utf8 = value.encode()
            longest = max(longest, len(utf8))
            if value not in texts:
                texts[value] = len(pool)
                pool += bytes([len(utf8)]) + utf8
            value = texts[value]
        elif kind == DELETE:
            value = 0
        else:
            value = shifts.setdefault(value, len(shifts))
        assert value < 1 << 16
        rows.append(f"{{{first:#x}, {count << 2 | kind}, {value}}}")
    assert longest <= 64  # BY_UNICODE_FOLD_MAX
    text = header("unicode_fold_table.c", "what code points become in a normalised token text, as runs.",
                  "; lower case from PyPI tokenizers 0.23.3")
    text += '#include "tok/unicode_fold.h"\n\n'
    text += f"const uint32_t by_unicode_fold_n_runs = {len(rows)};\n\n"
    text += array("by_unicode_fold_run", "by_unicode_fold_runs", rows) + "\n"
    text += array("int32_t", "by_unicode_fold_shifts", shifts) + "\n"
    return text + array("uint8_t", "by_unicode_fold_texts", pool)


def two_stage(values, block):
    """Splits values into blocks of equal size and stores each distinct block once: (block numbers, blocks joined)."""
    seen, first, second = {}, [], []
    for at in range(0, len(values), block):
        key = tuple(values[at:at + block])
        if key not in seen:
            seen[key] = len(seen)
            second.extend(key)
        first.append(seen[key])
    return first, second


def array(ctype, name, values):
    lines, line = [], "   "
    for v in values:
        text = f" {v},"
        if len(line) + len(text) > 118:
            lines.append(line)
            line = "   "
        line += text
    lines.append(line)
    return f"const {ctype} {name}[{len(values)}] = {{\n" + "\n".join(lines) + "\n};\n"


def header(name, what, more=""):
    return (f"/* {name} - {what}\n *\n * Generated by tools/gen_unicode.py from PyPI unicodedata2 {VERSION} "
            f"(Unicode {U.unidata_version}){more}.\n * Do not edit. */\n")


def class_table():
    block = 128
    first, second = two_stage([pretoken_class(c) for c in range(LIMIT)], block)
    assert max(first) < 256 and first[0] == 0  # the scanner takes ASCII from the front of the values
    text = header("unicode_class_table.c", "pre-tokenizer class of every code point, two stages of 128.")
    text += '#include "tok/unicode_class.h"\n\n'
    text += array("uint8_t", "by_unicode_class_block", first) + "\n"
    return text + array("uint8_t", "by_unicode_class_value", second)


def main():
    assert U.unidata_version == VERSION, f"want Unicode {VERSION}, unicodedata2 has {U.unidata_version}"
    files = {"unicode_class_table.c": class_table(), "unicode_fold_table.c": fold_table()}
    stale = [n for n, text in files.items() if not (ROOT / n).exists() or (ROOT / n).read_text() != text]
    if "--check" in sys.argv[1:]:
        for n in stale:
            print(f"{n} differs from what this script writes", file=sys.stderr)
        return 1 if stale else 0
    for n in stale:
        (ROOT / n).write_text(files[n])
        print("wrote", n)
    return 0


if __name__ == "__main__":
    sys.exit(main())
