# shell.sh - what the scripts of tests/integration share. To be sourced: . "$2/tests/support/shell.sh"
#
# $program, $source: the script's arguments. $tmp: a folder of its own, removed at the end. $slowness: how much longer than in a
# release build things may take. A script ends with `finish NAME`.
# shellcheck shell=bash disable=SC2034 # variables are the scripts'
program=$1 source=$2
unset BATHYC_MODEL
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0
slowness=1
grep -qE '__(asan|tsan)_init' "$program" && slowness=10

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

finish() {
    [ "$failures" = 0 ] && echo "$1: all checks passed"
    exit $((failures > 0))
}

# need_python: the whole test is skipped without it
need_python() { command -v python3 >/dev/null || { echo "no python3"; exit 77; }; }

# expect_exit CODE COMMAND...: output in $tmp/out and $tmp/err
expect_exit() {
    local want=$1 got
    shift
    "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ "$got" = "$want" ] || fail "exit $got instead of $want: $*: $(head -3 "$tmp/err")"
}

# says out|err TEXT: the last expect_exit's output has it
says() { grep -qF -- "$2" "$tmp/$1" || fail "'$2' is not in $1: $(head -5 "$tmp/$1")"; }

# is EXPRESSION WANT: a Python expression about d, the JSON in $tmp/out, and r, its "results"
is() {
    local got
    got=$(python3 - "$tmp/out" "$1" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
print(eval(sys.argv[2], {"d": d, "r": d.get("results") if isinstance(d, dict) else None}))
PY
    )
    [ "$got" = "$2" ] || fail "$1 is $got instead of $2"
}

# schema NAME: $tmp/out follows tests/integration/NAME.schema.json
schema() {
    python3 "$source/tests/integration/check_schema.py" "$source/tests/integration/$1.schema.json" <"$tmp/out" || fail "schema $1"
}

# check WHAT WANT GOT: equal texts; has WHAT PART GOT: the text has the part
check() { [ "$2" = "$3" ] || fail "$(printf '%s:\n got  %s\n want %s' "$1" "$3" "$2")"; }
has() { grep -qF -- "$2" <<<"$3" || fail "$(printf '%s: no %s in\n%s' "$1" "$2" "$3")"; }
