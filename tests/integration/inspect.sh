#!/bin/bash
# inspect.sh PROGRAM SOURCE - `bathyc inspect`: the JSON keeps its schema, broken folders exit 1 and list every problem,
# wrong usage exits 2.
set -u
. "$2/tests/support/shell.sh"
need_python

for name in first_light tiny_a tiny_b; do # two of them have no tokenizer of their own
    cp -r "$source/tests/golden/data/model/$name/checkpoint" "$tmp/$name"
    cp "$source/tests/golden/data/model/tiny_b/checkpoint/tokenizer.json" "$tmp/$name"
done
for model in "$source/models/tiny" "$tmp"/{first_light,tiny_a,tiny_b}; do
    expect_exit 0 "$program" inspect -m "$model" --json
    schema inspect
    is 'sum(p["bytes"] for p in d["weights"]["parts"]) == d["weights"]["bytes"]' True
    is 'len(d["layers"]) == d["architecture"]["layers"]' True
    is 'd["notes"]' '[]'
    expect_exit 0 "$program" inspect "$model"
    says out "Memory for 256 sequences of 4,096 tokens"
    LC_ALL=C grep -nP '[^\x20-\x7e]' "$tmp/out" && fail "$model: other than printable ASCII"
done

# the model rule: no flag = the tiny model, then BATHYC_MODEL, then the flag
expect_exit 0 "$program" inspect --json
is 'd["directory"].endswith("models/tiny")' True
expect_exit 0 env BATHYC_MODEL="$tmp/tiny_a" "$program" inspect --json
is 'd["architecture"]["vocab_size"]' 320
expect_exit 0 env BATHYC_MODEL=/nowhere "$program" inspect -m "$source/models/tiny" --json

# memory follows the flags, under all their names
expect_exit 0 "$program" inspect -m "$source/models/tiny" --json --ctx-size 8000 --max-num-seqs 1
is 'd["memory"]["kv_blocks"]' 64
is 'd["memory"]["state_slots"]' 2
expect_exit 0 "$program" inspect -m "$source/models/tiny" --json --max-model-len=100 -np 10
is 'd["memory"]["kv_blocks"]' 11
is 'd["memory"]["total_bytes"] == d["memory"]["kv_bytes"] + d["memory"]["state_bytes"] + d["memory"]["weights_bytes"]' True

# placement on a device of that size
expect_exit 0 "$program" inspect -m "$source/models/tiny" --json -c 1024 -np 4 -b 8 --gpu-memory 20M
is 'd["placement"]["device_experts"] + d["placement"]["host_experts"]' 184
is '0 < d["placement"]["device_experts"] < 184' True
is 'd["placement"]["fixed_bytes"] + d["placement"]["reserved_bytes"] + d["placement"]["device_expert_bytes"] <= d["placement"]["device_bytes"]' True
schema inspect
expect_exit 0 "$program" inspect -m "$source/models/tiny" --json --n-cpu-moe 3
is 'd["placement"]["host_experts"]' 48
expect_exit 0 "$program" inspect -m "$source/models/tiny" --cpu-moe
says out "routed experts on the host                184"
expect_exit 1 "$program" inspect -m "$source/models/tiny" -b 8 --gpu-memory 9M
says err "without any routed expert"
expect_exit 1 "$program" inspect -m "$source/models/tiny" --n-cpu-moe 11
says err "0..10"

# wrong folders
expect_exit 1 "$program" inspect -m "$tmp/none"
says err "$tmp/none"
mkdir "$tmp/empty"
expect_exit 1 "$program" inspect -m "$tmp/empty"
says err "config.json"
cp "$source/models/tiny/config.json" "$tmp/empty"
expect_exit 1 "$program" inspect -m "$tmp/empty"
says err "model.safetensors.index.json"
mkdir "$tmp/llama"
echo '{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}' >"$tmp/llama/config.json"
expect_exit 1 "$program" inspect -m "$tmp/llama"
says err "this is a checkpoint of LlamaForCausalLM; only DeepseekV41ForCausalLM is supported"

