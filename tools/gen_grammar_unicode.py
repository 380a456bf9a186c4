#!/usr/bin/env python3
"""Writes src/grammar/grammar_unicode_table.c: general categories of all code points, and the scripts that patterns name
most, from Python's unicodedata. Scripts are read off the character names (the standard library has no script property),
so they hold letters, marks and numbers whose name begins with the script's name.
   gen_grammar_unicode.py > src/grammar/grammar_unicode_table.c"""
import sys
import unicodedata

SCRIPTS = {"Latin": ("LATIN ", "FULLWIDTH LATIN ", "FEMININE ORDINAL", "MASCULINE ORDINAL"), "Greek": ("GREEK ",),
           "Cyrillic": ("CYRILLIC ",), "Armenian": ("ARMENIAN ",), "Hebrew": ("HEBREW ",), "Arabic": ("ARABIC ",),
           "Devanagari": ("DEVANAGARI ",), "Bengali": ("BENGALI ",), "Thai": ("THAI ",), "Georgian": ("GEORGIAN ",),
           "Hangul": ("HANGUL ", "HALFWIDTH HANGUL "), "Hiragana": ("HIRAGANA ",),
           "Katakana": ("KATAKANA ", "HALFWIDTH KATAKANA "), "Han": ("CJK UNIFIED ", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL"),
           "Tamil": ("TAMIL ",), "Ethiopic": ("ETHIOPIC ",), "Khmer": ("KHMER ",), "Mongolian": ("MONGOLIAN ",)}


def ranges(key):
    out, start, last = [], 0, key(0)
    for cp in range(1, 0x110001):
        now = key(cp) if cp < 0x110000 else None
        if now != last:
            if last is not None:
                out.append((start, cp - 1, last))
            start, last = cp, now
    return out


def category(cp):
    c = unicodedata.category(chr(cp))
    return None if c == "Cn" else c


def script(cp):
    if unicodedata.category(chr(cp))[0] not in "LMN":
        return None
    name = unicodedata.name(chr(cp), "")
    for s, heads in SCRIPTS.items():
        if name.startswith(heads):
            return s
    return None


def table(out, name, rows, names):
    out.write("const by_gr_uni_range by_gr_uni_%s[] = {\n" % name)
    line = "   "
    for lo, hi, v in rows:
        item = " {0x%x, 0x%x, %d}," % (lo, hi, names.index(v))
        if len(line) + len(item) > 118:
            out.write(line + "\n")
            line = "   "
        line += item
    out.write(line + "\n};\nconst uint32_t by_gr_uni_%s_n = %d;\n" % (name, len(rows)))
    out.write("const char *const by_gr_uni_%s_names[] = {%s, 0};\n" % (name, ", ".join('"%s"' % n for n in names)))


def main():
    out = sys.stdout
    out.write("/* Written by tools/gen_grammar_unicode.py from Unicode %s; do not edit. */\n" % unicodedata.unidata_version)
    out.write('#include "grammar/grammar_unicode.h"\n\n')
    cats = ranges(category)
    table(out, "category", cats, sorted({c for _, _, c in cats}))
    table(out, "script", ranges(script), list(SCRIPTS))


main()
