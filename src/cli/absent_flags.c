/* absent_flags.c - see absent_flags.h. A name that ends in '-' stands for all that begin so. */
#include "cli/absent_flags.h"

#include <stddef.h>
#include <string.h>

const char *by_absent_flag_reason(const char *name) {
    static const struct {
        const char *names; /* with spaces between */
        const char *reason;
    } table[] = {
        {"--eplb- --bench-moe-", "one device holds every expert and routing is the model's: nothing is moved or balanced"},
        {"--comm-sms --ctl-timeout --dp --cp --ep --tp --dp-size --cp-size --ep-size --tp-size --data-parallel-size "
         "--context-parallel-size --expert-parallel-size --tensor-parallel-size --pipeline-parallel-size",
         "one process runs the whole model on one device: there is nothing to divide or to send"},
        {"--no-graphs --no-draft-graphs --graph-step --draft-graph-step --enforce-eager", "steps are not captured as graphs"},
        {"--kernel-cache-dir", "kernels are compiled when the program is built"},
        {"--index-workspace", "what a step needs is taken at the start; --max-num-batched-tokens bounds it"},
        {"--engram-store", "the tables lie where the checkpoint is opened: mapped into memory, or on the device"},
        {"--state-history", "prompts are cut where a snapshot is of use, so longer rings are not needed"},
        {"--profile-", "there are no hooks for profilers; --log-steps and `bathyc bench` tell where time goes"},
        {"--ve-", "there is no picture input yet"},
        {"--load-format", "a checkpoint is opened as it is; tools/make_checkpoint makes random ones"},
        {"--stop-preempted", "sequences that have to give way are swapped to host memory and come back"},
        {"--chunked-prefill --lookahead-tokens", "prompts are always read in chunks, beside what decodes; see --prefill-policy"},
        {"--tokens-per-block --block-size", "blocks have 128 tokens"},
        {"--exact", "results are exact unless --swa-restore, --decoder-keep or --spec-verify give that up"},
        {"--snap-min-tokens --load-timeout-ms --store-tokens", "released blocks and snapshots stay in memory: there is no store behind it"},
        {"--sum-smaller-probs", "only `bathyc batch` reports them, in lines of token ids"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        for (const char *at = table[i].names; *at;) {
            size_t n = strcspn(at, " ");
            if (strncmp(at, name, n) == 0 && (at[n - 1] == '-' || name[n] == '\0')) return table[i].reason;
            at += n + (at[n] == ' ');
        }
    }
    return NULL;
}
