#!/bin/bash
# grammar.sh PROGRAM SOURCE - `bathyc grammar` and `grammar-bench` as a user calls them.
set -u
program=$1 source=$2 dir=$(mktemp -d) bad=0
trap 'rm -rf "$dir"' EXIT
fail() { echo "grammar.sh: $1"; bad=1; }
echo '{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"],"additionalProperties":false}' > "$dir/s.json"
"$program" grammar check "$dir/s.json" | grep -q '^ok: json_schema' || fail "check"
"$program" grammar sample -n 5 --seed 3 "$dir/s.json" > "$dir/out" || fail "sample"
[ "$("$program" grammar sample -n 5 --seed 3 --whitespace compact "$dir/s.json" | grep -c '^{"a":[1-9]')" = 5 ] || fail "samples are members"
"$program" grammar validate "$dir/s.json" --text '{"a": 3}' | grep -qx valid || fail "valid text"
"$program" grammar validate "$dir/s.json" --text '{"a": 0}' > "$dir/out" && fail "an invalid text must exit with 1"
grep -q 'byte 6' "$dir/out" || fail "place of the bad byte"
printf 'root ::= "a" b' > "$dir/g"
"$program" grammar check -k ebnf "$dir/g" 2> "$dir/err" && fail "an undefined rule must exit with 1"
grep -q 'line 1, column 14' "$dir/err" || fail "place of an undefined rule"
# a line end behind a pattern or a text, as editors write it
printf '[a-c]+\n' > "$dir/r" && printf 'abc\n' > "$dir/t" && printf 'ab\n\n' > "$dir/t2" && printf 'root ::= "x\\n"' > "$dir/g2"
"$program" grammar validate -k regex "$dir/r" "$dir/t" | grep -qx valid || fail "a line end behind the text"
"$program" grammar validate -k regex "$dir/r" --text abc | grep -qx valid || fail "a line end behind the pattern"
printf 'ab\r\n' | "$program" grammar validate -k regex "$dir/r" | grep -qx valid || fail "a line end with a carriage return"
"$program" grammar validate -k regex "$dir/r" "$dir/t2" > /dev/null && fail "two line ends are one too many"
"$program" grammar validate -k regex "$dir/r" --text 'abc
' > /dev/null && fail "the line end of --text is meant"
printf 'x\n' | "$program" grammar validate -k ebnf "$dir/g2" | grep -qx valid || fail "a line end that the grammar wants"
printf 'a\n' | "$program" grammar validate -k regex <(printf '[a-c]{3}') | grep -q 'not complete after 1 bytes' || fail "incomplete with a line end"
for wrong in "validate $dir/s.json $dir/t --text 1" "check $dir/s.json --text 1" "check $dir/s.json --options {"; do
  # shellcheck disable=SC2086
  "$program" grammar $wrong > /dev/null 2> "$dir/err"; [ $? = 2 ] || fail "wrong usage must exit with 2: $wrong"
done
"$program" grammar 2> /dev/null; [ $? = 2 ] || fail "wrong usage must exit with 2"
printf '%s\n' '{"op":"case","id":"x","kind":"regex","grammar":"[a-z]+","tests":[{"tokens":[67,68]},{"tokens":[15]}],"repeat":2,"spec":2}' \
  '{"op":"case","id":"y","kind":"json_schema","grammar":{"type":"x"},"tests":[]}' 'nonsense' '{"op":"stats"}' '{"op":"quit"}' |
  "$program" grammar-bench --model "$source/models/tiny" > "$dir/out"
