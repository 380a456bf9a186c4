# original.sh - sourced by tests that run deepseek-recipe 0.2.0 beside the program. Sets `python` to an interpreter that has it:
# BY_RECIPE_PYTHON if given, else one of a temporary environment, removed at the end. Without a package index the test is
# skipped (77).
original_dir=$(mktemp -d)
trap 'rm -rf "$original_dir"' EXIT
python=${BY_RECIPE_PYTHON:-}
if [ -z "$python" ]; then
    command -v python3 >/dev/null || { echo "no python3"; exit 77; }
    python3 -m venv "$original_dir/venv" >/dev/null 2>&1 || { echo "no venv"; exit 77; }
    timeout 300 "$original_dir/venv/bin/pip" install -q --disable-pip-version-check deepseek-recipe==0.2.0 >/dev/null 2>&1 ||
        { echo "no package index"; exit 77; }
    python=$original_dir/venv/bin/python
fi
