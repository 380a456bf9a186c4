#!/bin/bash
# The checks of tools/ on a small tree: clean it passes, and each planted fault is found by its line.
# Arguments: program (not used), source folder. BY_TEST_TSAN=no: only Python
set -u
src=$2
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail=0

fresh() {
    rm -rf "$dir/tree"
    mkdir -p "$dir/tree/src/base" "$dir/tree/src/json" "$dir/tree/src/cli" "$dir/tree/tests"
    printf 'by_module(base)\nby_module(json DEPS base)\nby_module(cli DEPS base json MAIN x)\n' >"$dir/tree/CMakeLists.txt"
    printf '/* a.h - x. */\n#ifndef BY_BASE_A_H\n#define BY_BASE_A_H\n/* Does. */\nint by_a_do(void);\n#endif\n' >"$dir/tree/src/base/a.h"
    printf '/* j.c - x. */\n#include "base/a.h"\nint by_j(void) { return by_a_do(); }\n' >"$dir/tree/src/json/j.c"
}

# expect CHECK STATUS PATTERN
expect() {
    out=$(python3 "$src/tools/check_$1.py" "$dir/tree")
    rc=$?
    if [ $rc -ne "$2" ] || ! grep -q -- "$3" <<<"$out"; then
        echo "check_$1: status $rc, want $2 with \"$3\":"
        echo "$out"
        fail=1
    fi
}

# plant CHECK FILE TEXT PATTERN: appends TEXT to FILE of a fresh tree
plant() {
    fresh
    mkdir -p "$(dirname "$dir/tree/$2")"
    printf '%b' "$3" >>"$dir/tree/$2"
    expect "$1" 1 "$4"
}

fresh
expect deps 0 "2 files, 3 modules, 0 problems"
expect style 0 "2 files, 0 problems"
plant deps src/base/a.h '#include "json/j.h"\n' 'a.h:7: "json/j.h" does not exist'
plant deps src/base/b.c '#include "cli/c.h"\n' 'does not exist'
fresh
echo '/* k.h */' >"$dir/tree/src/json/k.h"
echo '#include "json/k.h"' >>"$dir/tree/src/base/a.h"
expect deps 1 'a.h:7: base includes "json/k.h"'
plant deps src/cli/a.h '/* twin */' 'share a name'
plant deps src/new/n.c '/* n */' 'no module new'
plant deps CMakeLists.txt 'by_module(ops DEPS base json)\n' 'ops may not depend on json'
plant deps CMakeLists.txt 'by_module(odd)\n' 'module odd is not in the table'
plant style src/json/j.c 'void by_k(char *a) { strcpy(a, "x"); }\n' 'j.c:4: strcpy is banned'
plant style src/json/j.c 'void *by_k(void) { return malloc(1); }\n' 'malloc belongs to src/base'
plant style src/json/j.c 'void by_k(void) { printf("x"); }\n' 'only src/cli prints'
fresh
printf '/* printf("x") and strcpy(a, b) in words */\n' >>"$dir/tree/src/json/j.c"
expect style 0 '0 problems'
plant style src/json/j.c "/* $(printf 'x%.0s' $(seq 200)) */\n" 'columns'
plant style src/json/j.c '\tint x;\n' 'j.c:4: tab'
plant style src/json/j.c 'int by_x;  \n' 'trailing blanks'
plant style src/json/j.c '/* TO''DO later */\n' 'without an issue number'
plant style src/json/j.c "int by_long(void) {\n$(printf '    by_j();\\n%.0s' $(seq 80))}\n" 'by_long has 8[0-9] lines'
plant style src/json/k.h '/* k.h - x. */\nint by_k(void);\n' 'header guard'
plant style src/json/k.h '/* k.h - x. */\n#ifndef BY_K\n#define BY_K\n\nint by_k(void);\n#endif\n' 'by_k has no comment'
plant style src/json/k.h '' 'a first comment'
[ $fail -eq 0 ] && echo "check_tools: ok"
exit $fail
