#!/bin/bash
# `bathyc encode`: the four APIs, both profiles, all forms, refusals, wrong usage. Arguments: program, source folder.
set -u
. "$2/tests/support/shell.sh"
M='"model": "DeepSeek-V4.1-Flash"'
encode() { timeout $((60 * slowness)) "$program" encode "$@"; }

chat="{$M, \"messages\": [{\"role\": \"user\", \"content\": \"Say </think>\"}], \"thinking\": {\"type\": \"disabled\"}, \"top_k\": 5}"
want='<｜begin▁of▁sentence｜><｜User｜>Say </think><｜Assistant｜></think>'
check text "$want" "$(encode --text <<<"$chat")"
echo "$chat" >"$tmp/chat.json"
check file "$want" "$(encode --text "$tmp/chat.json")"
check responses "$want" "$(encode --api responses --text <<<"{$M, \"input\": \"Say </think>\", \"reasoning\": {\"effort\": \"none\"}}")"
check messages "$want" "$(encode --api messages --text <<<"{$M, \"max_tokens\": 9, \"messages\": [{\"role\": \"user\", \"content\": \"Say </think>\"}], \"thinking\": {\"type\": \"disabled\"}}")"
check completions '<｜begin▁of▁sentence｜>Say' "$(encode --api completions --text <<<"{$M, \"prompt\": \"Say\"}")"
check 'fill in' '<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>' "$(encode --api completions --text <<<"{$M, \"prompt\": \"a\", \"suffix\": \"b\"}")"
check 'ids as they are' '5 6 7' "$(encode --api completions --ids <<<"{$M, \"prompt\": [5, 6, 7]}")"
check 'two prompts' 2 "$(encode --api completions --ids <<<"{$M, \"prompt\": [\"a\", \"b\"]}" | wc -l)"

# The ids are those of the text, special tokens where the renderer put them and nowhere else.
ids=$(encode --ids "$tmp/chat.json")
check 'one assistant token' 1 "$(tr ' ' '\n' <<<"$ids" | grep -cx "$("$program" tokenize '<｜Assistant｜>')")"
check 'one end of thinking' 1 "$(tr ' ' '\n' <<<"$ids" | grep -cx "$("$program" tokenize '</think>')")"
check 'text of the ids' "$want" "$("$program" detokenize $ids)"
json=$(encode --json "$tmp/chat.json")
for part in '"thinking_mode": false' '"top_k": 5' "\"ids\": [${ids// /, }]" '"special_ranges": [[0, 21]' '"n_tokens": '; do has json "$part" "$json"; done
plain=$(encode "$tmp/chat.json")
for part in prompt "  $want" parameters '  top_k                 5' "$(wc -w <<<"$ids") ids"; do has plain "$part" "$plain"; done
has 'room' 'at most 8192 new tokens' "$(encode --ctx-size 100000 "$tmp/chat.json")"

# Names of the model: the vendor's and the folder's, or those that are given.
named() { printf '{"model": "%s", "messages": [{"role": "user", "content": "a"}]}' "$1"; }
want=$(encode --text <<<"$(named DeepSeek-V4.1-Flash)")
check "the folder's name" "$want" "$(encode --text -m "$source/models/tiny/" <<<"$(named tiny)")"
check 'a given name' "$want" "$(encode --text --served-model-name one --served-model-name two <<<"$(named two)")"
has 'another name' 'The supported API model names are one, two, but you passed tiny.' \
    "$(encode --text --served-model-name one --served-model-name two <<<"$(named tiny)" 2>&1)"
has "the folder's name in parity" 'names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, but' "$(encode --profile parity <<<"$(named tiny)" 2>&1)"

# Profiles: the fields of the server profile mean nothing in parity.
check 'parity knows no top_k' 0 "$(encode --profile parity --json "$tmp/chat.json" | grep -c top_k)"
hot="{$M, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"temperature\": 0.25}"
has 'temperature of thinking' '"temperature": 1.0' "$(encode --json <<<"$hot")"
has 'honoured' '"temperature": 0.25' "$(encode --json --honour-sampling <<<"$hot")"
has 'honoured by request' '"temperature": 0.25' "$(encode --json <<<"${hot%\}}, \"honour_sampling\": true}")"

# Refusals: the API's error object on standard output, the message on standard error, exit code 1.
refused() { # WHAT PATTERN ARGUMENT... <body
    local what=$1 pattern=$2 code
    shift 2
    encode "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    check "$what: exit code" 1 $code
    has "$what" "$pattern" "$(cat "$tmp/out")"
    has "$what" '{"error":{"message":"' "$(cat "$tmp/out")"
    has "$what" 'bathyc encode: ' "$(cat "$tmp/err")"
}
refused 'no JSON' 'invalid JSON request' <<<'{'
refused 'no messages' 'invalid_request_error' <<<"{$M, \"messages\": []}"
refused 'a word' 'model' --api responses <<<'{"model": "x", "input": "a"}'
refused 'too long' 'context_length_exceeded' --ctx-size 4 "$tmp/chat.json"
refused 'empty prompt' 'prompt: must not be empty' --api completions <<<"{$M, \"prompt\": \"\"}"
encode /does/not/exist >/dev/null 2>&1
check 'missing file' 1 $?
for wrong in '--api nobody' '--json --ids' '--ctx-size 0' '--profile none'; do
    # shellcheck disable=SC2086
    encode $wrong "$tmp/chat.json" >/dev/null 2>&1
    check "$wrong" 2 $?
done
finish encode
