#!/bin/bash
# tiny.sh PROGRAM SOURCE [quick] - the tiny model end to end on the device against the cpu backend: logits in exact numerics within
# 1e-4 everywhere, in the two quantised modes by the median (a value that falls to the other side of a rounding boundary is
# amplified by random weights), and no difference at all between one chunk, small chunks and token by token. Then greedy tokens with
# drafts and answers of the engine. quick: few tokens and no answers, where a CPU plays the device (tests/cuda_host).
program=$1
source=$2
quick=${3:-}
[ -n "$quick" ] && lengths="1 7" all="exact deployed" texts=1 tokens=6 || lengths="1 17 60 150 200" all="exact quantised deployed" texts=12 tokens=24
[ -n "$quick" ] && from=4 || from=20
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v lengths="$lengths" 'BEGIN { srand(5); n = split(lengths, len, " "); for (i = 1; i <= n; i++) { s = ""; for (k = 0; k < len[i]; k++)
  s = s (k ? "," : "") int(3 + rand() * 1990); printf "{\"id\":\"l%d\",\"tokens\":[%s]}\n", i, s } }' >"$work/lines.jsonl"
failed=0
run() { # numerics folder backend flags...
  mkdir -p "$work/$2"
  "$program" logits -m "$source/models/tiny" -i "$work/lines.jsonl" -o "$work/$2" --numerics "$1" --backend "$3" "${@:4}" || failed=1
}
for numerics in $all; do
  run $numerics cpu cpu
  run $numerics one cuda
  run $numerics chunk cuda --chunk 7
  run $numerics decode cuda --decode-from $from
  for i in $(seq "$(wc -w <<<"$lengths")"); do
    cmp "$work/one/l$i.npy" "$work/chunk/l$i.npy" && cmp "$work/one/l$i.npy" "$work/decode/l$i.npy" || failed=1
    # largest and median difference of the fp32 payloads (the header of these files is 128 bytes)
    paste <(tail -c +129 "$work/cpu/l$i.npy" | od -An -v -tf4 -w4) <(tail -c +129 "$work/one/l$i.npy" | od -An -v -tf4 -w4) |
      awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e30)) d = 1e30; print d }' | sort -g >"$work/diff"
    n=$(wc -l <"$work/diff")
    most=$(tail -1 "$work/diff")
    median=$(sed -n "$((n / 2 + 1))p" "$work/diff")
    echo "tiny $numerics line $i: $n values, median difference $median, largest $most"
    case $numerics in exact) bad=$(awk "BEGIN { print ($most > 1e-4) }") ;; *) bad=$(awk "BEGIN { print ($median > 0.4) }") ;; esac
    [ "$bad" = 0 ] || { echo "  FAILED"; failed=1; }
  done
done
# greedy tokens and answers of the engine equal the cpu backend's, in exact numerics: the same words, whatever shared the steps
awk -v texts=$texts -v tokens=$tokens 'BEGIN { srand(9); for (i = 1; i <= texts; i++) { s = "0"; for (k = 0; k < 5 + 7 * i; k++) s = s "," int(3 + rand() * 1990)
  printf "{\"id\":\"g%d\",\"tokens\":[%s],\"max_tokens\":%d,\"temperature\":0}\n", i, s, tokens } }' >"$work/generate.jsonl"
for backend in cpu cuda; do
  "$program" generate -m "$source/models/tiny" -i "$work/generate.jsonl" -o "$work/generate.$backend" --numerics exact --backend $backend || failed=1
  sed 's/,"logprob[^]}]*//g' "$work/generate.$backend" | grep -o '"id":"[^"]*"\|"tokens":\[[^]]*\]' | sort >"$work/tokens.$backend"
done
cmp "$work/tokens.cpu" "$work/tokens.cuda" && [ "$(wc -l <"$work/tokens.cpu")" -eq $((2 * texts)) ] && echo "greedy tokens equal the cpu backend's" ||
  { failed=1; echo "greedy tokens FAILED"; diff "$work/tokens.cpu" "$work/tokens.cuda" | cut -c1-300 | head -8; }
[ -n "$quick" ] && exit $failed
for i in 1 2 3 4 5 6 7 8; do
  printf '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"tiny","messages":[{"role":"user","content":"What is %d + %d?"}],"temperature":0,"max_tokens":32}}\n' \
    $i $((i * 7)) $((i + 3))
done >"$work/batch.jsonl"
answers() { grep -o '"custom_id":"[0-9]*"\|"content":"[^"]*"\|"reasoning_content":"[^"]*"' "$1" | paste -sd ' ' | sed 's/ *"custom_id"/\n&/g' | sed 's/^ *//' | sort; }
for backend in cpu cuda; do
  "$program" batch -m "$source/models/tiny" --served-model-name tiny --honour-sampling -i "$work/batch.jsonl" -o "$work/batch.$backend" --numerics exact \
    --backend $backend 2>"$work/batch.err" || { failed=1; cat "$work/batch.err"; }
  answers "$work/batch.$backend" >"$work/words.$backend"
done
cmp "$work/words.cpu" "$work/words.cuda" && [ "$(grep -c custom_id "$work/words.cpu")" -eq 8 ] && echo "answers of the engine equal the cpu backend's" ||
  { failed=1; echo "answers of the engine FAILED"; diff "$work/words.cpu" "$work/words.cuda" | head -20; }
exit $failed
