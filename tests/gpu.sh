#!/bin/bash
# gpu.sh - builds the cuda backend and runs every test that needs a device. Exit code 77 = skipped: no compiler or no device.
# usage: tests/gpu.sh [build folder]     environment: SECTIONS="gemm moe ..." also times those sections of gpu_bench
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build-cuda}
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
[ -n "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
nvidia-smi -L >/dev/null 2>&1 || { echo "skipped: no device"; exit 77; }
cmake -G Ninja -S "$root" -B "$build" -DBATHYC_CUDA=ON -DBATHYC_TESTS=OFF -DBATHYC_WERROR=OFF -DCMAKE_CUDA_COMPILER="$nvcc" \
  -DCMAKE_CUDA_ARCHITECTURES="${ARCH:-90a-real}" >"$build.log" 2>&1 && ninja -C "$build" bathyc gpu_ops gpu_draw gpu_steady gpu_replay gpu_engine gpu_golden gpu_bench >>"$build.log" 2>&1 ||
  { tail -20 "$build.log"; exit 1; }
failed=0
"$build/tests/gpu_ops" || failed=1
"$build/tests/gpu_draw" || failed=1
"$build/tests/gpu_steady" "$root/models/tiny" || failed=1
"$build/tests/gpu_replay" "$root/tests/golden/data/model/tiny_b/checkpoint" || failed=1
"$build/tests/gpu_engine" "$root/tests/golden/data/model/tiny_b/checkpoint" || failed=1
"$build/tests/gpu_golden" "$root/models/tiny" "$root/tests/golden/data/device/greedy.jsonl" || failed=1
if command -v compute-sanitizer >/dev/null; then
  compute-sanitizer --tool memcheck --error-exitcode 1 "$build/tests/gpu_ops" quick >"$build/memcheck.txt" 2>&1 || failed=1
  tail -1 "$build/memcheck.txt"
else
  echo "compute-sanitizer is not installed: memory accesses were not checked"
fi
bash "$root/tests/gpu/tiny.sh" "$build/bathyc" "$root" || failed=1
for section in ${SECTIONS:-}; do "$build/tests/gpu_bench" "$section" || failed=1; done
exit $failed
