#!/bin/bash
# bench.sh PROGRAM SOURCE - `bathyc bench` and `bathyc bench kernels`: the JSON keeps its schemas, its figures agree with each
# BY_TEST_TIMEOUT=240
# other, tables name the same things, wrong usage exits 2. Nothing here depends on how fast the machine is.
set -u
bathyc=$1 source=$2
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
unset BATHYC_MODEL
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
# expect_exit CODE command...: output in $tmp/out and $tmp/err
expect_exit() {
    local want=$1 got
    shift
    timeout 100 "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ "$got" = "$want" ] || fail "exit $got instead of $want: $*: $(head -3 "$tmp/err")"
}
says() { grep -qF -- "$2" "$tmp/$1" || fail "'$2' is not in $1: $(head -5 "$tmp/$1")"; }
is() {
    local got
    got=$(python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2], {"d": d, "r": d["results"], "len": len, "all": all, "abs": abs, "set": set, "sorted": sorted}))' "$tmp/out" "$1")
    [ "$got" = "$2" ] || fail "$1 is $got instead of $2"
}
schema() {
    python3 "$source/tests/integration/check_schema.py" "$source/tests/integration/$1.schema.json" <"$tmp/out" || fail "$1: schema"
}

# the model
expect_exit 0 "$bathyc" bench --json -p 20,7 -n 3 -d 5 -r 2 --no-limits
schema bench
is '[(x["test"], x["n_prompt"], x["n_gen"]) for x in r]' "[('prefill', 20, 0), ('prefill', 7, 0), ('decode', 5, 3)]"
is 'd["read_gb_s"] == 0' True
is 'all(x["read_share"] is None and x["tokens_per_s"] > 0 and x["best_s"] > 0 for x in r)' True
expect_exit 0 "$bathyc" bench model --json -p 0 -n 2 -r 1 -t 1 --numerics exact
schema bench
is 'd["threads"], d["numerics"], d["read_gb_s"] > 0' "(1, 'exact', True)"
is 'abs(r[0]["read_share"] * d["read_gb_s"] / r[0]["weight_gb_s"] - 1) < 1e-9' True
expect_exit 0 "$bathyc" bench -p 8 -n 0 -r 1 --no-limits
says out "prefill"
expect_exit 2 "$bathyc" bench -p 8,x
expect_exit 2 "$bathyc" bench -r 0
expect_exit 2 "$bathyc" bench kernel
says err "did you mean 'kernels'"

# single operators; one thread: the bandwidth probe is the largest part of the time
expect_exit 0 "$bathyc" bench kernels --json -t 1 --rows 1,3 --seconds 0.01 --weights-mb 16 --only rmsnorm
schema bench_kernels
is '[x["rows"] for x in r], d["threads"], d["read_gb_s"] > 0' '([1, 3], 1, True)'
is 'all(x["floor_s"] > 0 for x in r) if d["peaks"] else all(x["floor_s"] is None for x in r)' True
for op in matmul moe router attention index_ window_kv rope hc_ act8 engram_gate; do
    only=$op
    [ $op = matmul ] && only="indexer w"
    [ $op = moe ] && only="expert w2" # all experts take too long under sanitizers
    expect_exit 0 "$bathyc" bench kernels --json --rows 2 --seconds 0.001 --weights-mb 16 --only "$only" --no-limits
    schema bench_kernels
    is 'all(abs(x["gb_s"] * x["best_s"] * 1e9 / x["bytes"] - 1) < 1e-9 and x["bytes"] > x["weight_bytes"] for x in r)' True
done
expect_exit 0 "$bathyc" bench kernels --backend ref --rows 1 --seconds 0.001 --weights-mb 16 --only rope --no-limits
says out "64 heads"
expect_exit 2 "$bathyc" bench kernels --only "no such" --no-limits
says err "no such"
expect_exit 2 "$bathyc" bench kernels --rows 0

[ "$failures" = 0 ] && echo "bench: all checks passed"
exit $((failures > 0))
