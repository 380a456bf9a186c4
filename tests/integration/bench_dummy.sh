#!/bin/bash
# bench_dummy.sh PROGRAM SOURCE - `bench --dummy` and `--load-format dummy` read config.json alone: decode and prefill
# of the tiny configuration with made-up weights give finite times, experts are chosen, and wrong requests are refused.
# BY_TEST_TSAN=no: as bench.sh
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$2/models/tiny/config.json" "$work/"
timeout 100 "$program" bench --dummy -m "$work" --backend cpu --n-seqs 1,3 --n-depth 100 --steps 2 --n-prompt 40 >"$work/out" || exit 1
cat "$work/out"
[ "$(grep -c '^decode ' "$work/out")" = 2 ] && [ "$(grep -c '^prefill ' "$work/out")" = 1 ] || { echo "rows are missing"; exit 1; }
# columns: test, seqs, depth, ms, host ms, experts a layer, GB, floor ms, share of the floor, tokens/s
awk '$1 == "decode" && !($4 > 0 && $6 >= 4 && $6 <= 16 && $8 > 0 && $9 > 0 && $9 < 5 && $10 > 0) { print "odd row: " $0; bad = 1 }
  END { exit bad }' "$work/out" || exit 1
# balanced experts are shared less: four sequences of four choices among 16 hit 10.9 when each is as likely as the others
experts() { timeout 100 "$program" bench --dummy -m "$work" --backend cpu --n-seqs 4 --n-depth 100 --steps 1 "$@" | awk '$1 == "decode" { print $6 }'; }
before=$(experts) after=$(experts --balance 40)
awk "BEGIN { exit !($after > $before && $after > 10.2 && $after < 11.6) }" || { echo "balanced experts: $after, before $before"; exit 1; }
# the engine with made-up weights, and a number to time it by
timeout 60 "$program" bench engine --load-format dummy -m "$work" --backend cpu -s 2 -p 4 -n 3 -r 1 >"$work/engine" || exit 1
grep -q '^ *2 ' "$work/engine" || { cat "$work/engine"; exit 1; }
timeout 20 "$program" bench engine -m "$work" --backend cpu -s 2 >/dev/null 2>&1 && { echo "weights that are not there were opened"; exit 1; }
timeout 20 "$program" bench --dummy -m "$work" --n-seqs 0 >/dev/null 2>"$work/err" && { echo "0 sequences were accepted"; exit 1; }
grep -q "sequences" "$work/err" || { cat "$work/err"; exit 1; }
timeout 20 "$program" bench --dummy -m "$work/nowhere" >/dev/null 2>&1 && { echo "a missing folder was accepted"; exit 1; }
exit 0
