#!/bin/bash
# http_protocol.sh - HTTP itself, at a running server (http_protocol.py). BY_TEST_TIMEOUT=300
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
exec python3 -B "$source/tests/integration/http_protocol.py" "$program"
