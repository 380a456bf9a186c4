#!/usr/bin/env python3
"""Writes src/recipe/templates_data.c from src/recipe/templates/ (run from the root of the source tree).

Each template becomes a row of parts: text, a special token, or the slot ({{...}}) that the renderer fills."""
import os
import re

FOLDER = "src/recipe/templates"
SPECIALS = {
    "｜DSML｜": "BY_SPECIAL_DSML",
    "<think>": "BY_SPECIAL_THINKING_START",
    "</think>": "BY_SPECIAL_THINKING_END",
}
SPLIT = re.compile(r"(｜DSML｜|<think>|</think>|\{\{[A-Z_]+\}\})")


def c_string(text, width=92):
    out, line = [], ""
    for ch in text:
        esc = {"\n": "\\n", '"': '\\"', "\\": "\\\\", "\t": "\\t"}.get(ch, ch)
        line += esc
        if ch == "\n" or len(line) >= width:
            out.append('"%s"' % line)
            line = ""
    if line or not out:
        out.append('"%s"' % line)
    return "\n     ".join(out)


def parts(text):
    for piece in SPLIT.split(text):
        if piece == "":
            continue
        if piece.startswith("{{"):
            yield "{NULL, 0, BY_PART_SLOT}"
        elif piece in SPECIALS:
            yield "{NULL, 0, %s}" % SPECIALS[piece]
        else:
            yield "{%s,\n     %d, BY_PART_TEXT}" % (c_string(piece), len(piece.encode()))


names = sorted(f[:-4] for f in os.listdir(FOLDER) if f.endswith(".txt") and "example" not in f and f != "tool_result.txt")
with open("src/recipe/templates_data.c", "w", encoding="utf-8") as out:
    out.write("/* templates_data.c - written by tools/gen_recipe_templates.py from src/recipe/templates; do not edit.\n"
              " * The strings are those of deepseek-recipe 0.2.0, under the MIT licence: templates/LICENSE.deepseek-recipe. */\n"
              '#include "recipe/templates.h"\n\n')
    for name in names:
        rows = list(parts(open(f"{FOLDER}/{name}.txt", encoding="utf-8", newline="").read()))
        if rows:
            out.write(f"static const by_recipe_part {name}[] = {{\n" + "".join(f"    {r},\n" for r in rows) + "};\n\n")
    out.write("const by_recipe_template by_recipe_templates[BY_TEMPLATE_N] = {\n")
    for name in names:
        text = open(f"{FOLDER}/{name}.txt", encoding="utf-8", newline="").read()
        n = len(list(parts(text)))
        out.write(f'    [BY_TEMPLATE_{name.upper()}] = {{"{name}", {name if n else "NULL"}, {n}}},\n')
    out.write("};\n\n")
    text = open(f"{FOLDER}/apply_patch_tool.json", encoding="utf-8").read()
    out.write("const by_str by_recipe_apply_patch_json = {\n    " + c_string(text).replace("\n     ", "\n    ") +
              f",\n    {len(text.encode())}}};\n")
