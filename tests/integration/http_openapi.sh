#!/bin/bash
# http_openapi.sh - real answers of every path against the document at /openapi.json (http_openapi.py). BY_TEST_TIMEOUT=120
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
exec python3 -B "$source/tests/integration/http_openapi.py" "$program"
