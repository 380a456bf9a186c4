/* cmd_encode.c - `bathyc encode`: a request of one of the APIs -> the prompt, its token ids, and what else the request says.
 *
 * What the request asks for is written once, as JSON; people get the same members, one a line. A request that is refused
 * gives the error object that a client of the API would get, on standard output, and its message on standard error. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/conform_recipe.h"
#include "recipe/recipe_tok.h"

enum { FORM_PLAIN, FORM_JSON, FORM_TEXT, FORM_IDS };
enum { NAMES_MAX = 64 }; /* as in the server */

typedef struct {
    const char *input, *model, *tokenizer;
    int api, profile, form;
    int64_t context;
    bool honour;
    by_flag_list names; /* accepted as "model" */
} options;

typedef struct {
    const options *o;
    by_arena arena;
    by_buf body, out;
    by_tok *tok;
    by_tok_scratch *scratch;
    by_api_options api;
    by_api_model_name names[NAMES_MAX];
    by_buf dir; /* of the model */
    by_api_converted request;
    by_api_error error;
    by_recipe_prompt prompt; /* of the prompt at hand: completions may have many */
    by_tok_ids ids;
} job;

/* ---- prompts ---- */

static by_status make_prompt(job *j, uint32_t i, by_err *err) {
    const by_api_converted *r = &j->request;
    j->ids.n = 0;
    if (r->api != BY_API_COMPLETIONS) {
        BY_TRY(by_recipe_render(&j->prompt, &r->conversation, r->version, NULL, err));
        return by_recipe_encode(&j->ids, &j->prompt, j->tok, j->scratch, err);
    }
    const by_api_prompt *p = &r->prompts[i];
    if (!p->n_ids) {
        BY_TRY(by_recipe_render_completion(&j->prompt, p->text, r->has_suffix ? &r->suffix : NULL, NULL, err));
        return by_recipe_encode(&j->ids, &j->prompt, j->tok, j->scratch, err);
    }
    by_buf_clear(&j->prompt.text); /* ids are taken as they are; the text is what they spell */
    j->prompt.n_ranges = 0;
    for (uint32_t k = 0; k < p->n_ids; k++) BY_TRY(by_tok_ids_push(&j->ids, (int32_t)p->ids[k], err));
    return by_tok_decode(j->tok, j->ids.ids, j->ids.n, false, &j->prompt.text, err);
}

static uint32_t n_prompts(const job *j) { return j->request.api == BY_API_COMPLETIONS ? j->request.n_prompts : 1; }

/* ---- JSON ---- */

static by_status write_prompt(job *j, uint32_t i, by_json_out *o, by_err *err) {
    BY_TRY(make_prompt(j, i, err));
    by_conform_write_prompt(o, &j->prompt);
    by_json_out_key(o, "ids");
    by_json_out_array_begin(o);
    for (size_t k = 0; k < j->ids.n; k++) by_json_out_int(o, j->ids.ids[k]);
    by_json_out_array_end(o);
    by_json_out_key(o, "n_tokens");
    by_json_out_uint(o, j->ids.n);
    if (!j->o->context) return BY_OK;
    uint32_t room;
    BY_TRY(by_api_resolve_max_tokens(&room, &j->error, &j->arena, &j->request, &j->api, j->ids.n, (uint64_t)j->o->context, err));
    by_json_out_key(o, "max_new_tokens");
    by_json_out_uint(o, room);
    return BY_OK;
}

/* The server profile's sampling fields, as the API spells them. */
static void write_sampling(by_json_out *o, const by_api_inference *inf) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"presence_penalty", (double)inf->presence_penalty},
                   {"frequency_penalty", (double)inf->frequency_penalty},
                   {"repetition_penalty", (double)inf->repetition_penalty},
                   {"min_p", (double)inf->min_p}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        by_json_out_key(o, numbers[i].key);
        by_conform_write_float(o, (float)numbers[i].value);
    }
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"n", inf->n}, {"best_of", inf->best_of}, {"top_k", inf->top_k}, {"min_tokens", inf->min_tokens}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        by_json_out_key(o, counts[i].key);
        by_json_out_int(o, counts[i].value);
    }
    by_json_out_key(o, "ignore_eos");
    by_json_out_bool(o, inf->ignore_eos);
    by_json_out_key(o, "stop_token_ids");
    by_json_out_array_begin(o);
    for (uint32_t i = 0; i < inf->n_stop_ids; i++) by_json_out_int(o, inf->stop_ids[i]);
    by_json_out_array_end(o);
    by_json_out_key(o, "logit_bias");
    by_json_out_object_begin(o);
    for (uint32_t i = 0; i < inf->n_logit_bias; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "%u", inf->logit_bias[i].token);
        by_json_out_key_str(o, by_str_of(key, (size_t)n));
        by_conform_write_float(o, inf->logit_bias[i].value);
    }
    by_json_out_object_end(o);
}

