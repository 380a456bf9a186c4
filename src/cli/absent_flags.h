/* absent_flags.h - flags of the engine's specification, and of other engines, for parts that this program does not have: refused with
 * the reason, so that nobody believes that they work. A command that has such a flag after all names it in front of these rows. */
#ifndef BY_CLI_ABSENT_FLAGS_H
#define BY_CLI_ABSENT_FLAGS_H

#include "cli/args.h"

#define BY_ABSENT(flags, reason) {.names = (flags), .kind = BY_FLAG_ABSENT, .choices = (reason)}
#define BY_ABSENT_FLAG_ROWS                                                                                            \
    BY_ABSENT("--eplb-redundant,--eplb-window,--eplb-interval,--eplb-after-prefill,--eplb-p2p-groups,"                 \
              "--eplb-stat-interval,--eplb-verbose,--bench-moe-skew,--bench-moe-uniform",                              \
              "experts stay where --gpu-memory puts them and routing is the model's: nothing is moved or balanced"),               \
    BY_ABSENT("--comm-sms,--ctl-timeout,--dp,--cp,--ep,--tp,--dp-size,--cp-size,--ep-size,--tp-size,"                  \
              "--data-parallel-size,--context-parallel-size,--expert-parallel-size,--tensor-parallel-size,"            \
              "--pipeline-parallel-size,--enable-expert-parallel",                                                     \
              "one process runs the whole model on one device: there is nothing to divide or to send"),                \
    BY_ABSENT("--no-draft-graphs,--graph-step,--draft-graph-step",                                                     \
              "draft calls are not recorded, and recorded steps have 1, 2, 4 or a multiple of 8 rows"),                \
    BY_ABSENT("--cuda-graph-bs,--cuda-graph-sizes,--cudagraph-capture-sizes",                                          \
              "recorded steps have 1, 2, 4 or a multiple of 8 rows; see --cuda-graph-max-bs"),          \
    BY_ABSENT("--kernel-cache-dir", "kernels are compiled when the program is built"),                                 \
    BY_ABSENT("--index-workspace", "what a step needs is taken at the start; --max-num-batched-tokens bounds it"),     \
    BY_ABSENT("--engram-store", "the tables lie where the checkpoint is opened: mapped, or on the device"),            \
    BY_ABSENT("--state-history", "prompts are cut where a snapshot is of use: longer rings are not needed"),           \
    BY_ABSENT("--kv-cache-dtype,--cache-type-k,--cache-type-v,-ctk,-ctv", "caches have the format that the model was trained with"), \
    BY_ABSENT("--quantization,-q,--dtype", "weights are used as the checkpoint has them; see --numerics"),             \
    BY_ABSENT("--enable-lora,--lora-modules,--lora,--lora-paths", "there are no adapters: merge them into a checkpoint"), \
    BY_ABSENT("--n-gpu-layers,--gpu-layers,-ngl",                                                                      \
              "with --device cuda all layers run there; --gpu-memory and --n-cpu-moe say which experts lie there"),    \
    BY_ABSENT("--reasoning-parser,--tool-call-parser,--tool-parser",                                                   \
              "reasoning and calls are always taken out of the answer, in the model's own format: leave the flag out"),\
    BY_ABSENT("--ve-pool-gb,--ve-queue,--ve-timeout,--mmproj", "there is no picture input yet"),                                \
    BY_ABSENT("--stop-preempted", "sequences that give way are swapped to host memory and come back"),                 \
    BY_ABSENT("--chunked-prefill,--lookahead-tokens",                                                                  \
              "prompts are always read in chunks, beside what decodes; see --prefill-policy"),                         \
    BY_ABSENT("--tokens-per-block,--block-size", "blocks have 128 tokens"),                                            \
    BY_ABSENT("--exact", "results are exact unless --swa-restore, --decoder-keep or --spec-verify give that up"),      \
    BY_ABSENT("--snap-min-tokens,--load-timeout-ms,--store-tokens",                                                    \
              "released blocks and snapshots stay in memory: there is no store behind it"),                            \
    BY_ABSENT("--sum-smaller-probs", "only `bathyc batch` reports them, in lines of token ids")

#endif
