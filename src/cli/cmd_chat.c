/* cmd_chat.c - `bathyc chat`: a conversation in the terminal. Lines that begin with a slash are commands; everything else is
 * said to the model, whose reasoning is shown dimmed (or under a heading, when the output is no terminal). Ctrl-C stops an
 * answer and keeps the conversation. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/chat_line.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/one_request.h"
#include "recipe/recipe_tok.h"

static atomic_bool stop_asked; /* the handler may run on a thread of the engine */

static void on_interrupt(int number) {
    (void)number;
    stop_asked = true;
}
static bool interrupted(void) { return stop_asked; }

/* ---- the screen ---- */

typedef struct {
    bool color, hide_reasoning, plain_headings;
    int part; /* -1 nothing yet, else the by_delta_kind shown last */
    bool at_line_start;
} screen;

#define DIM "\033[2m"
#define NORMAL "\033[0m"

/* Text of a model must not steer the terminal: control characters other than line ends and tabs become '?'. */
static void put_text(by_str text) {
    for (size_t i = 0; i < text.len;) {
        by_utf8_step s = by_utf8_next(text.ptr + i, text.len - i);
        bool control = s.kind != BY_UTF8_CHAR || (s.cp < 0x20 && s.cp != '\n' && s.cp != '\t') || (s.cp >= 0x7f && s.cp < 0xa0);
        if (control) putchar('?');
        else fwrite(text.ptr + i, 1, s.n, stdout);
        i += s.n;
    }
}

static void show(void *ctx, by_delta_kind kind, by_str text) {
    screen *s = ctx;
    if ((kind == BY_DELTA_REASONING && s->hide_reasoning) || text.len == 0) return;
    if (s->part != (int)kind) {
        if (s->color) fputs(kind == BY_DELTA_REASONING ? DIM : s->part < 0 ? "" : NORMAL, stdout);
        if (s->part >= 0) fputs(s->at_line_start ? "\n" : "\n\n", stdout);
        if (s->plain_headings && (kind == BY_DELTA_REASONING || s->part >= 0))
            fputs(kind == BY_DELTA_REASONING ? "[thinking]\n" : "[answer]\n", stdout);
        s->part = (int)kind;
    }
    put_text(text);
    s->at_line_start = text.ptr[text.len - 1] == '\n';
    fflush(stdout);
}

static void end_answer(screen *s) {
    if (s->color && s->part >= 0) fputs(NORMAL, stdout);
    if (s->part >= 0 && !s->at_line_start) putchar('\n');
    fflush(stdout);
}

/* ---- the model ---- */

typedef struct {
    by_engine *engine;
    by_draw_flags draw;
    int32_t eos_id;
    by_one_result last;
} backend;

static by_status generate(void *ctx, const int32_t *prompt, size_t n, by_chat_take *take, void *arg, by_answer_reason *reason,
                          by_err *err) {
    backend *b = ctx;
    int64_t room = by_engine_max_context(b->engine) - (int64_t)n;
    if (room < 1)
        return BY_FAIL(err, BY_ECONTEXT, "the conversation has %zu tokens, the context %lld: /clear starts a new one", n,
                       (long long)by_engine_max_context(b->engine));
    by_request_opts o = by_request_opts_default();
    o.tokens = prompt;
    o.n_tokens = (int32_t)n;
    o.max_tokens = (int32_t)(room < b->draw.max_tokens ? room : b->draw.max_tokens);
    o.sampling.eos_id = b->eos_id;
    BY_TRY(by_draw_flags_set(&o.sampling, &b->draw, false, err));
    by_status status = by_one_request_run(&b->last, b->engine, &o, take, arg, interrupted, err);
    if (b->last.finish == BY_CHOICE_LENGTH) *reason = BY_REASON_LENGTH;
    return status;
}

/* ---- commands ---- */

typedef struct {
    by_chat *chat;
    backend *model;
    screen screen;
    bool terminal, quit;
    int code;
} session;

static void note(const session *s, const char *text) { fprintf(s->terminal ? stdout : stderr, "%s\n", text); }

static void tell(const session *s, by_status status, const by_err *err, const char *done) {
    if (status == BY_OK) note(s, done);
    else fprintf(stderr, "%s\n", err->msg);
}

static void help(session *s, by_str arg) {
    (void)arg;
    note(s, "/help            this list\n"
            "/clear           forget the conversation, keep the system text\n"
            "/system [TEXT]   set the system text (without TEXT: show it; /system - removes it)\n"
            "/think [HOW]     none, low, high, max or 1 to 100 (without HOW: show it)\n"
            "/save FILE       write the conversation\n"
            "/load FILE       read one back\n"
            "/quit            leave (so does Ctrl-D); Ctrl-C stops an answer\n"
            "Anything else is said to the model; // at the front stands for one slash.");
}

