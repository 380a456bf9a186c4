#!/bin/bash
# `bathyc bench serve` against servers of the test (bench_serve.py). Arguments: program, source folder.
set -u
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
exec timeout 110 python3 -B "$2/tests/integration/bench_serve.py" "$1" "$2"
