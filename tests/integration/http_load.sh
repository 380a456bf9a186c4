#!/bin/bash
# http_load.sh - many and difficult clients (http_load.py). BY_TEST_TIMEOUT=300
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
exec python3 -B "$source/tests/integration/http_load.py" "$program"