/* Everything but the prompts. */
static void write_settings(by_json_out *o, const job *j) {
    static const char *const apis[] = {"chat", "responses", "messages", "completions"};
    const by_api_converted *r = &j->request;
    by_json_out_key(o, "api");
    by_json_out_z(o, apis[r->api]);
    by_json_out_key(o, "model");
    by_json_out_string(o, r->model);
    by_json_out_key(o, "model_version");
    by_json_out_z(o, by_recipe_version_name(r->version));
    by_json_out_key(o, "stream");
    by_json_out_bool(o, r->stream);
    if (r->conversation.effort == BY_EFFORT_NUMBER) {
        by_json_out_key(o, "effort_number");
        by_json_out_int(o, r->conversation.effort_number);
    }
    by_conform_write_settings(o, r);
    if (j->o->profile == BY_API_PARITY && r->api != BY_API_COMPLETIONS) return;
    by_json_out_key(o, "sampling");
    by_json_out_object_begin(o);
    write_sampling(o, &r->inference);
    by_json_out_object_end(o);
}

static by_status write_json(job *j, by_err *err) {
    by_json_out o = by_json_out_init(&j->out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    write_settings(&o, j);
    BY_TRY(write_prompt(j, 0, &o, err));
    if (n_prompts(j) > 1) {
        by_json_out_key(&o, "more_prompts");
        by_json_out_array_begin(&o);
        for (uint32_t i = 1; i < n_prompts(j); i++) {
            by_json_out_object_begin(&o);
            BY_TRY(write_prompt(j, i, &o, err));
            by_json_out_object_end(&o);
        }
        by_json_out_array_end(&o);
    }
    by_json_out_object_end(&o);
    by_buf_push_byte(&j->out, '\n');
    return BY_OK;
}

/* ---- for people ---- */

/* A text under its heading, indented by two. */
static void push_part(by_buf *out, const char *heading, by_str text) {
    by_buf_printf(out, "%s\n", heading);
    for (size_t i = 0, start = 0; i <= text.len; i++) {
        if (i < text.len && text.ptr[i] != '\n') continue;
        by_buf_push_z(out, "  ");
        by_buf_push(out, text.ptr + start, i - start);
        by_buf_push_byte(out, '\n');
        start = i + 1;
    }
}

/* Members of an object, one a line; those of objects inside it behind them. What is null is left out. */
static void push_members(by_buf *out, const by_json *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        const by_json_member *m = &v->v.members[i];
        if (m->value.type == BY_JSON_NULL) continue;
        if (m->value.type == BY_JSON_OBJECT && !by_str_eqz(m->key, "logit_bias") && !by_str_eqz(m->key, "constraint")) {
            push_members(out, &m->value);
            continue;
        }
        by_buf_printf(out, "  %-22.*s", BY_STR_ARG(m->key));
        if (m->value.type == BY_JSON_STRING) by_buf_push_str(out, m->value.v.s);
        else by_json_write(out, &m->value, BY_JSON_PYTHON);
        by_buf_push_byte(out, '\n');
    }
}

static by_status push_settings(job *j, by_err *err) {
    by_buf text = {0};
    by_json v;
    by_json_out o = by_json_out_init(&text, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    write_settings(&o, j);
    by_json_out_object_end(&o);
    by_status status = by_buf_check(&text, err);
    if (status == BY_OK) status = by_json_parse(&v, &j->arena, by_buf_str(&text), NULL, err);
    if (status == BY_OK) {
        by_buf_push_z(&j->out, "parameters\n");
        push_members(&j->out, &v);
    }
    by_buf_deinit(&text);
    return status;
}

static void push_ids(by_buf *out, const by_tok_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) by_buf_printf(out, "%s%d", i ? " " : "", ids->ids[i]);
}

