#!/bin/bash
# http_clients.sh - openai and anthropic from the package index against a running server: all APIs (http_clients.py), and tools
# BY_TEST_TSAN=no: http_api.sh asks the same of the same server, without minutes of installing
# (http_tools.py). BY_TEST_TIMEOUT=600
# BY_TEST_TSAN=no: http_api.sh asks the same of the same server, without minutes of installing
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
{ python3 -m venv "$dir/venv" && timeout 200 "$dir/venv/bin/pip" install -q --disable-pip-version-check openai==3.57.0 anthropic==2.14.0; } >"$dir/log" 2>&1 ||
    { tail -n 3 "$dir/log"; echo "no package index"; exit 77; }
"$dir/venv/bin/python" -B "$source/tests/integration/http_clients.py" "$program"
code=$?
"$dir/venv/bin/python" -B "$source/tests/integration/http_tools.py" "$program" && exit $code
exit 1
