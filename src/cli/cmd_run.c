/* cmd_run.c - `bathyc run`: one answer, streamed to standard output; speed on standard error.
 *
 * The prompt goes through the recipe library as a Chat Completions request, or raw. Reasoning is shown dimmed when standard
 * output is a terminal, and left out otherwise; with --json one object with everything is printed at the end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api_request.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/one_request.h"
#include "json/json_write.h"
#include "recipe/answer.h"
#include "recipe/prompt.h"
#include "service/service_grammar.h"

typedef struct {
    by_engine_flags flags;
    const char *prompt, *file, *system, *think;
    const char *schema, *regex, *grammar; /* files, the second a text: what limits the answer */
    by_flag_list stops, images;
    bool raw, json;
    by_draw_flags draw;
    by_engine *engine;
    const by_model *model;
    by_answer *answer;
    by_tok_scratch *scratch;
    by_buf content, reasoning;
    by_answer_end_kind end;
    by_answer_usage usage;
    bool dimmed, show_reasoning, ended, wrote, output_lost;
    by_err output_err; /* why */
    char last; /* byte written last */
} job;

/* ---- the request ---- */

static by_status read_prompt(job *j, by_buf *text, by_err *err) {
    if (j->file) BY_TRY(by_file_read(text, j->file, BY_LIMIT_REQUEST_BYTES, err));
    else by_buf_push_z(text, j->prompt);
    if (j->file && !j->raw && text->len && text->ptr[text->len - 1] == '\n') { /* the end of a file's last line is not the question's */
        text->len--;
        if (text->len && text->ptr[text->len - 1] == '\r') text->len--;
    }
    size_t bad = 0;
    if (!by_utf8_valid(by_buf_str(text), &bad))
        return BY_FAIL(err, BY_EFORMAT, "%s: not valid UTF-8 at byte %zu", j->file ? j->file : "--prompt", bad);
    if (j->system && !by_utf8_valid(by_str_z(j->system), &bad))
        return BY_FAIL(err, BY_EFORMAT, "--system: not valid UTF-8 at byte %zu", bad);
    for (int i = 0; i < j->stops.n; i++)
        if (!by_utf8_valid(by_str_z(j->stops.items[i]), &bad)) return BY_FAIL(err, BY_EFORMAT, "--stop: not valid UTF-8 at byte %zu", bad);
    if (text->len == 0) return BY_FAIL(err, BY_EINVAL, "the prompt is empty");
    return by_buf_check(text, err);
}

static void write_thinking(const job *j, by_json_out *o) {
    if (!j->think) return;
    bool none = strcmp(j->think, "none") == 0;
    by_json_out_key(o, "thinking");
    by_json_out_object_begin(o);
    by_json_out_key(o, "type");
    by_json_out_z(o, none ? "disabled" : "enabled");
    by_json_out_object_end(o);
    if (none) return;
    char *end;
    long n = strtol(j->think, &end, 10);
    by_json_out_key(o, "reasoning_effort");
    if (*j->think && *end == '\0') by_json_out_int(o, n);
    else by_json_out_z(o, j->think);
}

/* Schema, pattern or grammar as the fields of a request; a schema is shown to the model too, where there is a chat format. */
static by_status write_limit(const job *j, by_json_out *o, by_err *err) {
    by_buf text = {0};
    by_arena arena;
    by_json schema;
    by_status status = BY_OK;
    const char *file = j->schema ? j->schema : j->grammar;
    by_arena_init(&arena, BY_MEM_JSON);
    if (file) status = by_file_read(&text, file, BY_LIMIT_REQUEST_BYTES, err);
    if (status == BY_OK && j->schema && by_json_parse(&schema, &arena, by_buf_str(&text), NULL, err) < 0)
        status = by_err_prefix(err, "%s, read as a JSON schema (for EBNF, GBNF and Lark see --grammar): ", file);
    if (status == BY_OK && (file || j->regex)) {
        bool format = j->schema && !j->raw;
        by_json_out_key(o, format ? "response_format" : "structured_outputs");
        by_json_out_object_begin(o);
        by_json_out_key(o, format ? "type" : j->schema ? "json" : j->regex ? "regex" : "grammar");
        if (format) {
            by_json_out_z(o, "json_schema");
            by_json_out_key(o, "json_schema");
            by_json_out_object_begin(o);
            by_json_out_key(o, "schema");
        }
        if (j->schema) by_json_out_value(o, &schema);
        else by_json_out_string(o, j->regex ? by_str_z(j->regex) : by_buf_str(&text));
        if (format) by_json_out_object_end(o);
        by_json_out_object_end(o);
    }
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
    return status;
}

