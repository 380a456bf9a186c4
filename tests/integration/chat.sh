#!/bin/bash
# `bathyc chat` with the tiny model: piped, and in a pseudo-terminal (editing, dimmed reasoning, Ctrl-C).
# Arguments: program, source folder.
set -u
program=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME=$dir
fail=0
chat() { timeout 120 "$program" chat --temp 0 --max-tokens 200 "$@"; }

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
[ "$(printf 'Hello\n' | chat --seed 5)" = "$(printf 'Hello\n' | chat --seed 5)" ] || { echo "the same question, another answer"; fail=1; }
expect 'hidden reasoning' '' "$(printf 'Hello\n' | chat --hide-reasoning)"
printf 'Hello\n' | chat --hide-reasoning | grep -q thinking && { echo "reasoning shown"; fail=1; }

# Wrong input is told and does not end the conversation.
out=$(printf '/thikn\n/load /does/not/exist\n/system Be brief.\n/system\nbad \xff\n/quit\nnot read\n' | chat 2>&1)
for n in 'did you mean /think?' '/does/not/exist' 'Be brief.' 'not UTF-8'; do expect 'wrong input' "$n" "$out"; done
chat --think much </dev/null >/dev/null 2>&1
[ $? -eq 2 ] || { echo "--think much"; fail=1; }

# In a terminal.
if command -v python3 >/dev/null; then
    python3 - "$program" <<'P' || fail=1
import os, pty, select, sys, time

pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "chat", "--temp", "0"])
seen = b""


def wait(what, seconds=60):
    """Reads until `what` appears behind what was taken before."""
    global seen
    end = time.time() + seconds
    while what not in seen:
        if time.time() > end:
            sys.exit(f"no {what!r} in {seen!r}")
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    if what not in seen:
        sys.exit(f"no {what!r} in {seen!r}")
    seen = seen[seen.index(what) + len(what):]


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
end = time.time() + 60
while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
    if time.time() > end:
        os.kill(pid, 9)
        sys.exit(f"still running after Ctrl-D; last seen {seen!r}")
    if select.select([fd], [], [], 0.1)[0]:
        try:
            seen += os.read(fd, 65536)
        except OSError:
            time.sleep(0.1)
sys.exit(ended[1])
P
fi
[ $fail -eq 0 ] && echo "chat: ok"
exit $fail
