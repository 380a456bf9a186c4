#!/bin/bash
# `bathyc bench serve` against servers of the test (bench_serve.py). Arguments: program, source folder.
set -u
. "$2/tests/support/shell.sh"
need_python
timeout $((300 * slowness)) python3 -B "$source/tests/integration/bench_serve.py" "$program" "$source"