# every problem of a broken folder
cp -r "$tmp/tiny_a" "$tmp/broken"
sed -i 's/"num_experts_per_tok": 2/"num_experts_per_tok": 20/; s/"hc_mult": 4/"hc_mult": -4/' "$tmp/broken/config.json"
expect_exit 1 "$program" inspect -m "$tmp/broken" --json
says err "num_experts_per_tok: 20 is above n_routed_experts 8"
says err "hc_mult: -4 is outside 1..8"
is 'd["n_problems"]' 2
is 'len(d["problems"])' 2
cp "$source/tests/golden/data/model/tiny_a/checkpoint/config.json" "$tmp/broken/config.json"
truncate -s -5 "$tmp"/broken/model-00001-of-00001.safetensors
sed -i 's/"head.weight": "model-00001-of-00001.safetensors"/"head.weight": "model-00002-of-00002.safetensors"/' "$tmp/broken/model.safetensors.index.json"
expect_exit 1 "$program" inspect -m "$tmp/broken"
says err "truncated"
says err "model-00002-of-00002.safetensors: the shard is missing"
says err "tensor head.weight: the index says model-00002-of-00002.safetensors, it is in model-00001-of-00001.safetensors"

# a shard that was cut: one line says so
cp -r "$source/models/tiny" "$tmp/cut"
for shard in "$tmp"/cut/*.safetensors; do truncate -s 20000 "$shard"; done
for shard in "$tmp"/cut/*.safetensors; do truncate -s "$(($(od -An -t u8 -N 8 "$shard") + 5000))" "$shard"; done
expect_exit 1 "$program" inspect "$tmp/cut"
says err "tensors reach past it"
[ "$(wc -l <"$tmp/err")" -le 5 ] || fail "$(wc -l <"$tmp/err") lines about files that were cut: $(head -4 "$tmp/err")"

# without a tokenizer nothing can be answered
cp -r "$source/models/tiny" "$tmp/mute"
rm "$tmp/mute/tokenizer.json"
expect_exit 1 "$program" inspect "$tmp/mute" --json
says err "tokenizer.json: missing"
is 'd["n_problems"]' 1
printf '{"model": {"type": "BPE", "vocab": ' >"$tmp/mute/tokenizer.json"
expect_exit 1 "$program" inspect "$tmp/mute"
says err "$tmp/mute/tokenizer.json: "
says err ": 1 problem"

# values: a scale of 255 is found unless asked not to look
cp -r "$tmp/first_light" "$tmp/nan"
python3 - "$tmp/nan/model-00001-of-00001.safetensors" <<'PY'
import json, struct, sys
f = open(sys.argv[1], "r+b")
n = struct.unpack("<Q", f.read(8))[0]
h = json.loads(f.read(n))
f.seek(8 + n + h["layers.1.attn.wq_b.scale"]["data_offsets"][0] + 1)
f.write(b"\xff")
PY
expect_exit 1 "$program" inspect -m "$tmp/nan"
says err "tensor layers.1.attn.wq_b.scale: scale byte 255 (not a number) at [1, 0]"
expect_exit 0 "$program" inspect -m "$tmp/nan" --check-weights none

# usage
expect_exit 2 "$program" inspect --ctx-sise 5
says err "did you mean '--ctx-size'"
expect_exit 2 "$program" inspect --ctx-size 0
expect_exit 2 "$program" inspect --ctx-size 99999999999
expect_exit 2 "$program" inspect --check-weights some
expect_exit 2 "$program" inspect a b
expect_exit 2 "$program" inspect "$source/models/tiny" -m "$source/models/tiny"
says err "the model is given twice"
expect_exit 0 "$program" inspect --help
says out "--max-num-seqs"

finish inspect
