#!/bin/bash
# test.sh - sets up what is missing, builds and runs every test that needs no GPU. Safe to run again.
#
#   ./test.sh              release build with gcc, all tests (operators on ref, cpu and guard); a build with clang, whose
#                          warnings fail; the ARM operators under emulation; the CUDA backend compiled, its tests where
#                          there is a device
#   ./test.sh --sanitize   the suite under AddressSanitizer + UndefinedBehaviorSanitizer, then under ThreadSanitizer
#   ./test.sh --quick      only the first part, without long property runs
#
# The last two lines are `N skipped` and `N passed, N failed`; the exit code is 0 only when nothing failed.
# BY_JOBS=N: build and test jobs (default: processors). BY_TEST_SCALE=P: length of property tests in percent.
set -u
BY_ROOT=$(cd "$(dirname "$0")" && pwd)
. "$BY_ROOT/tools/setup.sh"
cd "$BY_ROOT" || exit 1
jobs=${BY_JOBS:-$(nproc)}
passed=0 failed=0 skipped=0 wrap=
mode=${1:-all}
case $mode in all | --sanitize | --quick) ;; *) sed -n '2,13p' "$0"; exit 2 ;; esac

# count NAME OK: one more test of the script's own
count() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $1"; fi
}

# build PRESET [CMAKE-ARGUMENTS]: configures and builds everything; counts as a test when it fails
build() {
    local preset=$1 log=build-$1.log
    shift
    by_say "build: $preset"
    if cmake --preset "$preset" "$@" >"$log" 2>&1 && cmake --build --preset "$preset" -- -j "$jobs" -k 0 >>"$log" 2>&1; then
        tail -n 1 "$log"
        rm -f "$log"
        return 0
    fi
    grep -E 'error|warning|FAILED' "$log" | head -n 40
    echo "(all of it: $log)"
    count "build $preset" 1
    return 1
}

# run_tests DIR [CTEST-ARGUMENTS]: adds CTest's numbers to ours
run_tests() {
    local dir=$1 report="$1/junit.xml" head n bad skip
    shift
    by_say "tests: $dir${BY_TEST_SCALE:+ (property tests at $BY_TEST_SCALE %)}"
    rm -f "$report"
    (cd "$dir" && $wrap ctest --output-on-failure --no-tests=error -j "$jobs" --output-junit junit.xml "$@")
    if [ ! -s "$report" ]; then
        count "ctest in $dir" 1
        return
    fi
    head=$(tr '\n' ' ' <"$report" | grep -o '<testsuite [^>]*>' | head -n 1)
    number() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" <<<"$head"; }
    n=$(number tests) bad=$(number failures) skip=$(number skipped)
    passed=$((passed + n - bad - skip)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

# The CUDA backend: compiles for SM90 and SM100 where there is a compiler; its tests run where there is a device.
cuda() {
    local nvcc rc
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
    if [ -z "$nvcc" ]; then
        echo "cuda: no nvcc, not compiled"
        skipped=$((skipped + 2))
        return
    fi
    by_say "build: cuda"
    cmake --preset cuda -DBATHYC_TESTS=OFF -DCMAKE_CUDA_COMPILER="$nvcc" >build-cuda.log 2>&1 &&
        cmake --build build-cuda --target by_ops gpu_ops gpu_bench -- -j "$jobs" >>build-cuda.log 2>&1
    rc=$?
    [ $rc = 0 ] || grep -E 'error|FAILED' build-cuda.log | head -n 20
    count "build cuda" $rc
    tests/gpu.sh build-gpu
    rc=$?
    if [ $rc = 77 ]; then skipped=$((skipped + 1)); else count "tests/gpu.sh" $rc; fi
}

# Warnings are errors with the compilers that the code is kept clean for; others may know new ones.
werror() {
    case "$1-$("$1" -dumpversion | cut -d. -f1)" in
    gcc-12 | clang-14) echo -DBATHYC_WERROR=ON ;;
    *) echo -DBATHYC_WERROR=OFF ;;
    esac
}

by_say "packages"
groups=(build test)
[ "$mode" = all ] && groups+=(neon)
if ! by_setup "${groups[@]}"; then
    echo "0 passed, 1 failed"
    exit 1
fi

if [ "$mode" = --sanitize ]; then
    export BY_TEST_SCALE=${BY_TEST_SCALE:-10}
    build debug -DBATHYC_TESTS=ON "$(werror gcc)" && run_tests build-debug -LE "gpu|slow"
    # ThreadSanitizer is slower still. It needs the addresses of old: with many random bits in them its runtime refuses to start
    # now and then. Reports go to files, so that those of a server behind a test count too.
    export BY_TEST_SCALE=5 TSAN_OPTIONS="log_path=$BY_ROOT/build-tsan/race"
    if build tsan -DBATHYC_TESTS=ON "$(werror gcc)"; then
        setarch -R true 2>/dev/null && wrap="setarch -R"
        rm -f build-tsan/race.*
        run_tests build-tsan -LE "gpu|slow"
        wrap=
        ! cat build-tsan/race.* 2>/dev/null
        count "no report of ThreadSanitizer" $?
    fi
else
    [ "$mode" = --quick ] && export BY_TEST_SCALE=${BY_TEST_SCALE:-20}
    build release -DBATHYC_TESTS=ON "$(werror gcc)" && run_tests build -LE "gpu|slow"
    by_say "demo.sh"
    ./demo.sh | tail -n 8 | tee build/demo.out
    grep -qxF "[thinking]" build/demo.out && grep -A 1 -xF "[answer]" build/demo.out | grep -qF "17 + 25 = 42"
    count "demo.sh" $?
fi
if [ "$mode" = all ]; then
    build clang -DBATHYC_TESTS=ON "$(werror clang)" && count "clang build" 0
    export BY_TEST_SCALE=10
    build neon -DBATHYC_TESTS=ON && run_tests build-neon -R "ops|formats|sample|cpu|pool|rope|gemm|attention" -LE "gpu|slow"
    cuda
fi
echo
echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
