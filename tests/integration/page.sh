#!/bin/bash
# BY_TEST_TIMEOUT=300
# The page of the server in a headless Chromium (page.py). Skipped where chromium or chromedriver is not installed.
# Arguments: program, source folder.
set -u
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
command -v chromium >/dev/null && command -v chromedriver >/dev/null || { echo "no chromium"; exit 77; }
[ -x "$(dirname "$1")/tests/test_metrics" ] || { echo "tests/test_metrics is not built"; exit 77; }
cd "$2/tests/integration" && exec timeout 280 python3 -B page.py "$1" "$2"
