#!/bin/bash
# batch.sh PROGRAM SOURCE - `bathyc batch`: what it counts and how it exits follow the requests it was given, not all rows of the file.
# BY_TEST_TSAN=no: it opens models some fifty times, which takes minutes there; prop_batch runs the same command
set -u
. "$2/tests/support/shell.sh"

row() { # ID MODEL
    printf '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {"model": "%s", "prompt": [5, 9], "max_tokens": 1}}\n' "$1" "$2"
}
{ row a DeepSeek-V4.1-Flash; row b nobody; } >"$tmp/first"
{ row a DeepSeek-V4.1-Flash; row c DeepSeek-V4.1-Flash; } >"$tmp/second"
batch() { "$program" batch -i "$1" -o "$tmp/results" --max-num-seqs 4; }

expect_exit 1 batch "$tmp/first"
says err "1 of 2 requests failed"
expect_exit 0 batch "$tmp/second" # a is there, c is new; b was not asked about
grep -q failed "$tmp/err" && fail "failures of others: $(cat "$tmp/err")"
check rows 3 "$(wc -l <"$tmp/results")"
expect_exit 1 batch "$tmp/first" # nothing new, and b has still failed
says err "1 of 2 requests failed"
check rows 3 "$(wc -l <"$tmp/results")"
expect_exit 1 "$program" batch -i "$tmp/first" -o -
says err '"status_code" in standard output'
printf 'not a request\n' >>"$tmp/second"
expect_exit 1 batch "$tmp/second"
says err "1 of 3 requests failed"
expect_exit 1 batch "$tmp/second"
says err "1 of 3 requests failed"
check rows 4 "$(wc -l <"$tmp/results")"
grep -v nobody "$tmp/results" | grep -v '"custom_id":"b"' >"$tmp/kept" && cp "$tmp/kept" "$tmp/results" # b may be tried again
row b DeepSeek-V4.1-Flash >"$tmp/first"
expect_exit 0 batch "$tmp/first"

# What editors and spreadsheets make of lines: a byte order mark, \r\n, lines with nothing on them. Lines that are no requests cost
# themselves only: not UTF-8, cut JSON, longer than any request may be (32 MiB), the same custom_id again.
one() { printf '{"custom_id": "%s", "tokens": [5, 9], "max_tokens": 1}' "$1"; }
{
    printf '\357\273\277'; one bom; printf '\r\n\r\n  \t\n'
    printf '{"custom_id": "\377"}\n{"custom_id": "cut", \n'
    printf '{"custom_id": "'; head -c 34000000 /dev/zero | tr '\0' x; printf '", "tokens": [5]}\n'
    one bom; printf '\n'; one last
} >"$tmp/odd"
expect_exit 1 "$program" batch -i "$tmp/odd" -o "$tmp/oddly" --max-num-seqs 4
says err "4 of 6 requests failed"
said() { grep -o "\"id\":\"batch_req_$1\".*" "$tmp/oddly" | grep -o "\"$2\":\"[^\"]*\"" | cut -d'"' -f4; }
check "first line" bom "$(said 1 custom_id)"
check "line that is no text" "line 4 column 16: not valid UTF-8" "$(said 4 message)"
check "line that is cut" "line 5 column 21: expected a string as object key" "$(said 5 message)"
check "line that is too long" "the line is too long" "$(said 6 message)"
check "the same again" "duplicate_custom_id" "$(said 7 code)"
check "last line" last "$(said 8 custom_id)"
check "rows of odd lines" 6 "$(wc -l <"$tmp/oddly")"
expect_exit 1 "$program" batch -i "$tmp/odd" -o "$tmp/oddly" --max-num-seqs 4
check "rows the second time" 6 "$(wc -l <"$tmp/oddly")"
rm "$tmp/odd"

# A line of figures behind every step that was asked for: a prompt, then 5 steps of one token each, one step late at most.
printf '{"custom_id": "s", "tokens": [5, 9, 7], "max_tokens": 6, "temperature": 0, "ignore_eos": true}\n' >"$tmp/steps"
expect_exit 0 "$program" batch -i "$tmp/steps" -o "$tmp/stepped" --max-num-seqs 4 --draft-tokens 0 --log-steps 2
check "lines of steps" 3 "$(grep -c '^bathyc: step=[246] steps/s=[0-9.]* mean_steps/s=.* running=[01] pending=0 chunked=0 ' "$tmp/err")"
says err "ttft_max="
says err "finished=1 preempted=0 aborted=0 failed=0"
expect_exit 0 "$program" batch -i "$tmp/steps" -o "$tmp/quiet" --max-num-seqs 4
grep -q step= "$tmp/err" && fail "figures that nobody asked for: $(cat "$tmp/err")"

# top_k of the program: what a request draws at a high temperature is then the likeliest token each time
ids() { # TEMPERATURE [flags]: the tokens of one request
    printf '{"custom_id": "k", "tokens": [5, 9, 7], "max_tokens": 24, "temperature": %s, "seed": 3, "ignore_eos": true}\n' "$1" >"$tmp/ids"
    shift
    rm -f "$tmp/drawn"
    expect_exit 0 "$program" batch -i "$tmp/ids" -o "$tmp/drawn" --max-num-seqs 4 "$@"
    grep -o '"tokens":\[[0-9,]*\]' "$tmp/drawn"
}
likeliest=$(ids 0)
[ -n "$likeliest" ] || fail "no tokens: $(cat "$tmp/drawn")"
[ "$likeliest" != "$(ids 2)" ] || fail "a temperature of 2 draws as 0 does"
check "tokens of --sampler-topk 1" "$likeliest" "$(ids 2 --sampler-topk 1)"
check "tokens with other rules of prompts" "$likeliest" \
    "$(ids 0 --prefill-policy interval --prefill-all-interval 3 --prefill-any-interval 2 --prefill-max-ctx-sum 2)"

