#!/bin/bash
# http_users.sh - faults that users of other servers report, at a running server (http_users.py; tests/README.md). BY_TEST_TIMEOUT=300
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
exec python3 -B "$source/tests/integration/http_users.py" "$program"
