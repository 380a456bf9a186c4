#!/usr/bin/env python3
"""Checks who includes whom.

CMakeLists.txt lists the modules of src/, lowest first, each with its DEPS. This script fails when
  - a file of a module includes a header of a module that is not in its DEPS,
  - DEPS allow more than the table below (the architecture's levels), name a later module, or an unknown one,
  - an included header does not exist, or two files of src/ share a name,
  - a public header of include/bathyc includes anything of ours outside include/bathyc.
Run: tools/check_deps.py [ROOT]. Standard library only."""
import re
import sys
from collections import defaultdict
from pathlib import Path

# What each module may include at most. cli may include everything.
LEVELS = {
    "base": "",
    "json": "base",
    "media": "base",
    "tok": "base json",
    "recipe": "base json tok media",
    "grammar": "base json tok",
    "api": "base json recipe",
    "ops": "base",
    "comm": "base ops",
    "kv": "base ops",
    "model": "base json tok media ops comm kv",
    "sample": "base ops",
    "sched": "base kv",
    "engine": "base json media tok recipe grammar ops comm kv model sample sched",
    "service": "base json tok sample model recipe grammar api engine",
    "capi": "base tok sample model grammar engine",
    "capi_recipe": "base json tok recipe api",
    "http": "base json tok api recipe engine service",
}
SOURCES = (".c", ".h", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def read_modules(root):
    """[(name, deps)] in the order of CMakeLists.txt."""
    text = re.sub(r"#.*", "", (root / "CMakeLists.txt").read_text())
    out = []
    for call in re.findall(r"\bby_module\(([^)]*)\)", text):
        words = call.split()
        deps, key = [], None
        for w in words[1:]:
            if w in ("DEPS", "SUBDIRS", "MAIN"):
                key = w
            elif key == "DEPS":
                deps.append(w)
        out.append((words[0], deps))
    return out


def check_table(modules):
    seen = set()
    for name, deps in modules:
        allowed = None if name == "cli" else LEVELS.get(name)
        if name != "cli" and allowed is None:
            yield f"CMakeLists.txt: module {name} is not in the table of tools/check_deps.py"
            allowed = ""
        for d in deps:
            if d not in seen:
                yield f"CMakeLists.txt: {name} depends on {d}, which is not listed before it"
            if allowed is not None and d not in allowed.split():
                yield f"CMakeLists.txt: {name} may not depend on {d}"
        seen.add(name)


def check_file(root, path, module, deps):
    text = path.read_text(errors="replace")
    rel = path.relative_to(root)
    for header in INCLUDE.findall(text):
        line = text[: text.find(f'"{header}"')].count("\n") + 1
        target = header.split("/")[0]
        if not any((base / header).is_file() for base in (root / "src", root / "include", path.parent)):
            yield f'{rel}:{line}: "{header}" does not exist'
        elif "/" not in header:
            yield f'{rel}:{line}: "{header}": write the module in front'
        elif target not in (module, "bathyc", *deps):
            yield f'{rel}:{line}: {module} includes "{header}", but CMakeLists.txt does not list {target}'


def main(root):
    modules = read_modules(root)
    problems = list(check_table(modules))
    listed = {name for name, _ in modules}
    names = defaultdict(list)
    n_files = 0
    for path in sorted(p for top in ("src", "include") for p in (root / top).rglob("*") if p.suffix in SOURCES):
        rel = path.relative_to(root)
        if rel.parts[0] != "include":  # a public header is found by its folder
            names[path.name].append(str(rel))
        n_files += 1
        if rel.parts[0] == "include":
            problems += check_file(root, path, "bathyc", [])
            continue
        module = rel.parts[1]
        if module not in listed:
            problems.append(f"{rel}: CMakeLists.txt has no module {module}")
            continue
        problems += check_file(root, path, module, dict(modules)[module])
    problems += [f"{' and '.join(paths)} share a name" for paths in names.values() if len(paths) > 1]
    for p in problems:
        print(p)
    if n_files == 0:
        print(f"no sources below {root}")
        return 1
    print(f"check_deps: {n_files} files, {len(modules)} modules, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)))
