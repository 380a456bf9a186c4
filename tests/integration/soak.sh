#!/bin/bash
# BY_TEST_TIMEOUT=180
# Mixed requests against the server: nothing is left of them (soak.py). BY_SOAK_REQUESTS=N: how many; else a number for a few seconds,
# scaled by BY_TEST_SCALE. Arguments: program, source folder.
set -u
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
n=${BY_SOAK_REQUESTS:-$((400 * ${BY_TEST_SCALE:-100} / 100))}
[ "$n" -ge 90 ] || n=90
exec python3 -B "$2/tests/integration/soak.py" "$1" "$n"
