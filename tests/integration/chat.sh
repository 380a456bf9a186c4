#!/bin/bash
# `bathyc chat` (and drafts in `bathyc run`) with the tiny model: piped, and in a pseudo-terminal (editing, dimmed reasoning, Ctrl-C).
# Arguments: program, source folder.
set -u
program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME=$dir
fail=0
# Every step has its own end: what hangs is killed (137 or 124), told, and fails the test.
limit=40
grep -qE '__(asan|tsan)_init' "$program" && limit=300
chat() {
    [ ! -s "$dir/hung" ] || return 124 # once is enough
    timeout -k 5 "$limit" "$program" chat --temp 0 --max-tokens 200 "$@"
    local code=$?
    [ $code -lt 124 ] || echo "chat $*: ended by force after $limit s (code $code)" | tee -a "$dir/hung" >&2
    return $code
}

expect() { # WHAT PATTERN TEXT
    grep -qF -- "$2" <<<"$3" && return
    printf '%s: no "%s" in\n%s\n' "$1" "$2" "$3"
    fail=1
}

# Piped: answers on standard output, notes on standard error, the conversation goes on from line to line.
out=$(printf 'Hello\n/think none\nHello again\n/save %s/c.json\n/clear\n/load %s/c.json\n' "$dir" "$dir" | chat 2>"$dir/notes")
[ $? -eq 0 ] || { echo "exit code"; fail=1; }
expect headings '[thinking]' "$out"
expect headings '[answer]' "$out"
for n in '(thinking: none)' '(saved)' '(cleared)' '(loaded)'; do expect notes "$n" "$(cat "$dir/notes")"; done
expect saved '"role": "assistant"' "$(cat "$dir/c.json")"
[ "$(grep -c '"role": "user"' "$dir/c.json")" -eq 2 ] || { echo "saved messages"; fail=1; }
expect 'nothing thought' 'Hello' "$(printf 'Hello\n' | chat --think none 2>/dev/null)"
out=$(printf 'Hello\n' | chat --seed 5)
[ -n "$out" ] && [ "$(printf 'Hello\n' | chat --seed 5)" = "$out" ] || { echo "the same question, another answer"; fail=1; }
out=$(printf 'Hello\n' | chat --hide-reasoning)
[ $? -eq 0 ] && [ -n "$out" ] || { echo "--hide-reasoning: no answer"; fail=1; }
grep -q thinking <<<"$out" && { echo "reasoning shown"; fail=1; }

# Drafts change no byte, in `chat` and in `run`, and `run` says what became of them. Nothing said is not the same answer.
talk() { printf 'Hello\nTell me a story.\n' | chat --seed 7 --temp 1 "$@" 2>"$dir/notes"; }
tell() { timeout -k 5 "$limit" "$program" run -p 'Tell me a story.' -n 60 --seed 7 "$@" 2>"$dir/notes"; }
said() { # CODE TEXT WHAT
    [ "$1" -eq 0 ] && [ -n "$2" ] && return
    printf '%s: code %s, said "%s"\n%s\n' "$3" "$1" "$2" "$(cat "$dir/notes")"
    fail=1
}
spoken=$(talk --draft-mode off)
said $? "$spoken" "chat --draft-mode off"
told=$(tell --draft-mode off)
said $? "$told" "run --draft-mode off"
grep -q drafts "$dir/notes" && { echo "run --draft-mode off: drafts"; fail=1; }
for mode in fixed confidence auto; do
    out=$(talk --draft-mode $mode --draft-tokens 3)
    said $? "$out" "chat --draft-mode $mode"
    [ "$out" = "$spoken" ] || { echo "chat --draft-mode $mode: another answer"; fail=1; }
    out=$(tell --draft-mode $mode)
    said $? "$out" "run --draft-mode $mode"
    [ "$out" = "$told" ] || { echo "run --draft-mode $mode: another answer"; fail=1; }
    [ $mode = fixed ] && expect 'run with drafts' '; drafts: ' "$(cat "$dir/notes")"
done
out=$(tell --draft-mode fixed --spec-verify rejection)
said $? "$out" "run --spec-verify rejection"
tell --draft-conf-temp 0 >/dev/null && { echo "run --draft-conf-temp 0 must fail"; fail=1; }

# Wrong input is told and does not end the conversation.
out=$(printf '/thikn\n/load /does/not/exist\n/system Be brief.\n/system\nbad \xff\n/quit\nnot read\n' | chat 2>&1)
for n in 'did you mean /think?' '/does/not/exist' 'Be brief.' 'not UTF-8'; do expect 'wrong input' "$n" "$out"; done
chat --think much </dev/null >/dev/null 2>&1
[ $? -eq 2 ] || { echo "--think much"; fail=1; }

# In a terminal.
if command -v python3 >/dev/null; then
    python3 - "$program" "$limit" <<'P' || fail=1
import os, pty, select, signal, sys, time

limit = float(sys.argv[2])

pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "chat", "--temp", "0"])
seen = b""


def give_up(why):
    """Where it hangs, as far as the kernel tells, and the end of it."""
    for task in sorted(os.listdir(f"/proc/{pid}/task")):
        with open(f"/proc/{pid}/task/{task}/stat") as f, open(f"/proc/{pid}/task/{task}/wchan") as w:
            print("thread", task, f.read().split(")")[-1].split()[0], w.read())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.exit(f"{why}; seen: {seen!r}")


def wait(what):
    """Reads until `what` appears behind what was taken before."""
    global seen
    end = time.time() + limit
    while what not in seen:
        if time.time() > end:
            give_up(f"no {what!r}")
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    if what not in seen:
        sys.exit(f"no {what!r} in {seen!r}")
    seen = seen[seen.index(what) + len(what):]


def end_of_child():
    """Reads what is still said, so that the child never waits for a reader, until it has ended."""
    global seen
    end = time.time() + limit
    while True:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:  # the other side is closed
                time.sleep(0.05)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.time() > end:
            give_up("the program does not leave")


wait(b"/help lists the commands")
wait(b"> ")
os.write(fd, b"Hello\n")
wait(b"\x1b[2m")       # reasoning, dimmed
wait(b"\x1b[0m")
wait(b"tokens/s)")
wait(b"> ")
os.write(fd, b"unfinished")
time.sleep(0.3)
os.write(fd, b"\x03")  # at the prompt: a new line
wait(b"> ")
os.write(fd, b"\x1b[A\n")  # history: Hello again
wait(b"tokens/s)")
wait(b"> ")
os.write(fd, b"\x04")
status = end_of_child()
sys.exit(f"left with status {status}, having said {seen!r}" if status else 0)
P
fi
[ ! -s "$dir/hung" ] || fail=1
[ $fail -eq 0 ] && echo "chat: ok"
exit $fail
