#!/bin/bash
# recipe_library.sh PROGRAM SOURCE - the recipe library from outside: installed, found by pkg-config, the example compiled against
# it as C and linked shared and static, its output equal to the program's; the header alone as C and C++; no foreign names.
set -u
B=$1 SRC=$2
build=$(dirname "$B")
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAIL: $*"; failed=1; }
for tool in cmake pkg-config cc nm; do command -v $tool >/dev/null || { echo "no $tool"; exit 77; }; done
[ -e "$build/libbathyc-recipe.a" ] || { echo "the library is not built"; exit 77; }

cmake --install "$build" --prefix "$tmp/usr" --component recipe >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
pc=$(find "$tmp/usr" -name bathyc-recipe.pc)
lib=$(find "$tmp/usr" -name libbathyc-recipe.a -printf %h)
[ -n "$pc" ] && [ -n "$lib" ] || { find "$tmp/usr"; echo "not installed"; exit 1; }
export PKG_CONFIG_PATH=${pc%/*}
[ "$(find "$tmp/usr" -type f | wc -l)" -le 8 ] || fail "more than headers, libraries, bathyc-recipe.pc and licences is installed"
[ -n "$(find "$tmp/usr" -name LICENSE.deepseek-recipe -size +0)" ] || fail "the notice of the prompt templates is not installed"

# A build with sanitizers needs their runtime in every program.
flags=()
nm "$lib/libbathyc-recipe.a" 2>/dev/null | grep -q __asan_init && flags=(-fsanitize=address,undefined)
nm "$lib/libbathyc-recipe.a" 2>/dev/null | grep -q __tsan_init && flags=(-fsanitize=thread)
build_example() { # OUTPUT PKG-CONFIG-ARGUMENT...
    local out=$1
    shift
    # shellcheck disable=SC2046 # words are wanted
    cc -std=c17 -Wall -Wextra -Werror -pedantic "${flags[@]}" "$SRC/examples/recipe_answer.c" -o "$out" \
        $(pkg-config --cflags bathyc-recipe) $("$@") || fail "$out is not linked"
}
shared() { pkg-config --libs bathyc-recipe; }
static() { pkg-config --libs --static bathyc-recipe | sed 's/-lbathyc-recipe/-l:libbathyc-recipe.a/'; }
build_example "$tmp/shared" shared
build_example "$tmp/static" static
nm -D "$tmp/shared" | grep -q ' U bathyc_recipe_' || fail "the shared program has the library inside"
nm -D "$tmp/static" 2>/dev/null | grep -q ' U bathyc_recipe_' && fail "the static program asks for the shared library"

cat >"$tmp/request.json" <<'J'
{"model": "DeepSeek-V4.1-Flash", "stream": true, "messages": [{"role": "system", "content": "Be <think> brief."},
 {"role": "user", "content": "Weather in Oslo?"}], "tools": [{"type": "function", "function": {"name": "weather",
 "description": "Forecast", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]}
J
run() { LD_LIBRARY_PATH=$lib timeout 60 "$@"; }
run "$tmp/shared" "$tmp/request.json" "$SRC/models/tiny/tokenizer.json" >"$tmp/out" || fail "shared: exit code $?"
run "$tmp/static" "$tmp/request.json" "$SRC/models/tiny/tokenizer.json" >"$tmp/out2" || fail "static: exit code $?"
cmp -s "$tmp/out" "$tmp/out2" || fail "static and shared differ"

# The same prompt and ids as the program's, and an answer with all its parts.
"$B" encode --profile parity --text "$tmp/request.json" >"$tmp/want"
n=$(grep -c '' "$tmp/want")
sed -n "2,$((n + 1))p" "$tmp/out" | head -c -1 | cmp -s - "$tmp/want" || fail "another prompt than the program's"
ids="$("$B" encode --profile parity --ids "$tmp/request.json")"
grep -qx "[0-9]* token ids: $ids" "$tmp/out" || fail "other ids than the program's"
for part in '"reasoning_content":"The user' '"content":"Let me' '"name":"weather"' '"finish_reason":"tool_calls"' 'data: \[DONE\]' \
    '^whole: {.*"arguments":"{\\"city\\": \\"Oslo\\", \\"days\\": 2}"'; do
    grep -q -- "$part" "$tmp/out" || fail "no $part in the answer"
done

# A refused request gives the API's error object.
echo '{"model": "DeepSeek-V4.1-Flash", "messages": []}' >"$tmp/bad.json"
run "$tmp/shared" "$tmp/bad.json" >"$tmp/out" 2>"$tmp/err"
[ $? = 1 ] && grep -q '^{"error":{"message":' "$tmp/out" && [ -s "$tmp/err" ] || fail "a bad request: $(cat "$tmp/out" "$tmp/err")"

others=$(nm -D --defined-only "$lib/libbathyc-recipe.so" | awk '{print $3}' | grep -v '^bathyc_recipe_' | grep -v '^_' | head -3)
[ -z "$others" ] || fail "libbathyc-recipe.so shows $others"
others=$(nm -g --defined-only "$lib/libbathyc-recipe.a" | awk 'NF == 3 {print $3}' | grep -v '^bathyc_recipe_' | grep -v '^_' | head -3)
[ -z "$others" ] || fail "libbathyc-recipe.a shows $others"
for compiler in cc c++; do
    command -v $compiler >/dev/null || continue
    lang=c; [ $compiler = c++ ] && lang=c++
    # shellcheck disable=SC2046
    printf '#include <bathyc/recipe.h>\nint main(void) { return 0; }\n' |
        $compiler -Wall -Wextra -Werror -pedantic $(pkg-config --cflags bathyc-recipe) -x $lang -c -o /dev/null - ||
        fail "bathyc/recipe.h is not plain $lang"
done
[ $failed = 0 ] && echo "recipe_library: ok"
exit $failed