/* The same request that a client would send. */
static by_status write_body(const job *j, by_str text, by_buf *body, by_err *err) {
    by_json_out o = by_json_out_init(body, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "model");
    by_json_out_z(&o, "DeepSeek-V4.1-Flash");
    if (j->raw) {
        by_json_out_key(&o, "prompt");
        by_json_out_string(&o, text);
    } else {
        by_json_out_key(&o, "messages");
        by_json_out_array_begin(&o);
        for (int i = j->system ? 0 : 1; i < 2; i++) {
            by_json_out_object_begin(&o);
            by_json_out_key(&o, "role");
            by_json_out_z(&o, i ? "user" : "system");
            by_json_out_key(&o, "content");
            by_json_out_string(&o, i ? text : by_str_z(j->system));
            by_json_out_object_end(&o);
        }
        by_json_out_array_end(&o);
        write_thinking(j, &o);
    }
    if (j->stops.n) {
        by_json_out_key(&o, "stop");
        by_json_out_array_begin(&o);
        for (int i = 0; i < j->stops.n; i++) by_json_out_z(&o, j->stops.items[i]);
        by_json_out_array_end(&o);
    }
    BY_TRY(write_limit(j, &o, err));
    by_json_out_object_end(&o);
    return by_buf_check(body, err);
}

static by_status convert(job *j, by_arena *arena, by_str body, by_api_converted *c, by_err *err) {
    by_api_options o;
    by_api_options_init(&o);
    o.profile = BY_API_SERVER;
    o.honour_sampling = true;
    o.default_thinking = j->think != NULL; /* a plain question gets a plain answer */
    by_api_error refused = {0};
    by_status status = by_api_convert(c, &refused, arena, j->raw ? BY_API_COMPLETIONS : BY_API_CHAT, body, &o, err);
    if (status == BY_EINVAL) return BY_FAIL(err, BY_EINVAL, "%.*s", BY_STR_ARG(refused.message));
    return status;
}

static by_status encode(job *j, const by_api_converted *c, by_tok_ids *ids, by_err *err) {
    by_recipe_prompt p = {0};
    const by_tok *tok = j->model->tok;
    by_status status;
    if (j->raw) status = by_recipe_render_completion(&p, c->prompts[0].text, NULL, NULL, err);
    else status = by_recipe_render(&p, &c->conversation, c->version, NULL, err);
    if (status == BY_OK) status = by_recipe_encode(ids, &p, tok, j->scratch, err);
    by_recipe_prompt_deinit(&p);
    return status;
}

/* ---- the answer ---- */

static void put(job *j, by_str text) {
    if (text.len == 0 || j->json || j->output_lost) return;
    j->output_lost = by_fd_write_all(1, text.ptr, text.len, &j->output_err) < 0;
    j->wrote = true;
    j->last = text.ptr[text.len - 1];
}

static void dim(job *j, bool on) {
    if (on == j->dimmed || !j->show_reasoning) return;
    put(j, on ? BY_STR("\x1b[2m") : BY_STR("\x1b[0m\n"));
    j->dimmed = on;
}

static void on_delta(void *ctx, const by_answer_delta *d) {
    job *j = ctx;
    switch (d->d.kind) {
    case BY_DELTA_REASONING:
        by_buf_push_str(&j->reasoning, d->d.text);
        if (!j->show_reasoning) break;
        dim(j, true);
        put(j, d->d.text);
        break;
    case BY_DELTA_CONTENT:
        dim(j, false);
        by_buf_push_str(&j->content, d->d.text);
        put(j, d->d.text);
        break;
    case BY_DELTA_CALL:
        dim(j, false);
        put(j, BY_STR("\n[call] "));
        put(j, d->d.text);
        put(j, BY_STR(" "));
        break;
    case BY_DELTA_ARGS: put(j, d->d.text); break;
    }
}

