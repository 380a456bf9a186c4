#!/bin/bash
# commands.sh PROGRAM SOURCE - what all commands have in common: help, readers that go away, folders that are none; and what `run`
# says behind its answer.
set -u
. "$2/tests/support/shell.sh"
need_python
tiny=$source/models/tiny

# help
expect_exit 0 "$program" help
cp "$tmp/out" "$tmp/help"
for words in "help help" "help --help" "--help help" "-h -h"; do
    # shellcheck disable=SC2086
    expect_exit 0 "$program" $words
    cmp -s "$tmp/out" "$tmp/help" || fail "$words: $(head -2 "$tmp/out")"
done
expect_exit 0 "$program" help run
says out "usage: bathyc run"
expect_exit 0 "$program" help bench
says out "usage: bathyc bench [PART]"
expect_exit 0 "$program" help bench serve
says out "usage: bathyc bench serve"
expect_exit 2 "$program" help bench nosuch
says err "unknown part 'nosuch'"
expect_exit 2 "$program" help nosuch
says err "unknown command 'nosuch'"
expect_exit 2 "$program" help run now
says err "'now' is too much"

# A reader that has gone ends every command the same way: silently, by SIGPIPE, also where the parent ignored that.
python3 - "$program" "$tiny" <<'PY' || fail "readers that went away"
import os, signal, subprocess, sys
program, tiny = sys.argv[1:]
row = '{"custom_id": "a", "tokens": [5, 9, 7], "max_tokens": 2}\n'
request = '{"model": "tiny", "messages": [{"role": "user", "content": "a"}]}'
bad = []
for args, text in (["help"], ""), (["run", "--help"], ""), (["version"], ""), (["inspect", tiny], ""), (["inspect", tiny, "--json"], ""), \
        (["tokenize", "word"], ""), (["detokenize", "70"], ""), (["encode"], request), (["run", "-p", "Hi", "-n", "3"], ""), \
        (["batch", "-i", "-", "-o", "-"], row), (["conform"], '{"kind": "x", "input": 1}\n'), (["chat", "--max-tokens", "3"], "Hi\n"), \
        (["generate", "-i", "-", "-o", "-"], '{"id": "a", "tokens": [5, 9]}\n'):
    r, w = os.pipe()
    os.close(r)
    p = subprocess.run([program, *args], input=text.encode(), stdout=w, stderr=subprocess.PIPE, timeout=300, restore_signals=False)
    os.close(w)
    if p.returncode != -signal.SIGPIPE or b"bathyc" in p.stderr: bad.append((args, p.returncode, p.stderr[:200]))
for b in bad: print(*b)
sys.exit(len(bad) > 0)
PY

# a model that is no folder
expect_exit 1 "$program" run -m "$tiny/config.json" -p Hi
says err "bathyc run: $tiny/config.json: is not a folder"
expect_exit 1 "$program" inspect "$tiny/config.json"
says err "$tiny/config.json: is not a folder"
expect_exit 1 "$program" inspect "$tmp/nowhere"
says err "no such folder"

# figures of run: one token is no rate
expect_exit 0 "$program" run -p "Hello" -n 1 --seed 1
says err "generation: 1 token"
grep -q 'generation: 1 token.*tokens/s' "$tmp/err" && fail "a rate of one token: $(cat "$tmp/err")"
for n in 2 4; do # at most one step behind the first token
    expect_exit 0 "$program" run -p Hi -n $n --seed 1 --draft-mode fixed --temp 0
    grep -q 'drafts: [1-9]' "$tmp/err" || [ $n = 2 ] || fail "no drafts: $(cat "$tmp/err")"
    grep -q 'generation: .*tokens/s' "$tmp/err" && fail "a rate of one step: $(cat "$tmp/err")"
done
expect_exit 0 "$program" run --raw -p "a" -n 20 --seed 1 --regex '[a-c]{12}'
grep -q 'generation: [0-9]* tokens, [0-9.]* tokens/s' "$tmp/err" || fail "no rate: $(cat "$tmp/err")"

# flags that are nearly right, and those of other programs
for flag in -n4 -n=4; do
    expect_exit 2 "$program" run -p Hi "$flag"
    says err "-n takes its value as the next argument, as in -n 4"
done
expect_exit 2 "$program" run "What is this?"
says err "unexpected argument 'What is this?': a text goes behind -p"
for flag in "-ngl 9" --enable-expert-parallel "--kv-cache-dtype fp8" "--quantization fp8" "--tool-call-parser x" --enable-lora "--mmproj x"; do
    # shellcheck disable=SC2086
    expect_exit 2 "$program" run -p Hi $flag
    says err "this program has no ${flag% *}: "