static void clear(session *s, by_str arg) {
    (void)arg;
    by_chat_clear(s->chat);
    note(s, "(cleared)");
}

static void system_text(session *s, by_str arg) {
    by_err err;
    if (arg.len == 0) {
        by_str now = by_chat_system(s->chat);
        if (now.len == 0) note(s, "(no system text)");
        else {
            put_text(now);
            putchar('\n');
        }
        return;
    }
    if (by_str_eqz(arg, "-")) arg = BY_STR("");
    tell(s, by_chat_set_system(s->chat, arg, &err), &err, "(system text set)");
}

static void think(session *s, by_str arg) {
    by_err err;
    if (arg.len && by_chat_set_think(s->chat, arg, &err) != BY_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return;
    }
    fprintf(s->terminal ? stdout : stderr, "(thinking: %s)\n", by_chat_think(s->chat));
}

static void file_command(session *s, by_str arg, by_status (*run)(by_chat *, const char *, by_err *), const char *done) {
    by_err err = {0};
    by_buf path = {0};
    if (arg.len == 0) {
        fprintf(stderr, "a file name is needed\n");
        return;
    }
    by_buf_push_str(&path, arg);
    tell(s, run(s->chat, by_buf_z(&path), &err), &err, done);
    by_buf_deinit(&path);
}

static by_status save_it(by_chat *c, const char *path, by_err *err) { return by_chat_save(c, path, err); }
static void save(session *s, by_str arg) { file_command(s, arg, save_it, "(saved)"); }
static void load(session *s, by_str arg) { file_command(s, arg, by_chat_load, "(loaded)"); }

static void quit(session *s, by_str arg) {
    (void)arg;
    s->quit = true;
}

static void run_command(session *s, by_str line) {
    static const struct {
        const char *name;
        void (*run)(session *s, by_str arg);
    } table[] = {{"/help", help}, {"/clear", clear}, {"/system", system_text}, {"/think", think},
                 {"/save", save}, {"/load", load},   {"/quit", quit},          {"/exit", quit}};
    enum { N = sizeof table / sizeof table[0] };
    size_t n = 0;
    while (n < line.len && line.ptr[n] != ' ') n++;
    by_str name = by_str_take(line, n), arg = by_str_skip(line, n);
    while (arg.len && arg.ptr[0] == ' ') arg = by_str_skip(arg, 1);
    while (arg.len && arg.ptr[arg.len - 1] == ' ') arg.len--;
    const char *names[N];
    for (int i = 0; i < N; i++) {
        names[i] = table[i].name;
        if (!by_str_eqz(name, table[i].name)) continue;
        table[i].run(s, arg);
        return;
    }
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)(name.len < 31 ? name.len : 31), name.ptr);
    const char *near = by_args_nearest(word, names, N);
    fprintf(stderr, "unknown command %s%s%s%s; /help lists them\n", word, near ? "; did you mean " : "", near ? near : "",
            near ? "?" : "");
}

/* ---- the loop ---- */

static void say(session *s, by_str text) {
    by_err err = {0};
    by_chat_turn turn;
    stop_asked = false;
    s->screen.part = -1;
    s->screen.at_line_start = true;
    by_status status = by_chat_say(s->chat, text, &turn, &err);
    end_answer(&s->screen);
    if (status != BY_OK) {
        fprintf(stderr, "%s\n", err.msg);
        s->code = 1;
        return;
    }
    if (turn.interrupted) note(s, "(stopped)");
    else if (turn.kind == BY_END_LENGTH) note(s, "(cut: the limit of tokens is reached)");
    const by_request_info *i = &s->model->last.info;
    int64_t n = s->model->last.n_output;
    if (s->terminal && n > 1 && i->n_steps != 1 && i->end_us > i->first_us)
        printf("%s(%d tokens in, %d of them kept from before, %lld out, %.1f tokens/s)%s\n", s->screen.color ? DIM : "",
               i->n_prompt, i->n_cached, (long long)n, (double)(n - 1) * 1e6 / (double)(i->end_us - i->first_us),
               s->screen.color ? NORMAL : "");
}

static by_status loop(session *s, by_chat_line *in, by_err *err) {
    by_buf line = {0};
    by_status status = BY_OK;
    while (!s->quit) {
        stop_asked = false;
        status = by_chat_line_read(in, &line, err);
        if (status == BY_AGAIN) {
            putchar('\n');
            continue;
        }
        if (status != BY_OK) break;
        by_str text = by_buf_str(&line);
        if (!by_utf8_valid(text, NULL)) {
            fprintf(stderr, "that line is not UTF-8\n");
            continue;
        }
        if (text.len == 0) continue;
        if (by_str_starts(text, BY_STR("//"))) say(s, by_str_skip(text, 1));
        else if (text.ptr[0] == '/') run_command(s, text);
        else say(s, text);
    }
    if (status == BY_END && s->terminal) putchar('\n');
    by_buf_deinit(&line);
    return status < 0 ? status : BY_OK;
}

