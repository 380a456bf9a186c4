#!/bin/bash
# tokenize, detokenize and conform from the outside: forms of input and output, exit codes, messages.
set -u
B=$1 SRC=$2
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
failed=0
same() { # name, got, want
    [ "$2" = "$3" ] && return
    printf '%s:\n got: %s\nwant: %s\n' "$1" "$2" "$3"
    failed=1
}

text='Hello <think>world'
same ids "$($B tokenize "$text")" '3099 223 4917 89 272 326'
same plain "$($B tokenize --no-added-tokens "$text")" '3099 223 30 516 390 32 89 272 326'
same json "$(printf %s "$text" | $B tokenize --json)" '{"tokens": [3099, 223, 4917, 89, 272, 326], "count": 6}'
same count "$($B tokenize --count "$text")" 6
same pieces "$($B tokenize --pieces 'a "é')" "$(printf '67\t"a"\n270\t" \\""\n130\t"\xef\xbf\xbd"\n105\t"\xef\xbf\xbd"')"
same nothing "$(printf '' | $B tokenize --json)" '{"tokens": [], "count": 0}'
same back "$($B tokenize "$text" | $B detokenize)" "$text"
same list "$($B detokenize '[3099, 223,4917]' 89)" 'Hello <think>w'
same special "$($B detokenize --json --skip-special 0 3099 1)" '{"text": "Hello"}'

# A file of every kind of byte sequence comes back byte for byte.
printf 'a\0b\r\n\n\t \xe4\xb8\xad\xe6\x96\x87\xf0\x9f\xa6\x8a\xef\xbf\xbd<\xef\xbd\x9cUser\xef\xbd\x9c>' >"$tmp/t"
$B tokenize -i "$tmp/t" -o "$tmp/ids" && $B detokenize -i "$tmp/ids" -o "$tmp/back" && cmp "$tmp/t" "$tmp/back" || failed=1

printf '{"id": "a", "text": "Hi"}\n\n{"id": 2}\n[]\nx\n{"text": ""}' >"$tmp/in.jsonl"
got=$($B tokenize --jsonl -i "$tmp/in.jsonl" 2>"$tmp/err"); code=$?
same lines "$got" '{"id": "a", "tokens": [3408]}
{"id": 2, "error": "text: want a string"}
{"error": "text: want a string"}
{"error": "line 1 column 1: expected a value"}
{"tokens": []}'
same lines-code $code 1
same lines-err "$(cat "$tmp/err")" 'bathyc tokenize: 3 of 6 lines are bad'
same lines-back "$(printf '{"id": "a", "text": "Hi 世界"}\n' | $B tokenize --jsonl | $B detokenize --jsonl)" '{"id": "a", "text": "Hi 世界"}'
same bad-ids "$(printf '{"tokens": [1, -1]}\n{"tokens": 5}\n' | $B detokenize --jsonl 2>/dev/null)" '{"error": "tokens[1] is not a token id"}
{"error": "tokens: want an array of ids"}'

printf '{"tokens": [3408]}\n{"tokens": [77777]}\n' | $B detokenize --jsonl >"$tmp/out" 2>"$tmp/err"
same unknown-code $? 1
same unknown-line "$(cat "$tmp/out")" '{"text": "Hi"}
{"text": ""}'
refused() { # exit code, part of the message, command...
    local want=$1 part=$2 out; shift 2
    out=$("$@" 2>&1 >/dev/null </dev/null); code=$?
    same "code of $*" $code "$want"
    case $out in *"$part"*) ;; *) same "message of $*" "$out" "*$part*" ;; esac
}
refused 1 "not UTF-8: byte 0xff at offset 2" $B tokenize "$(printf 'ab\xff')"
refused 1 "'x' is not a token id" $B detokenize 5 x
refused 1 "'-5' is not a token id" $B detokenize '[-5]'
refused 1 "id 99999999999 is not in the tokenizer" $B detokenize 99999999999
refused 1 "2 ids have no text: id 77777 is not in the tokenizer" $B detokenize 3408 77777 99999
same known-text "$($B detokenize 3408 77777 2>/dev/null)" Hi
refused 1 "/nonexistent" $B tokenize -m /nonexistent x
refused 1 "/nonexistent" $B tokenize --tokenizer /nonexistent x
refused 1 "/nonexistent" $B tokenize -i /nonexistent
refused 1 "cannot be written" $B tokenize -o /nonexistent/x x
refused 2 "exclude each other" $B tokenize --json --count x
refused 2 "did you mean '--jsonl'" $B tokenize --jsonlx
refused 2 "unexpected argument" $B tokenize a b
refused 2 "--jsonl reads a file" $B detokenize --jsonl 5
[ -w /dev/full ] && refused 1 "writing failed" $B tokenize -o /dev/full x

# conform answers row by row: a reader at the other end of a pipe gets each answer before the next row is sent.
coproc C { "$B" conform; }
pid=$C_PID # bash forgets it when the process ends
for i in 1 2 3; do
    printf '{"kind": "encode", "input": {"text": "<think>", "added_tokens": true}}\n' >&"${C[1]}"
    read -r -t 20 line <&"${C[0]}" || line=timeout
    same "conform $i" "$line" '{"kind": "encode", "result": {"ids": [4917]}}'
done
exec {C[1]}>&-
wait "$pid"
same unknown "$(echo '{"kind": "nope", "input": {}}' | $B conform)" "{\"error\": \"unknown kind 'nope'\"}"

# Every stored row through the command.
zcat "$SRC/tests/golden/data/tokenizer/tokenizer_v4.json.gz" >"$tmp/v4.json"
zcat "$SRC/tests/golden/data/tokenizer/open.jsonl.gz" >"$tmp/rows"
$B conform --tokenizer "$tmp/v4.json" -i "$tmp/rows" -o "$tmp/answers" || failed=1
sed 's/^{"kind": "\([a-z_]*\)".*"expected": \(.*\)$/{"kind": "\1", "result": \2/' "$tmp/rows" >"$tmp/want"
cmp "$tmp/want" "$tmp/answers" || { diff "$tmp/want" "$tmp/answers" | head -4 | cut -c1-300; failed=1; }
exit $failed
