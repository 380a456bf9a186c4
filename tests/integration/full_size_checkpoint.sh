#!/bin/bash
# full_size_checkpoint.sh PROGRAM SOURCE - the published sizes (96,085 tensors, 510 GB) as sparse files: opening and
# inspecting them takes at most 2 seconds and 200 MB of resident memory. Best of three runs, the first on cold pages.
set -u
bathyc=$1 source=$2
make=$(dirname "$bathyc")/tools/make_checkpoint
[ -x "$make" ] || { echo "make_checkpoint is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
truncate -s 150G "$tmp/probe" 2>/dev/null && [ "$(stat -c %b "$tmp/probe")" -lt 1000 ] ||
    { echo "$tmp has no sparse files of this size"; exit 77; }
rm "$tmp/probe"
"$make" --preset flash --sparse --tokenizer "$source/models/tiny/tokenizer.json" -o "$tmp/ck" || exit 1
sanitized=$(grep -qE '__(asan|tsan)_init' "$bathyc"; echo $?)
python3 - "$bathyc" "$tmp/ck" "$sanitized" <<'PY'
import json, resource, subprocess, sys, time
bathyc, folder, plain = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
best = 1e9
for _ in range(3):
    start = time.monotonic()
    run = subprocess.run([bathyc, "inspect", "-m", folder, "--json"], capture_output=True, text=True)
    best = min(best, time.monotonic() - start)
    if run.returncode:
        sys.exit(run.stderr)
mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
report = json.loads(run.stdout)
got = {p["part"]: p["bytes"] for p in report["weights"]["parts"]}
print(f"best of 3: {best:.2f} s, {mb:.0f} MB resident, {report['files']['tensors']} tensors, {report['weights']['bytes'] / 1e9:.1f} GB")
bad = []
if report["files"]["tensors"] != 96085: bad.append("tensors")
if report["notes"]: bad.append("notes")
if got["draft"] + got["draft_experts"] != 7932874632: bad.append(f"draft bytes {got['draft'] + got['draft_experts']}")
if round(report["weights"]["step_fixed_bytes"] / 1e9, 2) != 8.52: bad.append("fixed bytes")
if round(got["experts"] / 1e9, 1) != 288.8 or round(got["engram_tables"] / 1e9, 1) != 202.8: bad.append("large parts")
if report["caches"]["token_bytes"] != 890 or not 3128352 <= report["caches"]["sequence_bytes"] < 3129408: bad.append("caches")
if plain and best > 2: bad.append(f"{best:.2f} s is over 2 s")
if plain and mb > 200: bad.append(f"{mb:.0f} MB is over 200 MB")
sys.exit("FAIL: " + ", ".join(bad) if bad else 0)
PY