static by_status write_plain(job *j, by_err *err) {
    for (uint32_t i = 0; i < n_prompts(j); i++) {
        by_buf ids = {0};
        BY_TRY(make_prompt(j, i, err));
        push_ids(&ids, &j->ids);
        push_part(&j->out, "prompt", by_buf_str(&j->prompt.text));
        by_buf_printf(&j->out, "%zu ids", j->ids.n);
        push_part(&j->out, "", by_buf_str(&ids));
        j->out.failed |= ids.failed;
        by_buf_deinit(&ids);
        uint32_t room;
        if (!j->o->context) continue;
        BY_TRY(by_api_resolve_max_tokens(&room, &j->error, &j->arena, &j->request, &j->api, j->ids.n, (uint64_t)j->o->context, err));
        by_buf_printf(&j->out, "at most %u new tokens\n", room);
    }
    return push_settings(j, err);
}

/* Only the text, as it is, or only the ids; a line for each prompt of ids. */
static by_status write_bare(job *j, by_err *err) {
    for (uint32_t i = 0; i < n_prompts(j); i++) {
        BY_TRY(make_prompt(j, i, err));
        if (j->o->form == FORM_TEXT) {
            by_buf_push_str(&j->out, by_buf_str(&j->prompt.text));
        } else {
            push_ids(&j->out, &j->ids);
            by_buf_push_byte(&j->out, '\n');
        }
    }
    return BY_OK;
}

/* ---- the command ---- */

static void add_name(job *j, by_str name, by_recipe_version version) {
    j->names[j->api.n_models++] = (by_api_model_name){name, version};
}

/* The names that requests may give the model: those of --served-model-name, else the vendor's two and, as the server has it, the folder's.
 * The original knows no folder. */
static by_status set_names(job *j, by_err *err) {
    const options *o = j->o;
    if (o->names.n > NAMES_MAX) return BY_FAIL(err, BY_EINVAL, "--served-model-name: more than %d names", NAMES_MAX);
    j->api.models = j->names;
    for (int i = 0; i < o->names.n; i++) add_name(j, by_str_z(o->names.items[i]), BY_RECIPE_V41);
    if (o->names.n) return BY_OK;
    add_name(j, BY_STR("DeepSeek-V4-Pro"), BY_RECIPE_V4);
    add_name(j, BY_STR("DeepSeek-V4.1-Flash"), BY_RECIPE_V41);
    if (o->profile == BY_API_PARITY || by_command_model_dir(&j->dir, o->model, NULL) < 0) return BY_OK; /* --tokenizer needs no model */
    by_str dir = by_buf_str(&j->dir);
    while (dir.len && dir.ptr[dir.len - 1] == '/') dir.len--;
    const char *slash = dir.len ? memrchr(dir.ptr, '/', dir.len) : NULL;
    by_str name = slash ? by_str_skip(dir, (size_t)(slash + 1 - dir.ptr)) : dir;
    if (name.len && !by_str_eqz(name, "DeepSeek-V4-Pro") && !by_str_eqz(name, "DeepSeek-V4.1-Flash")) add_name(j, name, BY_RECIPE_V41);
    return BY_OK;
}

static by_status convert(job *j, by_err *err) {
    const options *o = j->o;
    by_api_options_init(&j->api);
    j->api.profile = (by_api_profile)o->profile;
    j->api.honour_sampling = o->honour;
    BY_TRY(set_names(j, err));
    BY_TRY(by_file_read(&j->body, o->input, BY_LIMIT_JSON_FILE_BYTES, err)); /* the limit of requests is for the API to name */
    BY_TRY(by_api_convert(&j->request, &j->error, &j->arena, (by_api_kind)o->api, by_buf_str(&j->body), &j->api, err));
    by_buf path = {0};
    bool v41 = j->request.version == BY_RECIPE_V41;
    by_status status = by_command_tokenizer_file(&path, o->tokenizer, o->model, err);
    if (status == BY_OK)
        status = v41 ? by_recipe_tok_open(&j->tok, by_buf_z(&path), err) : by_tok_open(&j->tok, by_buf_z(&path), NULL, err);
    if (status == BY_OK) status = by_tok_scratch_create(&j->scratch, j->tok, err);
    by_buf_deinit(&path);
    return status;
}

