#!/bin/bash
# demo.sh - builds bathyc and says one thing to the bundled tiny model. Installs what is missing (Debian 12, Ubuntu
# 24.04) and asks nothing; safe to run again. Usage: ./demo.sh [PROMPT]
set -eu
BY_ROOT=$(cd "$(dirname "$0")" && pwd)
. "$BY_ROOT/tools/setup.sh"
cd "$BY_ROOT"

by_say "packages"
by_setup build

by_say "build (build/bathyc)"
# A first build leaves the tests out, which need more packages, and does not stop at warnings that only a newer compiler
# knows; an existing build folder keeps its choices.
first=()
[ -f build/CMakeCache.txt ] || first=(-DBATHYC_TESTS=OFF -DBATHYC_WERROR=OFF)
cmake --preset release "${first[@]}" >build.log 2>&1 || { cat build.log; exit 1; }
ninja -C build bathyc
rm -f build.log

prompt=${1:-What is 17 plus 25?}
by_say "echo \"$prompt\" | build/bathyc chat --temp 0"
printf '%s\n' "$prompt" | build/bathyc chat --temp 0
echo
echo "Next: build/bathyc chat, build/bathyc help, ./test.sh"
