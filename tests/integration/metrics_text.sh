#!/bin/bash
# The text of /metrics through the parser of PyPI prometheus_client. Skipped without a package index.
# Arguments: program, source folder.
set -u
dump=$(dirname "$1")/tests/test_metrics
[ -x "$dump" ] || { echo "tests/test_metrics is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python=${BY_PROMETHEUS_PYTHON:-$dir/venv/bin/python}
if [ -z "${BY_PROMETHEUS_PYTHON:-}" ]; then
    python3 -m venv "$dir/venv" >/dev/null 2>&1 || { echo "no venv"; exit 77; }
    timeout 60 "$dir/venv/bin/pip" install -q --disable-pip-version-check prometheus_client==0.22.1 >/dev/null 2>&1 ||
        { echo "no package index"; exit 77; }
fi
"$dump" --dump >"$dir/text" || exit 1
"$python" - "$dir/text" <<'P'
import collections
import math
import sys

from prometheus_client.parser import text_string_to_metric_families

text = open(sys.argv[1]).read()
families = list(text_string_to_metric_families(text))
names = [f.name for f in families]
assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
assert all(f.documentation for f in families)
samples = [s for f in families for s in f.samples]
assert len(samples) == sum(not line.startswith("#") for line in text.splitlines())
keys = collections.Counter((s.name, tuple(sorted(s.labels.items()))) for s in samples)
assert max(keys.values()) == 1, keys.most_common(3)
for f in families:
    assert f.type in ("counter", "gauge", "histogram"), (f.name, f.type)
    for s in f.samples:
        assert s.value >= 0 and math.isfinite(s.value), s
    if f.type == "histogram":
        buckets = [(float(s.labels["le"]), s.value) for s in f.samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and buckets[-1][0] == math.inf, f.name
        count = [s.value for s in f.samples if s.name.endswith("_count")]
        assert count == [buckets[-1][1]], f.name
    if f.type == "counter":  # the parser takes _total off a counter's name
        assert all(s.name.endswith("_total") for s in f.samples), f.name
models = {s.labels["model_name"] for s in samples if "model_name" in s.labels}
assert models == {'a "quoted"\nback\\slash'}, models
print(f"metrics_text: {len(families)} families, {len(samples)} samples")
P
