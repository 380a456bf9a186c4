#!/bin/bash
# `bathyc parse`: plain text, the objects of the APIs, events, ids, wrong usage. Arguments: program, source folder.
set -u
. "$2/tests/support/shell.sh"
T='｜DSML｜'
text=$(printf 'Let me think.\n</think>\n\nIt is sunny.\n\n<%s calls>\n<%s invoke name="f">\n<%s parameter name="a" string="true">x</%s parameter>\n</%s invoke>\n</%s calls>' $T $T $T $T $T $T)

check plain "$(printf 'reasoning\n  Let me think.\ncontent\n  It is sunny.\ncall 0 f\n  {"a": "x"}\nfinish tool_calls')" "$(printf %s "$text" | "$program" parse)"
for piece in 1 2 7; do
    check "pieces of $piece" "$(printf %s "$text" | "$program" parse)" "$(printf %s "$text" | "$program" parse --piece $piece)"
done
has messages '"stop_reason":"tool_use"' "$(printf %s "$text" | "$program" parse --api messages)"
has responses '"status":"completed"' "$(printf %s "$text" | "$program" parse --api responses)"
has json '"finish_reason":"tool_calls"' "$(printf %s "$text" | "$program" parse --json)"
events=$(printf %s "$text" | "$program" parse --events --api messages --piece 5)
has events 'event: message_stop' "$events"
has done 'data: [DONE]' "$(printf %s "$text" | "$program" parse --events)"
check stop "$(printf 'content\n  ab\nfinish stop')" "$(printf 'abENDcd' | "$program" parse --stage none --stop END)"
check length "$(printf 'reasoning\n  cut\nfinish length')" "$(printf 'cut' | "$program" parse --finish length)"
check 'no calls' "$(printf 'content\n  <%s calls>\nfinish stop' $T)" "$(printf '<%s calls>' $T | "$program" parse --stage none --no-calls)"
check ids "$(printf 'content\n  Hi\nfinish stop')" "$(printf 'Hi' | "$program" parse --stage none)"
printf '72 foo 101' | "$program" parse --ids >/dev/null 2>&1
check 'what is no id' 1 $?
has 'an unknown id' '99999999 (number 2 of the input) is no token' "$(printf '72 99999999' | "$program" parse --ids 2>&1 >/dev/null; echo "rc $?")"
has 'its exit status' 'rc 1' "$(printf '72 99999999' | "$program" parse --ids 2>&1 >/dev/null; echo "rc $?")"
printf 'x' | "$program" parse --stage nowhere >/dev/null 2>&1
check 'wrong stage' 2 $?
"$program" parse /does/not/exist >/dev/null 2>&1
check 'missing file' 1 $?
for default in 'reasoning_start' 'default: stop' 'default: server'; do has help "$default" "$("$program" parse --help)"; done
finish parse