static by_status run(job *j, by_err *err) {
    BY_TRY(convert(j, err));
    if (j->o->form == FORM_PLAIN) BY_TRY(write_plain(j, err));
    else if (j->o->form == FORM_JSON) BY_TRY(write_json(j, err));
    else BY_TRY(write_bare(j, err));
    return by_buf_check(&j->out, err);
}

/* Writes the answer, or the API's error; the exit code. */
static int finish(job *j, const by_usage *usage, by_status status, by_err *err) {
    if (j->error.http_status) {
        by_buf_clear(&j->out);
        by_api_error_write(&j->out, &j->error);
        by_buf_push_byte(&j->out, '\n');
        by_err_set(err, BY_EINVAL, __FILE__, __LINE__, "%.*s", BY_STR_ARG(j->error.message));
    }
    if (status != BY_OK) by_command_fail(usage, err);
    if (status == BY_OK || j->error.http_status) fwrite(j->out.ptr, 1, j->out.len, stdout);
    if (fflush(stdout) != 0 && status == BY_OK) {
        status = BY_FAIL(err, BY_EIO, "standard output: writing failed");
        by_command_fail(usage, err);
    }
    return status == BY_OK ? 0 : 1;
}

int by_cmd_encode(int argc, char **argv) {
    const by_usage usage = {"encode", "[flags] [FILE]",
                            "Shows what a request (JSON; FILE or standard input) becomes: the prompt, its token ids, the settings.\n"};
    options o = {.input = "-", .profile = BY_API_SERVER};
    bool json = false, text = false, ids = false;
    const by_flag flags[] = {
        {"--api", BY_FLAG_CHOICE, &o.api, .help = "whose request it is (default: chat)", .choices = "chat|responses|messages|completions"},
        {"--json", BY_FLAG_BOOL, &json, .help = "one JSON object with everything"},
        {"--text", BY_FLAG_BOOL, &text, .help = "only the prompt's text"},
        {"--ids", BY_FLAG_BOOL, &ids, .help = "only the token ids"},
        {"--profile", BY_FLAG_CHOICE, &o.profile, .help = "server (default) or parity = exactly as the original",
         .choices = "parity|server"},
        {"--honour-sampling", BY_FLAG_BOOL, &o.honour, .help = "keep temperature and top_p as sent, in thinking mode too"},
        {"--ctx-size,--max-model-len,-c,--context-length", BY_FLAG_INT, &o.context, .min = 1, .max = BY_LIMIT_CONTEXT,
         .help = "refuse what does not fit, and say how much may be generated"},
        {"--served-model-name,--alias", BY_FLAG_LIST, &o.names,
         .help = "accepted as \"model\"; may repeat (default: the vendor's names and the folder's)"},
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    int code, n = 0;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, &o.input, 1, &n, &code)) return code;
    if (json + text + ids > 1) {
        by_args_free(flags, n_flags);
        return fprintf(stderr, "bathyc encode: --json, --text and --ids exclude each other\n"), 2;
    }
    o.form = json ? FORM_JSON : text ? FORM_TEXT : ids ? FORM_IDS : FORM_PLAIN;
    by_err err = {0};
    job j = {.o = &o};
    by_arena_init(&j.arena, BY_MEM_REQUEST);
    by_status status = run(&j, &err);
    code = finish(&j, &usage, status, &err);
    by_recipe_prompt_deinit(&j.prompt);
    by_tok_ids_deinit(&j.ids);
    by_tok_scratch_destroy(j.scratch);
    by_tok_destroy(j.tok);
    by_buf_deinit(&j.body);
    by_buf_deinit(&j.dir);
    by_buf_deinit(&j.out);
    by_arena_deinit(&j.arena);
    by_args_free(flags, n_flags);
    return code;
}
