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
"$program" grammar 2> /dev/null; [ $? = 2 ] || fail "wrong usage must exit with 2"
printf '%s\n' '{"op":"case","id":"x","kind":"regex","grammar":"[a-z]+","tests":[{"tokens":[67,68]},{"tokens":[15]}],"repeat":2,"spec":2}' \
  '{"op":"case","id":"y","kind":"json_schema","grammar":{"type":"x"},"tests":[]}' 'nonsense' '{"op":"stats"}' '{"op":"quit"}' |
  "$program" grammar-bench --model "$source/models/tiny" > "$dir/out" || fail "grammar-bench"
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
run --regex a --grammar "$dir/g" > /dev/null; [ $? = 2 ] || fail "two limits at once must exit with 2"
exit $bad