static void on_begin(void *ctx, const by_answer_begin *b) { (void)ctx, (void)b; }

static void on_end(void *ctx, const by_answer_end *e) {
    job *j = ctx;
    dim(j, false);
    j->end = e->kind;
    j->usage = e->usage;
    j->ended = true;
}

static by_status on_token(void *arg, int32_t token, by_err *err) {
    job *j = arg;
    BY_TRY(by_answer_tokens(j->answer, &token, 1, NULL, 0, err));
    if (j->output_lost) {
        *err = j->output_err;
        return by_err_prefix(err, "standard output: ");
    }
    return j->ended ? BY_END : BY_OK;
}

static by_status make_answer(job *j, const by_api_converted *c, int32_t n_prompt, by_err *err) {
    static const by_answer_sink template = {on_begin, on_delta, on_end, NULL};
    by_answer_sink sink = template;
    sink.ctx = j;
    by_answer_opts o = {.parser = c->parsing, .tok = j->model->tok, .scratch = j->scratch, .thinking = j->think != NULL,
                        .call_id_seed = j->draw.seed, .server = true, .each_token = true};
    int32_t eos = j->model->cfg.eos_id;
    o.end_ids = &eos;
    o.n_end_ids = 1;
    BY_TRY(by_answer_create(&j->answer, &o, &sink, err));
    return by_answer_ready(j->answer, (uint64_t)n_prompt, 0, NULL, err);
}

/* What is wrong in a file is bad data; on the command line it is wrong usage. */
static by_status blame(const job *j, by_status status, by_err *err) {
    const char *file = j->schema ? j->schema : j->grammar;
    if (status != BY_EINVAL && status != BY_EUNSUPPORTED && status != BY_EGRAMMAR) return status;
    if (!file) return BY_EINVAL;
    by_err_prefix(err, "%s%s: ", file, j->schema ? "" : ", read as EBNF, GBNF or Lark (for a JSON schema see --json-schema)");
    return BY_EFORMAT;
}

static by_status generate(job *j, const by_api_converted *c, by_arena *arena, const by_tok_ids *ids, by_one_result *r, by_err *err) {
    int64_t limit = by_engine_max_context(j->engine), n_prompt = (int64_t)ids->n, room = limit - n_prompt;
    if (room < 1)
        return BY_FAIL(err, BY_ECONTEXT, "the prompt has %lld tokens and the context holds %lld%s, one of which must be left",
                       (long long)n_prompt, (long long)limit, by_engine_context_reason(j->engine));
    by_request_grammar g;
    bool limited;
    BY_TRY(blame(j, by_service_grammar(&g, &limited, arena, c, j->model->tok, err), err));
    g.close_by_budget = true; /* max_tokens leaves room to complete the answer */
    by_request_opts o = by_request_opts_default();
    o.tokens = ids->ids;
    o.n_tokens = (int32_t)n_prompt;
    o.max_tokens = (int32_t)(j->draw.max_tokens < room ? j->draw.max_tokens : room);
    o.grammar = limited ? &g : NULL;
    BY_TRY(by_draw_flags_set(&o.sampling, &j->draw, true, err));
    o.sampling.eos_id = j->model->cfg.eos_id;
    BY_TRY(make_answer(j, c, (int32_t)n_prompt, err));
    by_status status = by_one_request_run(r, j->engine, &o, on_token, j, NULL, err);
    if (status == BY_EGRAMMAR && r->info.start_us == 0) return blame(j, status, err); /* it did not compile */
    if (status < 0 || j->ended) return status;
    return by_answer_finish(j->answer, r->finish == BY_CHOICE_LENGTH ? BY_REASON_LENGTH : BY_REASON_STOP, err);
}

/* ---- the report ---- */

static const char *finish_name(by_answer_end_kind k) {
    return k == BY_END_LENGTH ? "length" : k == BY_END_CALLS ? "tool_calls" : "stop";
}

