#!/bin/bash
# http_api.sh - the APIs over HTTP, at a running server (http_api.py). BY_TEST_TIMEOUT=300
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
exec python3 -B "$source/tests/integration/http_api.py" "$program"
