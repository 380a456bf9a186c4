#!/bin/bash
# bench.sh PROGRAM SOURCE - `bathyc bench` and `bathyc bench kernels`: the JSON keeps its schemas, its figures agree with each
# other, tables name the same things, wrong usage exits 2. Nothing here depends on how fast the machine is. BY_TEST_TIMEOUT=240
# BY_TEST_TSAN=no: half a gigabyte, read to measure the memory, is eight times that with its shadow
set -u
. "$2/tests/support/shell.sh"
need_python

# the model
expect_exit 0 "$program" bench --json -p 20,7 -n 3 -d 5 -r 2 --no-limits
schema bench
is '[(x["test"], x["n_prompt"], x["n_gen"]) for x in r]' "[('prefill', 20, 0), ('prefill', 7, 0), ('decode', 5, 3)]"
is 'd["read_gb_s"] == 0' True
is 'all(x["read_share"] is None and x["tokens_per_s"] > 0 and x["best_s"] > 0 for x in r)' True
expect_exit 0 "$program" bench model --json -p 0 -n 2 -r 1 -t 1 --numerics exact
schema bench
is 'd["threads"], d["numerics"], d["read_gb_s"] > 0' "(1, 'exact', True)"
is 'abs(r[0]["read_share"] * d["read_gb_s"] / r[0]["weight_gb_s"] - 1) < 1e-9' True
expect_exit 0 "$program" bench -p 8 -n 0 -r 1 --no-limits
says out "prefill"
expect_exit 2 "$program" bench -p 8,x
expect_exit 2 "$program" bench -r 0
expect_exit 2 "$program" bench kernel
says err "did you mean 'kernels'"

# single operators; one thread: the bandwidth probe is the largest part of the time
expect_exit 0 "$program" bench kernels --json -t 1 --rows 1,3 --seconds 0.01 --weights-mb 16 --only rmsnorm
schema bench_kernels
is '[x["rows"] for x in r], d["threads"], d["read_gb_s"] > 0' '([1, 3], 1, True)'
is 'all(x["floor_s"] > 0 for x in r) if d["peaks"] else all(x["floor_s"] is None for x in r)' True
for op in matmul moe router attention index_ window_kv rope hc_ act8 engram_gate; do
    only=$op
    [ $op = matmul ] && only="indexer w"
    [ $op = moe ] && only="expert w2" # all experts take too long under sanitizers
    expect_exit 0 "$program" bench kernels --json --rows 2 --seconds 0.001 --weights-mb 16 --only "$only" --no-limits
    schema bench_kernels
    is 'all(abs(x["gb_s"] * x["best_s"] * 1e9 / x["bytes"] - 1) < 1e-9 and x["bytes"] > x["weight_bytes"] for x in r)' True
done
expect_exit 0 "$program" bench kernels --backend ref --rows 1 --seconds 0.001 --weights-mb 16 --only rope --no-limits
says out "64 heads"
expect_exit 2 "$program" bench kernels --only "no such" --no-limits
says err "no such"
expect_exit 2 "$program" bench kernels --rows 0

finish bench
