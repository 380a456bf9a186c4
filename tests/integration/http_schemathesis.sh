#!/bin/bash
# http_schemathesis.sh - schemathesis from the package index against the document of a running server (http_schemathesis.py).
# BY_TEST_TIMEOUT=500. BY_TEST_SCALE=1000 by hand is a longer look.
program=$1 source=$2
"$program" serve --help >/dev/null 2>&1 || { echo "this build has no server"; exit 77; }
case $program in
*build-debug/* | *build-tsan/*) echo "generated requests: in the release build"; exit 77 ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
{ python3 -m venv "$dir/venv" && timeout 250 "$dir/venv/bin/pip" install -q --disable-pip-version-check schemathesis==4.32.5 openapi-spec-validator==0.9.0; } \
    >"$dir/log" 2>&1 || { tail -n 3 "$dir/log"; echo "no package index"; exit 77; }
"$dir/venv/bin/python" -c "import json; from openapi_spec_validator import validate; validate(json.load(open('$source/web/openapi.json')))" || exit 1
"$dir/venv/bin/python" -B "$source/tests/integration/http_schemathesis.py" "$program" "$dir/venv/bin/schemathesis"
