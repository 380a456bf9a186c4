#!/bin/bash
# BY_TEST_TIMEOUT=1200
# 20,000 generated answers through deepseek-recipe 0.2.0 and through `bathyc conform`. Skipped without a package index.
# BY_SEED, BY_ROWS change what is generated. Arguments: program, source folder.
set -u
program=$1 src=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python=${BY_RECIPE_PYTHON:-}
if [ -z "$python" ]; then
    command -v python3 >/dev/null || { echo "no python3"; exit 77; }
    python3 -m venv "$dir/venv" >/dev/null 2>&1 || { echo "no venv"; exit 77; }
    "$dir/venv/bin/pip" install -q --disable-pip-version-check deepseek-recipe==0.2.0 >/dev/null 2>&1 ||
        { echo "no package index"; exit 77; }
    python=$dir/venv/bin/python
fi
"$python" "$src/tools/recipe_diff_answers.py" --program "$program" --tokenizer "$src/models/tiny/tokenizer.json" \
    --rows "${BY_ROWS:-20000}" --seed "${BY_SEED:-1}"