done
expect_exit 2 "$program" run -p Hi --no-prefix-cachin
says err "did you mean '--no-prefix-cache'"
expect_exit 2 "$program" run -p Hi --enable-async
grep -q -- --no-async "$tmp/err" && fail "the opposite flag: $(cat "$tmp/err")"
row='{"custom_id": "x", "tokens": [5, 9, 7], "max_tokens": 2}'
expect_exit 0 "$program" batch -i - -o - --enable-prefix-caching --no-enable-prefix-caching --disable-radix-cache \
    --enable-auto-tool-choice <<<"$row"

# more memory than there is does no harm, more blocks than there can be do
if [ "$slowness" = 1 ]; then # sanitizers end the program when so much memory is asked for
    expect_exit 0 "$program" run -p Hi -n 2 --ram 900T
    expect_exit 1 "$program" run -p Hi -n 2 --kv-blocks 1000000000
    says err "1000000000 KV blocks (--kv-blocks)"
    says err " free"
fi
expect_exit 1 "$program" run -p "$(seq 1 200)" --kv-blocks 1
says err "the context holds 128 (all that --kv-blocks has room for)"

# step costs that could not be kept
touch "$tmp/file"
for dir in "$tmp/file" "$tmp/file/below" "$tmp/none/below"; do
    expect_exit 1 "$program" run -p Hi -n 2 --perf-cache-dir "$dir"
    says err "--perf-cache-dir: $dir: "
done
expect_exit 0 "$program" run -p Hi -n 2 --perf-cache-dir "$tmp/costs"
[ -d "$tmp/costs" ] || fail "no folder of step costs"

# run and chat draw by the same flags; top-k 0 and -1 are off
for flag in --max-tokens,-n,--n-predict --temp,--temperature --top-p --top-k --min-p --seed,-s; do
    for command in run chat; do "$program" $command --help | grep -qe "^  $flag " || fail "$command has no $flag"; done
done
for k in -1 0; do expect_exit 0 "$program" run --raw -p "The" -n 8 -s 3 --top-k $k && cp "$tmp/out" "$tmp/top$k"; done
cmp -s "$tmp/top-1" "$tmp/top0" || fail "--top-k 0 is not off"
expect_exit 0 "$program" serve --help
[ "$(grep -xc 'server:\|model and device:\|requests and memory:\|drafts:' "$tmp/out")" = 4 ] || fail "headings of help"
[ "$(awk 'length > 150' "$tmp/out" | wc -l)" = 0 ] || fail "long lines of help"

# broken lines
expect_exit 1 "$program" conform <<<'nonsense'
says out '"error"'
expect_exit 0 "$program" conform <<<'{"kind": "from tomorrow", "input": 1}'
says out "unknown kind"

# drafts beyond what the model was trained for are taken, with a word
trained=$(sed -n 's/.*"dspark_block_size": \([0-9]*\).*/\1/p' "$tiny/config.json")
run_drafts() { expect_exit 0 "$program" run -p Hi -n 2 "$@"; }
run_drafts --draft-tokens $((trained + 1))
says err "--draft-tokens $((trained + 1)): the model was trained to draft $trained"
run_drafts --draft-tokens "$trained" --draft-conf-temp 1.1,0.9
grep -q "^bathyc: --draft" "$tmp/err" && fail "a warning without a reason: $(cat "$tmp/err")"
run_drafts --draft-conf-temp 1,1,1,1,1,1,1,1
says err "--draft-conf-temp: 8 values for blocks of $trained drafts"
expect_exit 2 "$program" run -p Hi --draft-tokens 9
says err "9 is outside 0..8"

# Ctrl-C on a terminal: the line is ended, and the program ends by the signal
python3 - "$program" "$slowness" <<'PY' || fail "Ctrl-C in run"
import os, pty, select, signal, sys, time
program, slowness = sys.argv[1], int(sys.argv[2])
pid, fd = pty.fork()
if pid == 0: os.execv(program, [program, "run", "--raw", "-p", "a", "-n", "3000", "--regex", "[a-c]{3000}", "--draft-tokens", "0"])
text, end, sent = b"", time.monotonic() + 30 * slowness, False
while time.monotonic() < end:
    if not select.select([fd], [], [], 1)[0]: continue
    try: piece = os.read(fd, 4096)
    except OSError: break
    if not piece: break
    text += piece
    if len(text) > 20 and not sent: sent = os.write(fd, b"\x03") == 1
_, status = os.waitpid(pid, 0)
if not (sent and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT and text.endswith(b"\n")):
    sys.exit(f"{sent} {status} {text[-60:]}")
PY

finish commands
