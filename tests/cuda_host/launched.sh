#!/bin/bash
# launched.sh - fails when a kernel of src/ops/cuda has been launched by none of the emulated tests, whose lists of names are read.
# usage: launched.sh SOURCE-DIR LIST...
set -u
src=$1
shift
kernels=$(cat "$src"/src/ops/cuda/*.cu "$src"/src/ops/cuda/*.cuh | grep -v '^ *//' |
  sed -nE 's/.*__global__ void (__(launch_bounds|maxnreg)__\(.*\) )?([a-z0-9_]+_kernel)\(.*/\3/p' | sort -u)
declared=$(cat "$src"/src/ops/cuda/*.cu "$src"/src/ops/cuda/*.cuh | grep -v '^ *//' | grep -o '__global__' | wc -l)
[ "$(wc -w <<<"$kernels")" = "$declared" ] || { echo "$(wc -w <<<"$kernels") names of $declared kernels were found"; exit 1; }
# read_rate_kernel reads 12 GiB
missing=$(comm -23 <(grep -vx read_rate_kernel <<<"$kernels") <(cat "$@" | sed -E 's/^void //; s/[<(].*//; s/.*:://' | sort -u))
echo "$declared kernels, never launched: ${missing:-none}"
[ -z "$missing" ]
