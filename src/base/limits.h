/* limits.h - every bound on a number that comes from outside, with its reason. */
#ifndef BY_BASE_LIMITS_H
#define BY_BASE_LIMITS_H

#define BY_LIMIT_JSON_DEPTH 256              /* files of ours; the stack of a recursive reader stays small */
#define BY_LIMIT_REQUEST_DEPTH 127           /* the recipe's own limit on request bodies */
#define BY_LIMIT_REQUEST_BYTES (32u << 20)   /* one HTTP body or batch line */
#define BY_LIMIT_JSON_FILE_BYTES (512u << 20) /* the published index is 25 MB, its tokenizer 8 MB */
#define BY_LIMIT_MESSAGES 100000             /* messages of one conversation */

#define BY_LIMIT_ST_HEADER_BYTES (256u << 20) /* safetensors header of one shard; the format itself says 100 MB */
#define BY_LIMIT_ST_SHARDS 4096
#define BY_LIMIT_ST_TENSORS 4000000
#define BY_LIMIT_ST_DIMS 8

#define BY_LIMIT_LAYERS 1024
#define BY_LIMIT_DRAFT_LAYERS 16
#define BY_LIMIT_HIDDEN 65536
#define BY_LIMIT_HEADS 1024
#define BY_LIMIT_HEAD_DIM 4096
#define BY_LIMIT_VOCAB 2000000
#define BY_LIMIT_TOKEN_BYTES 4096            /* one token's text; the published file's longest has 128 */
#define BY_LIMIT_EXPERTS 65536
#define BY_LIMIT_EXPERTS_PER_TOKEN 64
#define BY_LIMIT_HC_MULT 8
#define BY_LIMIT_HC_ITERS 1000
#define BY_LIMIT_CONTEXT (1 << 24)           /* positions; fp32 holds every integer up to here */
#define BY_LIMIT_WINDOW 65536
#define BY_LIMIT_TOPK 65536
#define BY_LIMIT_ENGRAM_LAYERS 16
#define BY_LIMIT_NGRAM 8
#define BY_LIMIT_DRAFT_BLOCK 64

#define BY_LIMIT_THREADS 1024
#define BY_LIMIT_STEP_ROWS (1 << 20)
#define BY_LIMIT_SEQS 65536

#endif
