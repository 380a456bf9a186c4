#!/usr/bin/env python3
"""Writes src/grammar/grammar_idna_table.c: what IDNA 2008 asks about the code points that a label may hold (RFC 5892, 5893), and
the canonical compositions among them. Classes, joining types and scripts come from PyPI's idna, the rest from Python's unicodedata;
a code point that either does not know is left out.
   gen_grammar_idna.py > src/grammar/grammar_idna_table.c"""
import sys
import unicodedata

from idna import idnadata
from idna.intranges import intranges_contain

BIDI = {"L": "L", "R": "R", "AL": "R", "AN": "AN", "EN": "EN", "NSM": "NSM"}  # the others are one class


def has(ranges, cp):
    return intranges_contain(cp, ranges)


def joining(cp):
    for t in "LRDT":
        if has(idnadata.joining_types[t], cp):
            return t
    return "U"


def script(cp):
    for name in ("Greek", "Hebrew"):
        if has(idnadata.scripts[name], cp):
            return name.upper()
    return "KANA_HAN" if any(has(idnadata.scripts[s], cp) for s in ("Hiragana", "Katakana", "Han")) else "OTHER"


def rule(cp):
    for name in ("PVALID", "CONTEXTJ", "CONTEXTO"):
        if has(idnadata.codepoint_classes[name], cp):
            return name
    return None


def canonical(cp):
    """The two code points of a canonical decomposition, or None."""
    d = unicodedata.decomposition(chr(cp)).split()
    return tuple(int(x, 16) for x in d) if len(d) == 2 and not d[0].startswith("<") else None


def compositions(allowed):
    """(first, second, composed) of all that can meet in a label once it is decomposed."""
    pairs = [(d, cp) for cp in range(0x110000) if (d := canonical(cp)) and unicodedata.normalize("NFC", chr(cp)) == chr(cp)]
    known, grown = set(allowed), True
    while grown:
        grown = False
        for (a, b), cp in pairs:
            if cp in known and not (a in known and b in known):
                known |= {a, b}
                grown = True
            if a in known and b in known and cp not in known:
                known.add(cp)
                grown = True
    return sorted((a, b, cp) for (a, b), cp in pairs if a in known and b in known)


def wrap(out, items):
    line = "   "
    for item in items:
        if len(line) + len(item) + 1 > 118:
            out.write(line + "\n")
            line = "   "
        line += " " + item
    out.write(line + "\n};\n")


def main():
    out = sys.stdout
    allowed = [cp for cp in range(0x110000) if rule(cp) and unicodedata.category(chr(cp)) != "Cn"]
    pairs = compositions(allowed)
    seconds = {b for _, b, _ in pairs}
    rows, kinds = [], []
    for cp in allowed:
        kind = (rule(cp), int(unicodedata.category(chr(cp))[0] == "M"), BIDI.get(unicodedata.bidirectional(chr(cp)), "NEUTRAL"), joining(cp), script(cp),
                unicodedata.combining(chr(cp)), int(cp in seconds))
        if kind not in kinds:
            kinds.append(kind)
        k = kinds.index(kind)
        if rows and rows[-1][1] == cp - 1 and rows[-1][2] == k:
            rows[-1][1] = cp
        else:
            rows.append([cp, cp, k])
    assert len(kinds) < 256
    out.write("/* Written by tools/gen_grammar_idna.py from Unicode %s; do not edit. */\n" % unicodedata.unidata_version)
    out.write('#include "grammar/grammar_idna.h"\n\n')
    out.write("const by_gr_idna_kind by_gr_idna_kinds[] = {\n")
    wrap(out, ["{BY_GR_IDNA_%s, %d, BY_GR_BIDI_%s, '%s', BY_GR_SCRIPT_%s, %d, %d}," % k for k in kinds])
    out.write("const by_gr_idna_range by_gr_idna_ranges[] = {\n")
    wrap(out, ["{0x%x, 0x%x, %d}," % tuple(r) for r in rows])
    out.write("const uint32_t by_gr_idna_n = %d;\n" % len(rows))
    out.write("const by_gr_idna_pair by_gr_idna_pairs[] = {\n")
    wrap(out, ["{0x%x, 0x%x, 0x%x}," % p for p in pairs])
    out.write("const uint32_t by_gr_idna_pairs_n = %d;\n" % len(pairs))
    out.write("const uint16_t by_gr_idna_by_composed[] = {\n")
    wrap(out, ["%d," % i for i in sorted(range(len(pairs)), key=lambda i: pairs[i][2])])


main()