static double seconds(int64_t from_us, int64_t to_us) { return to_us > from_us ? (double)(to_us - from_us) * 1e-6 : 0; }

static by_status print_json(job *j, const by_one_result *r, by_err *err) {
    by_buf out = {0};
    by_json_out o = by_json_out_init(&out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "content");
    by_json_out_string(&o, by_buf_str(&j->content));
    by_json_out_key(&o, "reasoning_content");
    if (j->reasoning.len) by_json_out_string(&o, by_buf_str(&j->reasoning));
    else by_json_out_null(&o);
    by_json_out_key(&o, "finish_reason");
    by_json_out_z(&o, finish_name(j->end));
    const struct { const char *key; uint64_t value; } counts[] = {
        {"prompt_tokens", (uint64_t)r->info.n_prompt}, {"completion_tokens", j->usage.completion_tokens},
        {"reasoning_tokens", j->usage.reasoning_tokens}, {"seed", j->draw.seed}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        by_json_out_key(&o, counts[i].key);
        by_json_out_uint(&o, counts[i].value);
    }
    by_json_out_key(&o, "prefill_s");
    by_json_out_double(&o, seconds(r->info.submit_us, r->info.first_us));
    by_json_out_key(&o, "decode_s");
    by_json_out_double(&o, seconds(r->info.first_us, r->info.end_us));
    by_json_out_object_end(&o);
    by_buf_push_byte(&out, '\n');
    by_status status = by_buf_check(&out, err);
    if (status == BY_OK) status = by_fd_write_all(1, out.ptr, out.len, err);
    by_buf_deinit(&out);
    return status;
}

/* "prompt: 12 tokens, 340.1 tokens/s"; no time is no rate. n_timed: those that took the time. */
static void print_count(const char *what, int64_t n, int64_t n_timed, double s) {
    fprintf(stderr, "%s: %lld token%s", what, (long long)n, n == 1 ? "" : "s");
    if (n_timed > 0 && s > 0) fprintf(stderr, ", %.1f tokens/s", (double)n_timed / s);
}

static void print_notes(const job *j, const by_one_result *r) {
    const by_request_info *i = &r->info;
    double prefill_s = seconds(i->submit_us, i->first_us), decode_s = seconds(i->first_us, i->end_us);
    if (j->end == BY_END_LENGTH)
        fprintf(stderr, "(cut: the limit of tokens is reached%s)\n",
                j->reasoning.len && !j->content.len ? "; the reasoning took all of them"
                : j->schema || j->regex || j->grammar ? "; the text may be incomplete" : "");
    print_count("prompt", i->n_prompt, i->n_prompt > 1 ? i->n_prompt : 0, prefill_s);
    /* The time begins with the first token. What one step brought came together: two tokens are no measurement, nor are a block's. */
    print_count("; generation", r->n_output, i->n_steps != 1 ? r->n_output - 1 : 0, decode_s);
    if (i->n_verified) fprintf(stderr, "; drafts: %lld of %lld right", (long long)i->n_accepted, (long long)i->n_verified);
    fprintf(stderr, "\n");
}

static by_status run(job *j, by_err *err) {
    by_buf text = {0}, body = {0};
    by_arena arena;
    by_arena_init(&arena, BY_MEM_REQUEST);
    by_api_converted c;
    by_tok_ids ids = {0};
    by_one_result r = {0};
    by_status status = read_prompt(j, &text, err);
    if (status < 0) goto out;
    BY_TRY_OUT(write_body(j, by_buf_str(&text), &body, err));
    BY_TRY_OUT(blame(j, convert(j, &arena, by_buf_str(&body), &c, err), err));
    j->flags.prefix_cache = false; /* there is only this request */
    BY_TRY_OUT(by_one_request_open(&j->engine, &j->flags, err));
    j->model = by_engine_model(j->engine);
    if (!j->model->tok) {
        status = BY_FAIL(err, BY_EMISSING, "the model's folder has no tokenizer.json");
        goto out;
    }
    BY_TRY_OUT(by_tok_scratch_create(&j->scratch, j->model->tok, err));
    BY_TRY_OUT(encode(j, &c, &ids, err));
    BY_TRY_OUT(generate(j, &c, &arena, &ids, &r, err));
    if (j->json) BY_TRY_OUT(print_json(j, &r, err));
    else if (j->wrote && j->last != '\n') put(j, BY_STR("\n"));
    print_notes(j, &r);
out:
    by_tok_ids_deinit(&ids);
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
    by_buf_deinit(&body);
    return status;
}

