#!/bin/bash
# faults.sh - the table of tests/README.md: every number from O1 to O45 has a row, every test that it names exists.
# BY_TEST_TSAN=no: only text
source=$2
table=$source/tests/README.md
bad=0
for n in $(seq 45); do
    [ "$(grep -c "^| O$n |" "$table")" = 1 ] || { echo "O$n: no row, or several"; bad=1; }
done
names=0
# shellcheck disable=SC2016 # backquotes of the table
while IFS=: read -r program name; do
    file=$(find "$source/tests" -name "$program.c" -o -name "$program.py")
    if [ -z "$file" ] || ! grep -qw "$name" "$file"; then
        echo "$program: no $name"
        bad=1
    fi
    names=$((names + 1))
done < <(grep '^| O' "$table" | grep -o '`[a-z0-9_]*:[a-z0-9_]*`' | tr -d '`')
[ "$names" -gt 60 ] || { echo "only $names tests named"; bad=1; }
exit $bad
