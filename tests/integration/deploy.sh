#!/bin/bash
# What lies in deploy/: the dashboard is what its generator writes, the unit is one that systemd reads, the server talks to systemd as
# the unit says, and nginx passes tokens on when they come. Parts are left out where a tool is missing. Arguments: program, source.
set -u
program=$1 source=$2
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0 parts=
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

python3 -B "$source/tools/make_dashboard.py" >"$tmp/board" && cmp -s "$tmp/board" "$source/deploy/grafana-dashboard.json" ||
    fail "deploy/grafana-dashboard.json is not what tools/make_dashboard.py writes"

if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/local/bin/bathyc|$program|" "$source/deploy/bathyc.service" >"$tmp/bathyc.service"
    # Without a running systemd the command cannot say everything, but it names what it does not understand.
    systemd-analyze verify --man=no "$tmp/bathyc.service" >"$tmp/verify" 2>&1
    grep -i 'bathyc.service' "$tmp/verify" && fail "the unit"
    parts="$parts systemd-analyze"
fi

timeout 300 python3 -B "$source/tests/integration/deploy.py" "$program" "$source" "$tmp" || fail "deploy.py"
[ $failures -eq 0 ] && echo "deploy: ok$parts"
exit $((failures > 0))
