/* bench.h - the parts of `bathyc bench`: one row and one file src/cli/bench_<name>.c each. `bathyc bench` without a part, or
 * with flags only, is `bathyc bench model`. argv starts behind the part's name; exit codes as for commands. */
#ifndef BY_CLI_BENCH_H
#define BY_CLI_BENCH_H

#define BY_BENCH_TABLE(X)                                                                                              \
    X(draft, "speculative decoding: speed and accepted drafts, by mode, position and kind of prompt")                     \
    X(dummy, "steps of a configuration with made-up weights, beside the device's read rate")                           \
    X(engine, "many requests at once: output tokens per second, cost of a step")                                       \
    X(grammar, "many sequences limited by a grammar, beside the same number without one")                              \
    X(kernels, "every operator at the model's true dimensions, beside the machine's limits")                           \
    X(model, "prefill and decode speed of a model at given lengths")                                                   \
    X(prefill, "a long prompt with decoder rows left out, and with a cached beginning")                                \
    X(recipe, "request bodies to prompts and ids; text or ids of an answer to events")                                  \
    X(serve, "load on this or any OpenAI-compatible server")                                                           \
    X(tokenizer, "text to token ids and back")

#define BY_BENCH_DECL(name, help) int by_bench_##name(int argc, char **argv);
BY_BENCH_TABLE(BY_BENCH_DECL)
#undef BY_BENCH_DECL

#endif
