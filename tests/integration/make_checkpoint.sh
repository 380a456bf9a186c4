#!/bin/bash
# make_checkpoint.sh PROGRAM SOURCE - the synthetic checkpoints load clean, are the same whatever the shards, follow their
# flags, and their values have the spread they should have.
set -u
bathyc=$1 source=$2
make=$(dirname "$bathyc")/tools/make_checkpoint
[ -x "$make" ] || { echo "make_checkpoint is not built"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }
run() { "$make" "$@" 2>"$tmp/err" || fail "make_checkpoint $*: $(cat "$tmp/err")"; }
inspect() { # a folder without a tokenizer gets one: without it nothing is whole
    [ -e "$1/tokenizer.json" ] || cp "$source/models/tiny/tokenizer.json" "$1"
    "$bathyc" inspect -m "$1" --json --check-weights full >"$tmp/out" 2>"$tmp/err" || fail "inspect $1: $(head -5 "$tmp/err")"
}
is() {
    local got
    got=$(python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); t=d["architecture"]; print(eval(sys.argv[2], {"d": d, "t": t, "sum": sum, "len": len}))' "$tmp/out" "$1")
    [ "$got" = "$2" ] || fail "$1 is $got instead of $2"
}
# sum of the tensors' bytes by name, whatever the shards
digest() { python3 - "$1" <<'PY'
import glob, hashlib, json, struct, sys
found = {}
for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            found[name.removeprefix("model.")] = hashlib.sha256(data[8 + n + a:8 + n + b]).hexdigest()
print(len(found), hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest())
PY
}

run -o "$tmp/a"
inspect "$tmp/a"
is 'd["notes"]' '[]'
is 't["layers"]' 40
is '[l["layer"] for l in d["layers"] if l["kind"] == "full"]' '[2, 8, 14, 20]'
is '[l["layer"] for l in d["layers"] if l["kind"] == "reindex"]' '[24, 28, 32, 36]'
run -o "$tmp/b" --shard-mb 1 --prefix
inspect "$tmp/b"
is 'd["files"]["shards"] > 5' True
[ "$(digest "$tmp/a")" = "$(digest "$tmp/b")" ] || fail "shards or prefix change the values"
run -o "$tmp/c" --seed 1 --layers 8 --experts 4 --vocab 300 --without-drafts --without-vision --without-engram --set use_fp4_sparse_kv=false
inspect "$tmp/c"
is '(t["layers"], t["draft_layers"], t["vision_layers"], t["experts"], t["vocab_size"])' '(8, 0, 0, 4, 300)'
is '[l["ratio"] for l in d["layers"]]' '[0, 2, 2, 2, 1, 1, 1, 1]'
is '(d["caches"]["kv_record_bytes"], len([l for l in d["layers"] if l["engram"]]))' '(66, 0)'
run -o "$tmp/d" --config "$source/models/tiny/config.json" --tokenizer "$source/models/tiny/tokenizer.json"
inspect "$tmp/d"
is 't["vocab_size"]' 5376
cmp -s "$tmp/d/tokenizer.json" "$source/models/tiny/tokenizer.json" || fail "tokenizer.json was not copied"

for n in 1 2 3 4 5 7 11 40 63; do
    run -o "$tmp/n" --force --layers $n --experts 2
    inspect "$tmp/n"
    is 't["layers"]' $n
done

refuse() {
    local want=$1 text=$2 got
    shift 2
    "$make" "$@" >"$tmp/out" 2>"$tmp/err"
    got=$?
    [ $got = "$want" ] && grep -qF -- "$text" "$tmp/err" || fail "make_checkpoint $*: exit $got, $(cat "$tmp/err")"
}
refuse 1 "there is a checkpoint already" -o "$tmp/a"
refuse 1 "hidden_size: 100 is not a multiple of 32" -o "$tmp/x" --set hidden_size=100
refuse 1 "expected key=value" -o "$tmp/x" --set hidden_size
refuse 1 "there is no medium" -o "$tmp/x" --preset medium
refuse 1 "--out is needed" --preset narrow
refuse 2 "did you mean '--experts'" -o "$tmp/x" --expert 3
[ ! -e "$tmp/x" ] || fail "a refused run left a folder"