[ $? = 1 ] || fail "grammar-bench must exit with 1 after a line that is no request"
printf '%s\n' '{"op":"stats"}' | "$program" grammar-bench --model "$source/models/tiny" > "$dir/good" || fail "grammar-bench"
[ "$(wc -l < "$dir/out")" = 5 ] || fail "one line an answer"
sed -n 1p "$dir/out" | grep -q '"op":"ready","engine":"bathyc"' || fail "ready line"
sed -n 2p "$dir/out" | grep -q '"id":"x","ok":true' || fail "case"
sed -n 3p "$dir/out" | grep -q '"ok":false,"error":{"code":"BY_EINVAL".*"where":"/type"' || fail "compile error"
sed -n 5p "$dir/out" | grep -q '"maxrss_kb"' || fail "stats"
# answers of a model that are limited
run() { "$program" run --model "$source/models/tiny" -p hello -n 60 --seed 4 "$@" 2> "$dir/err"; }
run --regex '[a-c]{4}-[0-9]{2}' | grep -Eqx '[a-c]{4}-[0-9]{2}' || fail "run --regex"
run --json-schema "$dir/s.json" > "$dir/answer" || fail "run --json-schema"
"$program" grammar validate "$dir/s.json" "$dir/answer" > /dev/null ||
  "$program" grammar validate "$dir/s.json" --text "$(cat "$dir/answer")" > /dev/null || fail "the answer follows the schema"
printf 'root ::= "x" ("y" | "z")+ "!"' > "$dir/g"
run --raw --grammar "$dir/g" | grep -Eqx 'x[yz]+!' || fail "run --grammar"
run --regex '[a-c' > /dev/null && fail "a bad regex must fail"
grep -q 'regex: .*offset 4' "$dir/err" || fail "place in a bad regex"
echo '{"type":"x"}' > "$dir/bad.json"
run --json-schema "$dir/bad.json" > /dev/null; [ $? = 1 ] || fail "a bad schema in a file must exit with 1"
grep -q 'bad.json' "$dir/err" || fail "the bad schema's file"
run --regex '[a-c' > /dev/null; [ $? = 2 ] || fail "a bad pattern on the command line must exit with 2"
run --regex a --grammar "$dir/g" > /dev/null; [ $? = 2 ] || fail "two limits at once must exit with 2"
run --think low -n 3 --json-schema "$dir/s.json" > "$dir/answer" || fail "an answer that is cut is no failure"
grep -q '^(cut: the limit of tokens is reached; the text may be incomplete)' "$dir/err" || fail "an answer that cannot fit is cut: $(cat "$dir/err")"
run --think low -n 3 > "$dir/answer" || fail "reasoning that is cut is no failure"
[ ! -s "$dir/answer" ] && grep -q 'reasoning took all' "$dir/err" || fail "reasoning up to the limit: $(cat "$dir/err")"
# reasoning ends in time for the answer
run --think max --temperature 2 -n 70 --json-schema "$dir/s.json" > "$dir/answer" || fail "reasoning in front of an answer"
"$program" grammar validate "$dir/s.json" "$dir/answer" > /dev/null ||
  "$program" grammar validate "$dir/s.json" --text "$(cat "$dir/answer")" > /dev/null || fail "reasoning left no room: $(cat "$dir/answer")"
# warnings, once, and not in the answer
echo '{"type":"string","format":"fooo","maxLength":4}' > "$dir/w.json"
run --json-schema "$dir/w.json" > "$dir/answer" || fail "a schema with a warning"
[ "$(grep -c '^warning: .*fooo' "$dir/err")" = 1 ] || fail "the warning of a format: $(cat "$dir/err")"
grep -q fooo "$dir/answer" && fail "a warning in the answer"
# what a file was read as
cp "$dir/g" "$dir/g.gbnf"
"$program" grammar check "$dir/g.gbnf" | grep -q '^ok: ebnf' || fail "the kind by the name"
"$program" grammar check "$dir/g" 2>&1 | grep -q "$dir/g, read as json_schema (see --kind): " || fail "the kind in the error"
"$program" grammar check -k json_schema "$dir/g.gbnf" > /dev/null 2>&1 && fail "--kind goes before the name"
run --grammar "$dir/s.json" > /dev/null && fail "a schema as a grammar"
grep -q 's.json, read as .*--json-schema' "$dir/err" || fail "the flag for schemas: $(cat "$dir/err")"
run --json-schema "$dir/g" > /dev/null && fail "a grammar as a schema"
grep -q '/g, read as .*--grammar' "$dir/err" || fail "the flag for grammars: $(cat "$dir/err")"
"$program" bench grammar -s 4 -n 4 -r 1 --json > "$dir/out" 2> "$dir/err" || fail "bench grammar"
grep -q '"cpu_limited_over_free":[0-9]' "$dir/out" || fail "bench grammar --json"
exit $bad
