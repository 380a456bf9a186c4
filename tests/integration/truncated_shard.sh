#!/bin/bash
# truncated_shard.sh PROGRAM SOURCE - a shard that someone truncates while it is in use ends the program with code 1 and an error
# that names the file, with one thread (the fault is in main) and with two.
# BY_TEST_TIMEOUT=240
set -u
bathyc=$1 source=$2
unset BATHYC_MODEL
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

for threads in 1 2; do
    cp -r "$source/models/tiny" "$tmp/model$threads"
    shard=$(ls "$tmp/model$threads"/*.safetensors | head -1)
    mkfifo "$tmp/in$threads"
    timeout 100 "$bathyc" chat -m "$tmp/model$threads" -t $threads --temp 0 --max-tokens 8 <"$tmp/in$threads" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    exec 3>"$tmp/in$threads"
    echo "Hello" >&3
    for _ in $(seq 600); do
        grep -q '\[thinking\]' "$tmp/out" && break
        sleep 0.1
    done
    grep -q '\[thinking\]' "$tmp/out" || fail "$threads threads: no answer before: $(head -3 "$tmp/err")"
    truncate -s 4096 "$shard"
    echo "Hello again" >&3
    wait $pid
    code=$?
    exec 3>&-
    [ $code = 1 ] || fail "$threads threads: exit $code instead of 1"
    grep -qF "bathyc: $shard: the file was truncated" "$tmp/err" || fail "$threads threads: $(head -3 "$tmp/err")"
done

[ "$failures" = 0 ] && echo "truncated_shard: all checks passed"
exit $((failures > 0))