python3 - "$tmp/a" <<'PY' || fail "spread of the values"
import json, struct, sys
path = sys.argv[1] + "/model-00001-of-00001.safetensors"
data = open(path, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
raw = lambda name: data[8 + n + header[name]["data_offsets"][0]:8 + n + header[name]["data_offsets"][1]]
shape = lambda name: header[name]["shape"]
E2M1 = [0, .5, 1, 1.5, 2, 3, 4, 6]
def e4m3(b):
    e, m = b >> 3 & 15, b & 7
    v = m * 2.0 ** -9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
    return -v if b & 128 else v
TABLE = [e4m3(b) for b in range(256)]
def fp8(name):
    rows, cols = shape(name + ".weight")
    w, s = raw(name + ".weight"), raw(name + ".scale")
    per_row = shape(name + ".scale")[1]
    tile = 32 if shape(name + ".scale")[0] != rows else 1
    return [TABLE[w[r * cols + c]] * 2.0 ** (s[r // tile * per_row + c // 32] - 127) for r in range(rows) for c in range(cols)], cols
def fp4(name):
    rows, half = shape(name + ".weight")
    w, s = raw(name + ".weight"), raw(name + ".scale")
    out = []
    for r in range(rows):
        for c in range(half):
            scale = 2.0 ** (s[r * (half // 16) + c // 16] - 127)
            for code in (w[r * half + c] & 15, w[r * half + c] >> 4):
                assert code != 8, "negative zero"
                out.append((-1 if code & 8 else 1) * E2M1[code & 7] * scale)
    return out, 2 * half
def bf16(name):
    b = raw(name)
    return [struct.unpack("<f", b"\0\0" + b[i:i + 2])[0] for i in range(0, len(b), 2)], shape(name)[-1]
def f32(name):
    b = raw(name)
    return list(struct.unpack(f"<{len(b) // 4}f", b)), shape(name)[-1]
def spread(v):
    mean = sum(v) / len(v)
    return mean, (sum((x - mean) ** 2 for x in v) / len(v)) ** .5
bad = 0
for name, (values, cols), mean, std in [
        ("wq_a", fp8("layers.3.attn.wq_a"), 0, None), ("wo_b", fp8("layers.9.attn.wo_b"), 0, None),
        ("expert", fp4("layers.5.ffn.experts.1.w1"), 0, None), ("w2", fp4("layers.5.ffn.experts.1.w2"), 0, None),
        ("table", fp8("layers.1.engram.embed"), 0, 1), ("embed", bf16("embed.weight"), 0, 1), ("head", bf16("head.weight"), 0, None),
        ("norm", bf16("norm.weight"), 1, .1), ("fn", f32("layers.0.hc_attn_fn"), 0, None), ("bias", f32("layers.0.ffn.gate.bias"), 0, .5)]:
    want = cols ** -.5 if std is None else std
    m, s = spread(values)
    # the scales vary by 1/2, 1, 2: few tiles leave their mean square uncertain
    loose = 4 / len(values) ** .5 + .06 + (1.4 * (1024 / len(values)) ** .5 if name.startswith("w") and name != "w2" else 0)
    if abs(m - mean) > 4 * want / len(values) ** .5 + .02 * want or abs(s / want - 1) > loose:
        print(f"{name}: mean {m:.4f} instead of {mean}, spread {s:.4f} instead of {want:.4f}")
        bad = 1
sys.exit(bad)
PY

# sparse files of the published sizes take no room
if truncate -s 1G "$tmp/probe" && [ "$(stat -c %b "$tmp/probe")" -lt 1000 ]; then
    run -o "$tmp/s" --preset flash --layers 6 --experts 16 --sparse
    [ "$(du -sm "$tmp/s" | cut -f1)" -lt 20 ] || fail "sparse files take $(du -sh "$tmp/s")"
fi
[ "$failures" = 0 ] && echo "make_checkpoint: all checks passed"
exit $((failures > 0))
