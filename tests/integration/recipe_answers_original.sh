#!/bin/bash
# BY_TEST_TIMEOUT=1200 BY_TEST_TSAN=no: `conform` has one thread
# 20,000 generated answers through deepseek-recipe 0.2.0 and through `bathyc conform`. Skipped without a package index.
# BY_SEED, BY_ROWS change what is generated. Arguments: program, source folder.
set -u
program=$1 src=$2
. "$src/tests/support/original.sh"
"$python" "$src/tools/recipe_diff_answers.py" --program "$program" --tokenizer "$src/models/tiny/tokenizer.json" \
    --rows "${BY_ROWS:-20000}" --seed "${BY_SEED:-1}"
