/* synth_config.h - the config.json of a synthetic checkpoint: a preset or a file, with sizes changed. */
#ifndef BY_TOOLS_SYNTH_CONFIG_H
#define BY_TOOLS_SYNTH_CONFIG_H

#include "base/buf.h"
#include "cli/args.h"
#include "model/config.h"

typedef struct by_synth_config_opts {
    const char *path;     /* config.json to start from */
    int64_t n_layers;     /* 0 = as it is; else the pattern of kinds is stretched or shrunk to this many */
    int64_t n_experts;    /* 0 = as it is; also bounds the draft experts */
    int64_t vocab;        /* 0 = as it is; token ids of the config move inside */
    int64_t engram_vocab; /* 0 = as it is; first table size of the Engram hash */
    bool no_engram, no_drafts, no_vision;
    bool no_compression; /* Engram hashes plain token ids: no tokenizer.json is needed */
    by_flag_list sets;   /* "key=JSON" or "vision_config.key=JSON", last word before the Engram rows are summed */
} by_synth_config_opts;

/* text gets the new config.json, *out what it says. Errors: BY_EINVAL (a bad key=value), BY_EFORMAT (the result is no
 * valid configuration; problems has the list), those of reading the file. */
by_status by_synth_config_make(by_buf *text, by_config *out, const by_synth_config_opts *opts, by_problems *problems,
                               by_err *err);

#endif
