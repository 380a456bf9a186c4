#!/bin/bash
# simulate.sh PROGRAM SOURCE - `bathyc calibrate` and `bathyc simulate dspark` on recorded drafts: what the first prints the second
# takes, everything is checked before the first replay, and bad data exit 1 where wrong usage exits 2.
set -u
. "$2/tests/support/shell.sh"
need_python

python3 - >"$tmp/traces" <<'PY'
import json, random
random.seed(7)
for a in range(4):
    rows = []
    for _ in range(30):
        right = random.choice([0, 1, 2, 2])
        rows.append({"raw": [random.uniform(0, 3) if right > k else random.uniform(-2, 1) for k in range(2)], "accepted": right})
    print(json.dumps({"id": str(a), "positions": rows}))
PY
echo '{"curve": [[1, 1], [4, 1.2], [12, 2]]}' >"$tmp/curve"
simulate() { "$program" simulate dspark --traces "$tmp/traces" --curve "$tmp/curve" --steps 50 "$@"; }

expect_exit 0 "$program" calibrate --traces "$tmp/traces"
temperatures=$(sed -n 's/^--draft-conf-temp //p' "$tmp/out")
expect_exit 0 simulate -s 1,4 --json --draft-conf-temp "$temperatures"
is '[(x["sequences"], x["mode"]) for x in d]' "[(1, 'off'), (1, 'fixed'), (1, 'confidence'), (4, 'off'), (4, 'fixed'), (4, 'confidence')]"
is '[x["tokens_per_step"] for x in d if x["mode"] == "off"], d[1]["verified_per_step"]' '([1.0, 1.0], 2.0)'
cp "$tmp/out" "$tmp/fitted"
expect_exit 0 simulate -s 1,4 --json --draft-conf-temp 1000,1000
cmp -s "$tmp/out" "$tmp/fitted" && fail "temperatures change nothing"
expect_exit 2 simulate --draft-conf-temp 1,x
says err "--draft-conf-temp: '1,x' is not a list"

# what is above a threshold; with steps of captured sizes the next size is paid; drafts behind a drafted end are void
expect_exit 0 simulate -s 2 --json --threshold 0.2,0.9
is '[x["mode"] for x in d[3:]], d[1]["verified_per_step"] > d[3]["verified_per_step"] > d[4]["verified_per_step"]' "(['> 0.2', '> 0.9'], True)"
expect_exit 0 simulate -s 1 --json --padded
is 'd[1]["tokens_per_s"] < 1000 * d[1]["tokens_per_step"] / 1.19' True
echo '{"positions": [{"raw": [5, 5], "accepted": 1, "n": 1}]}' >"$tmp/ended"
expect_exit 0 "$program" simulate dspark --traces "$tmp/ended" --curve "$tmp/curve" --steps 50 -s 1 --json --threshold 0.1
is '[x["verified_per_step"] for x in d], [x["tokens_per_step"] for x in d]' '([0.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])'
echo '{"positions": [{"raw": [5, 5], "accepted": 2, "n": 1}]}' >"$tmp/bad"
expect_exit 1 "$program" simulate dspark --traces "$tmp/bad" --curve "$tmp/curve"
says err "accepted: not in 0..1"

# the longest plan that is asked for is compared with the curve before anything is replayed
expect_exit 1 simulate -s 1,5
says err "$tmp/curve: the curve ends at 12 rows; 5 sequences with 2 drafts each need 15"
[ -s "$tmp/out" ] && fail "a table was begun: $(cat "$tmp/out")"
expect_exit 2 simulate -s 0
says err "--sequences: 0 is outside 1.."

# bad data: the file and the place are named
echo '{"curve": [[1, 1], [4, -1]]}' >"$tmp/bad"
expect_exit 1 "$program" simulate dspark --traces "$tmp/traces" --curve "$tmp/bad"
says err "$tmp/bad: cost curve, point 1"
echo 'nothing' >"$tmp/bad"
expect_exit 1 "$program" simulate dspark --traces "$tmp/traces" --curve "$tmp/bad"
says err "$tmp/bad: line 1"
expect_exit 1 "$program" simulate dspark --traces "$tmp/bad" --curve "$tmp/curve"
says err "$tmp/bad, line 1"
printf '{"positions": [{"raw": [1], "accepted": 1}]}\n{"positions": [{"raw": [1, 2], "accepted": 1}]}\n' >"$tmp/bad"
expect_exit 1 "$program" calibrate --traces "$tmp/bad"
says err "$tmp/bad, line 2"
printf '\n{"id": "a", "tokens": [-1]}\n' >"$tmp/bad"
expect_exit 1 "$program" calibrate -i "$tmp/bad"
says err "line 2: "
expect_exit 2 "$program" simulate
expect_exit 2 "$program" simulate dspark --traces "$tmp/traces"
says err "--traces and --curve are needed"

finish simulate
