#!/bin/bash
# BY_TEST_TIMEOUT=1200 BY_TEST_TSAN=no: `conform` has one thread
# 21,000 generated requests and conversations through deepseek-recipe 0.2.0 and through `bathyc conform`. Skipped without a
# package index. BY_SEED, BY_ROWS (of each of the seven kinds) change what is generated. Arguments: program, source folder.
set -u
program=$1 src=$2
. "$src/tests/support/original.sh"
"$python" "$src/tools/recipe_diff_requests.py" "$program" "$src/models/tiny/tokenizer.json" \
    --n "${BY_ROWS:-3000}" --seed "${BY_SEED:-1}"
