#!/bin/bash
# capi.sh PROGRAM SOURCE - the C API from the outside: the example streams and cancels, its public header is plain C and C++, and
# the shared library shows nothing but bathyc_ names.
set -u
B=$1 SRC=$2
dir=$(dirname "$B")
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAIL: $*"; failed=1; }
[ -x "$dir/examples/engine_stream" ] || { echo "the example is not built"; exit 77; }

"$dir/examples/engine_stream" "$SRC/models/tiny" "The cat" "Once upon" >"$tmp/out" 2>"$tmp/err" || fail "exit code $?: $(cat "$tmp/err")"
grep -qx '\[1\] -- length after 8 tokens' "$tmp/out" || fail "the first request did not run to its length"
grep -qx '\[2\] -- cancelled after [0-9]* tokens' "$tmp/out" || fail "the second request was not cancelled"
n=$(sed -n 's/^\[2\] -- cancelled after \([0-9]*\) tokens/\1/p' "$tmp/out")
[ "${n:-9999}" -lt 4000 ] || fail "the second request ran to its end"
# The texts of the first one, joined, are what the program says.
got=$(sed -n 's/^\[1\] \(.*\)/\1/p' "$tmp/out" | grep -v '^-- ' | tr -d '\n')
printf '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"tiny","prompt":"The cat","max_tokens":8,"temperature":0,"ignore_eos":true}}\n' |
    "$B" batch -i - -o - >"$tmp/row" 2>/dev/null || fail "batch: exit code $?"
want=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$tmp/row")
[ -n "$got" ] && [ "$got" = "$want" ] || fail "the example says '$got', the program '$want'"
"$dir/examples/engine_stream" "$tmp/nothing" a b >/dev/null 2>"$tmp/err"
[ $? = 1 ] && grep -q 'nothing' "$tmp/err" || fail "a missing model is not named"

if command -v nm >/dev/null && [ -e "$dir/libbathyc.so" ]; then
    others=$(nm -D --defined-only "$dir/libbathyc.so" | awk '{print $3}' | grep -v '^bathyc_' | grep -v '^_' | head -3)
    [ -z "$others" ] || fail "libbathyc.so shows $others"
fi
for compiler in cc c++; do
    command -v $compiler >/dev/null || continue
    lang=c; [ $compiler = c++ ] && lang=c++
    printf '#include "bathyc/engine.h"\nint main(void) { return 0; }\n' | $compiler -Wall -Wextra -Werror -pedantic -I"$SRC/include" -x $lang -c -o /dev/null - ||
        fail "bathyc/engine.h is not plain $lang"
done
exit $failed