/* The shell's prompt shall not stand behind a half answer, nor be dim. */
static void on_interrupt(int number) {
    ssize_t n = write(STDOUT_FILENO, "\x1b[0m\n", 5);
    (void)n;
    raise(number); /* SA_RESETHAND: ends the program as if there were no handler */
}

static void end_line_on_interrupt(void) {
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
}

static bool usage_ok(job *j) {
    if (!j->prompt == !j->file) return fprintf(stderr, "bathyc run: give either --prompt or --file\n"), false;
    if (j->images.n) return fprintf(stderr, "bathyc run: --image: this build has no image input\n"), false;
    if (j->raw && (j->system || j->think)) return fprintf(stderr, "bathyc run: --raw takes neither --system nor --think\n"), false;
    by_err err;
    if (j->think && by_chat_check_think(by_str_z(j->think), &err) < 0) return fprintf(stderr, "bathyc run: --think: %s\n", err.msg), false;
    if ((j->schema != NULL) + (j->regex != NULL) + (j->grammar != NULL) > 1)
        return fprintf(stderr, "bathyc run: give one of --json-schema, --regex and --grammar\n"), false;
    return true;
}

int by_cmd_run(int argc, char **argv) {
    job j = {.flags = by_engine_flags_default(), .draw = by_draw_flags_default(4096)};
    const by_flag flags[] = {
        {.names = "--prompt,-p", .kind = BY_FLAG_STRING, .out = &j.prompt, .help = "the question"},
        {.names = "--file,-f", .kind = BY_FLAG_STRING, .out = &j.file, .help = "read it from a file (- = standard input)"},
        {.names = "--raw", .kind = BY_FLAG_BOOL, .out = &j.raw, .help = "continue the text without the chat format"},
        {.names = "--system", .kind = BY_FLAG_STRING, .out = &j.system, .help = "system message"},
        {.names = "--think", .kind = BY_FLAG_STRING, .out = &j.think, .help = "none, low, high, max or 1 to 100 (default: none)"},
        {.names = "--image", .kind = BY_FLAG_LIST, .out = &j.images, .help = NULL},
        BY_DRAW_FLAG_ROWS(j.draw, "4096"),
        {.names = "--stop", .kind = BY_FLAG_LIST, .out = &j.stops, .help = "end the answer at this text; may repeat"},
        {.names = "--json-schema", .kind = BY_FLAG_STRING, .out = &j.schema, .help = "file with a JSON schema that the answer follows"},
        {.names = "--regex", .kind = BY_FLAG_STRING, .out = &j.regex, .help = "regular expression that the whole answer matches"},
        {.names = "--grammar", .kind = BY_FLAG_STRING, .out = &j.grammar, .help = "file with an EBNF (GBNF) or Lark grammar of the answer"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &j.json, .help = "print one JSON object instead of the text"},
        BY_ONE_REQUEST_FLAG_ROWS(j.flags),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"run", "-p TEXT [flags]", "Answers one question.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = BY_OK;
    if (!usage_ok(&j)) return by_args_free(flags, n_flags), 2;
    j.show_reasoning = isatty(1) && !j.json;
    if (isatty(1)) end_line_on_interrupt();
    if (status == BY_OK) status = run(&j, &err);
    if (status < 0) fprintf(stderr, "%sbathyc run: %s\n", j.wrote && j.last != '\n' ? "\n" : "", err.msg);
    by_answer_destroy(j.answer);
    by_tok_scratch_destroy(j.scratch);
    by_buf_deinit(&j.content);
    by_buf_deinit(&j.reasoning);
    by_engine_close(j.engine);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&j.flags);
    return status < 0 ? by_model_exit_code(status) : 0;
}