/* ---- the command ---- */

typedef struct {
    by_engine_flags engine;
    const char *system, *think, *load;
    by_draw_flags draw;
    bool hide_reasoning, no_history;
    int color;
} options;

static by_status open_tokenizer(by_tok **tok, const by_model_flags *f, by_err *err) {
    by_buf path = {0};
    by_status status = by_command_tokenizer_file(&path, NULL, f->model, err);
    if (status == BY_OK) status = by_recipe_tok_open(tok, by_buf_z(&path), err);
    by_buf_deinit(&path);
    return status;
}

static const char *history_path(by_buf *b, bool none) {
    const char *home = getenv("HOME");
    if (none || !home || !*home) return NULL;
    by_buf_push_z(b, home);
    by_buf_push_z(b, "/.bathyc_chat_history");
    return by_buf_z(b);
}

static by_status set_up(session *s, const options *o, by_err *err) {
    if (o->system) BY_TRY(by_chat_set_system(s->chat, by_str_z(o->system), err));
    if (o->think) BY_TRY(by_chat_set_think(s->chat, by_str_z(o->think), err));
    return o->load ? by_chat_load(s->chat, o->load, err) : BY_OK;
}

static by_status run(options *o, int *code, by_err *err) {
    backend model = {.draw = o->draw};
    by_tok *tok = NULL;
    by_tok_scratch *scratch = NULL;
    by_chat_line *in = NULL;
    by_buf history = {0};
    session s = {.model = &model};
    by_status status = open_tokenizer(&tok, &o->engine.model, err);
    if (status == BY_OK) status = by_tok_scratch_create(&scratch, tok, err);
    if (status == BY_OK) status = by_one_request_open(&model.engine, &o->engine, err);
    if (status == BY_OK) model.eos_id = by_engine_model(model.engine)->cfg.eos_id;
    if (status == BY_OK) status = by_chat_line_open(&in, history_path(&history, o->no_history), err);
    if (status == BY_OK) {
        s.terminal = by_chat_line_is_terminal(in);
        s.screen.color = o->color == 1 || (o->color == 0 && isatty(1) && !getenv("NO_COLOR"));
        s.screen.plain_headings = !s.screen.color && !o->hide_reasoning;
        s.screen.hide_reasoning = o->hide_reasoning;
        by_chat_opts c = {.tok = tok, .scratch = scratch, .version = BY_RECIPE_V41, .end_ids = &model.eos_id,
                          .n_end_ids = 1, .backend = {generate, &model}, .show = show, .show_ctx = &s.screen,
                          .interrupted = interrupted};
        status = by_chat_create(&s.chat, &c, err);
    }
    if (status == BY_OK) status = set_up(&s, o, err);
    if (status == BY_OK && s.terminal) note(&s, "Ctrl-D leaves, Ctrl-C stops an answer, /help lists the commands.");
    struct sigaction stop = {.sa_handler = on_interrupt}; /* no SA_RESTART: a read that waits has to return */
    sigaction(SIGINT, &stop, NULL);
    if (status == BY_OK) status = loop(&s, in, err);
    *code = s.code;
    by_chat_destroy(s.chat);
    by_chat_line_close(in);
    by_buf_deinit(&history);
    by_engine_close(model.engine);
    by_tok_scratch_destroy(scratch);
    by_tok_destroy(tok);
    return status;
}

int by_cmd_chat(int argc, char **argv) {
    options o = {.engine = by_engine_flags_default(), .draw = by_draw_flags_default(65536)};
    const by_usage usage = {"chat", "[flags]", "A conversation with the model; lines of standard input when it is no terminal.\n"};
    const by_flag flags[] = {
        {"--system", BY_FLAG_STRING, &o.system, .help = "system text"},
        {"--think", BY_FLAG_STRING, &o.think, .help = "none, low, high, max or 1 to 100 (default: high)"},
        {"--load", BY_FLAG_STRING, &o.load, .help = "go on with a saved conversation"},
        BY_DRAW_FLAG_ROWS(o.draw, "65536"),
        {"--hide-reasoning", BY_FLAG_BOOL, &o.hide_reasoning, .help = "do not show what the model thinks"},
        {"--color", BY_FLAG_CHOICE, &o.color, .help = "(default: auto)", .choices = "auto|always|never"},
        {"--forget-lines", BY_FLAG_BOOL, &o.no_history, .help = "neither read nor write ~/.bathyc_chat_history"},
        BY_ONE_REQUEST_FLAG_ROWS(o.engine),
    };
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_status status = run(&o, &code, &err);
    by_args_free(flags, sizeof flags / sizeof flags[0]);
    by_engine_flags_deinit(&o.engine);
    if (status == BY_OK) return code;
    by_command_fail(&usage, &err);
    return by_model_exit_code(status);
}