# what --stats says of steps: a prompt of 3 tokens, then 23 steps
ids 0 --draft-tokens 0 --stats >/dev/null
says err "steps: 24, "
says err "rows of a step         mean     1.083  median <= 1  90% <= 1  99% <= 5 rows"
says err "prompt rows of a step  mean     3.000  median <= 5  90% <= 5  99% <= 5 rows"
says err "tiers: 0 tokens found with their windows in host memory, 0 in blocks alone; copied MB: swap_out 0.0,"
says err "; rows x context 354" # 3 rows of a prompt of 3, then a row at each length from 4 to 26
says err "evictions: 0 findable blocks; 0 snapshots for newer ones, 0 for swaps; 0 sequences with slow readers, 0 for memory"

# Flags for parts that are not there say so, and those that say the same thing must not say the opposite.
refuses() { # WORDS FLAGS...
    words=$1
    shift
    expect_exit 2 "$program" batch -i "$tmp/first" -o "$tmp/refused" "$@"
    says err "$words"
}
refuses "has no --eplb-window: experts stay where --gpu-memory puts them" --eplb-window 100
refuses "has no --comm-sms: one process runs the whole model" --comm-sms=3
refuses "has no --graph-step: draft calls are not recorded" --graph-step 16
refuses "unknown flag '--no-graph'" --no-graph
refuses "--draft-mode and --no-draft-varlen say the opposite" --draft-mode confidence --no-draft-varlen
ids 0 --no-draft-varlen --stats >/dev/null
fixed=$(grep '^drafts: ' "$tmp/err" | cut -d, -f1)
[ -n "$fixed" ] || fail "no drafts: $(cat "$tmp/err")"
ids 0 --draft-mode fixed --stats >/dev/null
says err "$fixed"
refuses "--draft-mode and --no-draft-varlen say the opposite" --draft-mode auto --no-draft-varlen
refuses "--draft-mode and --draft-varlen say the opposite" --draft-varlen --draft-mode fixed
ids 0 --draft-varlen --stats >/dev/null # always drafts, which auto would not promise
grep -q '^drafts: [1-9]' "$tmp/err" || fail "no drafts by confidence: $(cat "$tmp/err")"

# step costs are kept for so many seconds
mkdir "$tmp/costs"
ids 0 --perf-cache-dir "$tmp/costs" >/dev/null
costs=$(ls "$tmp/costs"/step-costs-*)
printf '{"curve":[[1,1.5],[20,2.5]]}' >"$costs"
touch -d '2 hours ago' "$costs"
ids 0 --perf-cache-dir "$tmp/costs" --perf-cache-ttl 100000 >/dev/null
check "step costs of two hours ago" '{"curve":[[1,1.5],[20,2.5]]}' "$(cat "$costs")"
ids 0 --perf-cache-dir "$tmp/costs" >/dev/null
[ "$(cat "$costs")" != '{"curve":[[1,1.5],[20,2.5]]}' ] || fail "step costs of two hours ago were used"

# a batch that is finished says so
expect_exit 0 batch "$tmp/first"
says err "nothing to do, 1 row is there"

# A first signal: what runs is written, what waits for its turn is not, and the same command answers that later.
ids_row() { printf '{"custom_id": "%s", "tokens": [5, 9, 7], "max_tokens": %s, "temperature": 0, "ignore_eos": true}\n' "$1" "$2"; }
slow() { # starts the batch in the background and waits until one request runs and one waits
    "$program" batch -i "$tmp/slow" -o "$tmp/slowly" --max-num-seqs 1 --draft-tokens 0 --log-steps 5 2>"$tmp/err" >"$tmp/out" &
    pid=$!
    for _ in $(seq $((200 * slowness))); do
        grep -q 'running=1 pending=1' "$tmp/err" && return
        sleep 0.05
    done
    fail "nothing runs: $(cat "$tmp/err")"
}
{ ids_row long 1000; row waits DeepSeek-V4.1-Flash; ids_row last 2; } >"$tmp/slow"
slow
kill -TERM "$pid"
wait "$pid"
check "exit after a signal" 1 $?
says err "bathyc batch: stopping; running requests may end, a second signal ends them"
says err "the same command resumes"
check "rows after a signal" '"custom_id":"long"' "$(grep -o '"custom_id":"[a-z]*"' "$tmp/slowly")"
expect_exit 0 "$program" batch -i "$tmp/slow" -o "$tmp/slowly" --max-num-seqs 1
check "rows after that" '"long" "waits" "last"' "$(grep -o '"custom_id":"[a-z]*"' "$tmp/slowly" | cut -d: -f2 | paste -sd' ')"

# a second signal
rm "$tmp/slowly"
{ ids_row long 6000; ids_row waits 2; } >"$tmp/slow"
slow
kill -INT "$pid"
for _ in $(seq $((200 * slowness))); do
    grep -q "stopping;" "$tmp/err" && break
    sleep 0.05
done
kill -INT "$pid"
wait "$pid"
check "exit after two signals" 1 $?
check "last line after two signals" "bathyc batch: stopped; the same command resumes with the requests that are left" "$(tail -1 "$tmp/err")"

# a signal also ends a batch that waits for its input
mkfifo "$tmp/fifo"
"$program" batch -i "$tmp/fifo" -o "$tmp/none" 2>"$tmp/err" &
pid=$!
exec 3>"$tmp/fifo"
row only DeepSeek-V4.1-Flash >&3
for _ in $(seq $((200 * slowness))); do
    grep -qs only "$tmp/none" && break
    sleep 0.05
done
kill -TERM "$pid"
wait "$pid"
check "exit of a batch that waits" 1 $?
exec 3>&-

finish batch
