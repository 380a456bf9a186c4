/* cmd_batch.c - `bathyc batch`: answers a file of API requests, many at once, into a file of results that a later run
 * continues. One thread reads lines, starts calls and writes what is done; the engine's threads wake it through an eventfd. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/batch_results.h"
#include "cli/batch_stats.h"
#include "cli/batch_tokens.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "json/json_write.h"
#include "service/service.h"

enum { CALLS_MAX = 4096, LINES_AT_ONCE = 16, PROGRESS_MS = 250, IDLE_MS = 1000 };

static _Atomic int n_signals; /* the handler may run on a thread of the engine */
static int wake_fd = -1;

/* One request on its way. The slots stay where they are: engine threads write to `news`. */
typedef struct {
    by_call *call;          /* of an API; both NULL = free */
    by_batch_tokens *ids;   /* of token ids */
    size_t line;
    char *custom_id;
    size_t custom_id_bytes;
    _Atomic bool news;
} slot;

typedef struct {
    by_service *service;
    by_tok_scratch *scratch;
    by_line_reader in;
    by_batch_results results;
    slot *slots;
    int n_slots, n_running;
    bool smaller; /* --sum-smaller-probs */
    bool input_ended, has_held, stopped, terminal; /* stopped: the requests that only waited are given back */
    by_buf held, body, answer; /* held: a line for which the queue was full */
    size_t held_line;
    by_arena arena;            /* of the line being read */
    size_t n_left; /* given back, without a row */
    size_t n_ok, n_failed, n_skipped, n_old_failed; /* skipped: an earlier run has answered them, and some of them failed */
    uint64_t n_tokens;
    by_batch_stats stats;
    int64_t start_ns, shown_ns;
    uint64_t n_ids;
} batch;

/* ---- signals ---- */

static void wake(void) {
    uint64_t one = 1;
    ssize_t n = write(wake_fd, &one, sizeof one); /* fails only when the count is full, and then nobody sleeps */
    (void)n;
}

/* A line from inside a signal handler; on a terminal the line of progress is ended before. */
static void say(const char *text, size_t n) {
    ssize_t done = isatty(STDERR_FILENO) == 1 ? write(STDERR_FILENO, "\n", 1) : 0;
    done = write(STDERR_FILENO, text, n); /* what cannot be said is not said */
    (void)done;
}

static void on_signal(int number) {
    static const char first[] = "bathyc batch: stopping; running requests may end, a second signal ends them\n";
    static const char second[] = "bathyc batch: stopped; the same command resumes with the requests that are left\n";
    (void)number;
    int before = errno;
    if (atomic_fetch_add(&n_signals, 1) > 0) {
        say(second, sizeof second - 1);
        _exit(1);
    }
    say(first, sizeof first - 1);
    wake();
    errno = before;
}

static void on_news(void *arg) {
    slot *s = arg;
    if (!atomic_exchange(&s->news, true)) wake();
}

static void catch_signals(void) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
}

/* ---- results ---- */

static by_status write_row(batch *b, const by_batch_row *row, by_err *err) {
    bool ok = row->status == 200;
    BY_TRY(by_batch_results_add(&b->results, row, err));
    b->n_ok += ok;
    b->n_failed += !ok;
    return BY_OK;
}

/* True for a request that an earlier run has answered. */
static bool skip_done(batch *b, uint8_t marks) {
    if (!(marks & BY_BATCH_DONE)) return false;
    b->n_skipped++;
    b->n_old_failed += (marks & BY_BATCH_FAILED) != 0;
    return true;
}

/* A line that is not a request; its row is known by the line's number. */
static by_status refuse_line(batch *b, size_t line, const by_json *custom_id, const char *code, const char *message, by_err *err) {
    char id[32];
    by_batch_row_id(id, line);
    uint8_t *marks = by_id_set_marks(&b->results.line_ids, by_str_z(id));
    if (!marks) return BY_FAIL(err, BY_ENOMEM, "out of memory for the ids of lines");
    if (skip_done(b, *marks)) return BY_OK;
    by_batch_row row = {.line = line, .code = code, .message = message};
    if (custom_id) {
        row.has_custom_id = true;
        row.custom_id = custom_id->v.s;
    }
    return write_row(b, &row, err);
}

/* A line that is no JSON. The reader of JSON knows this line only. */
static by_status refuse_text(batch *b, size_t line, const by_err *why, by_err *err) {
    static const char first[] = "line 1 ";
    char message[BY_ERR_MSG_MAX + 32];
    const char *rest = strncmp(why->msg, first, sizeof first - 1) == 0 ? why->msg + sizeof first - 1 : NULL;
    if (rest) snprintf(message, sizeof message, "line %zu %s", line, rest);
    return refuse_line(b, line, NULL, "invalid_line", rest ? message : why->msg, err);
}

static void empty_slot(batch *b, slot *s) {
    by_call_destroy(s->call);
    by_batch_tokens_destroy(s->ids);
    by_free(s->custom_id);
    s->call = NULL;
    s->ids = NULL;
    s->custom_id = NULL;
    b->n_running--;
}

/* Writes the answer of a slot, or what went wrong (NULL: nothing), and empties it. */
static by_status finish(batch *b, slot *s, const by_call_problem *p, by_err *err) {
    char request_id[40];
    snprintf(request_id, sizeof request_id, "req_%016llx%08llx", (unsigned long long)b->start_ns, (unsigned long long)++b->n_ids);
    by_buf_clear(&b->answer);
    if (p) by_call_problem_write(&b->answer, p);
    else if (s->ids) BY_TRY(by_batch_tokens_write(s->ids, &b->answer, err));
    else BY_TRY(by_call_write_whole(s->call, &b->answer, err));
    BY_TRY(by_buf_check(&b->answer, err));
    int64_t n_output = s->ids ? by_batch_tokens_n_output(s->ids) : s->call ? (int64_t)by_call_usage(s->call).completion_tokens : 0;
    b->n_tokens += (uint64_t)n_output;
    if (!p) {
        by_request_info info = s->ids ? by_batch_tokens_times(s->ids) : by_call_times(s->call);
        by_batch_stats_note(&b->stats, &info, n_output);
    }
    by_batch_row row = {.line = s->line, .has_custom_id = true, .custom_id = by_str_of(s->custom_id, s->custom_id_bytes),
                        .status = p ? p->http_status : 200, .request_id = by_str_z(request_id), .body = by_buf_str(&b->answer)};
    by_status status = write_row(b, &row, err);
    empty_slot(b, s);
    return status;
}

/* ---- requests ---- */

static bool api_of(by_str url, by_api_kind *api) {
    static const char *const urls[] = {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"};
    for (int i = 0; i < 4; i++)
        if (by_str_eqz(url, urls[i])) return *api = (by_api_kind)i, true;
    return false;
}

/* What is wrong with the frame of a request, NULL when nothing is. */
static const char *check_frame(const by_json *row, by_api_kind *api) {
    const by_json *method = by_json_get(row, "method"), *url = by_json_get(row, "url"), *body = by_json_get(row, "body");
    if (!by_json_is(method, BY_JSON_STRING) || !by_str_eqz(method->v.s, "POST")) return "method: want \"POST\"";
    if (!by_json_is(url, BY_JSON_STRING) || !api_of(url->v.s, api))
        return "url: want /v1/chat/completions, /v1/responses, /v1/messages or /v1/completions";
    return by_json_is(body, BY_JSON_OBJECT) ? NULL : "body: want an object";
}

static slot *free_slot(batch *b) {
    for (int i = 0; i < b->n_slots; i++)
        if (!b->slots[i].call && !b->slots[i].ids) return &b->slots[i];
    return NULL;
}

static by_status take_slot(batch *b, slot *s, size_t line, const by_json *row, by_err *err) {
    by_str id = by_json_get(row, "custom_id")->v.s;
    b->n_running++;
    s->line = line;
    s->custom_id = by_strndup(BY_MEM_REQUEST, id.ptr ? id.ptr : "", id.len);
    s->custom_id_bytes = id.len;
    return s->custom_id ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a custom_id");
}

/* Is this a failure that others which run will make good? */
static bool comes_again(const batch *b, by_status status) { return (status == BY_EBUSY || status == BY_ENOMEM) && b->n_running > 0; }

/* Starts the call. BY_AGAIN: the engine's queue is full and something runs that will make room. */
static by_status start_call(batch *b, size_t line, const by_json *row, by_api_kind api, by_err *err) {
    slot *s = free_slot(b);
    by_buf_clear(&b->body);
    by_json_write(&b->body, by_json_get(row, "body"), BY_JSON_COMPACT);
    BY_TRY(by_buf_check(&b->body, err));
    atomic_store(&s->news, false);
    by_call_opts o = {.api = api, .body = by_buf_str(&b->body), .scratch = b->scratch, .whole = true, .notify = on_news, .arg = s};
    by_err why = {0};
    by_status status = by_call_start(&s->call, b->service, &o, &why);
    if (!s->call) return BY_FAIL(err, BY_ENOMEM, "%s", why.msg);
    if (comes_again(b, status)) {
        by_call_destroy(s->call);
        s->call = NULL;
        return BY_AGAIN;
    }
    BY_TRY(take_slot(b, s, line, row, err));
    return status < 0 ? finish(b, s, by_call_problem_get(s->call), err) : BY_OK;
}

/* The same for a line of token ids. */
static by_status start_ids(batch *b, size_t line, const by_json *row, by_err *err) {
    slot *s = free_slot(b);
    by_err why = {0};
    atomic_store(&s->news, false);
    by_status status = by_batch_tokens_start(&s->ids, by_service_engine(b->service), row, &b->arena, b->smaller, on_news, s, &why);
    if (comes_again(b, status)) return BY_AGAIN;
    BY_TRY(take_slot(b, s, line, row, err));
    by_call_problem p = by_call_problem_of(status, &why);
    return status < 0 ? finish(b, s, &p, err) : BY_OK;
}

/* One line of the input; again: it was held back before. */
static by_status take_line(batch *b, by_str text, size_t line, bool again, by_err *err) {
    by_json row;
    by_err bad;
    by_api_kind api = BY_API_CHAT;
    by_arena_reset(&b->arena);
    by_status status = by_json_parse(&row, &b->arena, text, NULL, &bad);
    if (status == BY_ENOMEM) return BY_FAIL(err, BY_ENOMEM, "%s", bad.msg);
    if (status < 0) return refuse_text(b, line, &bad, err);
    const by_json *custom_id = by_json_get(&row, "custom_id");
    if (!by_json_is(custom_id, BY_JSON_STRING) || custom_id->v.s.len == 0)
        return refuse_line(b, line, NULL, "invalid_line", "custom_id: want a text that is not empty", err);
    uint8_t *marks = by_id_set_marks(&b->results.custom_ids, custom_id->v.s);
    if (!marks) return BY_FAIL(err, BY_ENOMEM, "out of memory for the custom_ids");
    if (*marks & BY_BATCH_SEEN && !again)
        return refuse_line(b, line, custom_id, BY_BATCH_DUPLICATE, "custom_id: an earlier line has the same", err);
    *marks |= BY_BATCH_SEEN;
    if (skip_done(b, *marks)) return BY_OK;
    if (by_batch_tokens_is(&row)) return start_ids(b, line, &row, err);
    const char *problem = check_frame(&row, &api);
    if (problem) {
        by_batch_row r = {.line = line, .has_custom_id = true, .custom_id = custom_id->v.s, .code = "invalid_line", .message = problem};
        return write_row(b, &r, err);
    }
    return start_call(b, line, &row, api, err);
}

static bool may_start(const batch *b) { return n_signals == 0 && b->n_running < b->n_slots && (b->has_held || !b->input_ended); }

/* The next line, unless there is none yet. BY_AGAIN when this is not the time for more. */
static by_status start_next(batch *b, by_err *err) {
    by_str text;
    if (b->has_held) {
        by_status status = take_line(b, by_buf_str(&b->held), b->held_line, true, err);
        b->has_held = status == BY_AGAIN;
        return status;
    }
    if (!by_line_reader_ready(&b->in)) return BY_AGAIN;
    by_status status = by_line_reader_next(&b->in, &text, err);
    if (status == BY_END) {
        b->input_ended = true;
        return BY_OK;
    }
    if (status == BY_ELIMIT) return refuse_line(b, b->in.n_lines, NULL, "invalid_line", "the line is too long", err);
    if (status < 0) return status;
    text = by_line_trim(text, b->in.n_lines);
    if (text.len == 0) return BY_OK;
    status = take_line(b, text, b->in.n_lines, false, err);
    if (status != BY_AGAIN) return status;
    by_buf_clear(&b->held);
    by_buf_push_str(&b->held, text);
    b->held_line = b->in.n_lines;
    b->has_held = true;
    by_status held = by_buf_check(&b->held, err);
    return held < 0 ? held : BY_AGAIN;
}

/* Takes what has come for one request. */
static by_status pump(batch *b, slot *s, by_err *err) {
    if (s->call) return by_call_pump(s->call, 0, NULL) == BY_END ? finish(b, s, by_call_problem_get(s->call), err) : BY_OK;
    by_err why = {0};
    by_status status = by_batch_tokens_pump(s->ids, &why);
    if (status == BY_AGAIN) return BY_OK;
    if (status == BY_END) return finish(b, s, NULL, err);
    by_call_problem p = by_call_problem_of(status, &why);
    return finish(b, s, &p, err);
}

static by_status hand_on(batch *b, by_err *err) {
    for (int i = 0; i < b->n_slots; i++) {
        slot *s = &b->slots[i];
        if ((s->call || s->ids) && atomic_exchange(&s->news, false)) BY_TRY(pump(b, s, err));
    }
    return BY_OK;
}

/* After a signal: requests of which no step has run yet go without a row, so that the next run of the command answers them. */
static void give_back_waiting(batch *b) {
    b->stopped = true;
    for (int i = 0; i < b->n_slots; i++) {
        slot *s = &b->slots[i];
        if (!s->call && !s->ids) continue;
        by_request_info info = s->ids ? by_batch_tokens_times(s->ids) : by_call_times(s->call);
        if (info.start_us) continue;
        empty_slot(b, s);
        b->n_left++;
    }
}

/* ---- the loop ---- */

static void show_progress(batch *b, bool last) {
    int64_t now = by_clock_ns();
    if (!b->terminal || (!last && now - b->shown_ns < (int64_t)PROGRESS_MS * 1000000)) return;
    b->shown_ns = now;
    double s = (double)(now - b->start_ns) * 1e-9;
    fprintf(stderr, "\r%zu done, %zu failed, %zu skipped, %d running, %.0f tokens/s%s\033[K%s", b->n_ok, b->n_failed, b->n_skipped,
            b->n_running, s > 0 ? (double)b->n_tokens / s : 0, n_signals ? ", stopping" : "", last ? "\n" : "");
}

static void wait_for_news(batch *b) {
    bool want_input = may_start(b) && !b->has_held;
    struct pollfd fds[2] = {{.fd = wake_fd, .events = POLLIN}, {.fd = want_input ? b->in.fd : -1, .events = POLLIN}};
    if (poll(fds, 2, b->terminal ? PROGRESS_MS : -1) > 0 && fds[0].revents) {
        uint64_t count;
        ssize_t n = read(wake_fd, &count, sizeof count); /* not blocking: another reader there is none */
        (void)n;
    }
}

static by_status run(batch *b, by_err *err) {
    while (b->n_running > 0 || may_start(b)) {
        by_status status = BY_OK;
        for (int i = 0; i < LINES_AT_ONCE && status == BY_OK && may_start(b); i++) status = start_next(b, err);
        if (status < 0) return status;
        if (n_signals && !b->stopped) give_back_waiting(b);
        BY_TRY(hand_on(b, err));
        show_progress(b, false);
        bool waits = status == BY_AGAIN && !b->has_held; /* for input; a line that is held waits for what runs */
        if (waits || (b->n_running > 0 && (status == BY_AGAIN || !may_start(b)))) {
            wait_for_news(b);
            BY_TRY(hand_on(b, err));
        }
    }
    return BY_OK;
}

static by_status open_all(batch *b, const char *input, const char *output, const by_service_opts *o, by_err *err) {
    BY_TRY(by_line_reader_open(&b->in, input, err)); /* before the model: mistakes in names show at once */
    BY_TRY(by_batch_results_open(&b->results, output, err));
    if (b->results.n_cut_bytes) fprintf(stderr, "bathyc batch: %s: a cut last row of %zu bytes was removed\n", output, b->results.n_cut_bytes);
    BY_TRY(by_service_open(&b->service, o, err));
    BY_TRY(by_tok_scratch_create(&b->scratch, by_service_tok(b->service), err));
    b->n_slots = o->engine.sched.max_seqs < CALLS_MAX / 2 ? o->engine.sched.max_seqs * 2 : CALLS_MAX;
    b->slots = by_alloc_zero(BY_MEM_REQUEST, (size_t)b->n_slots * sizeof *b->slots);
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!b->slots || wake_fd < 0) return BY_FAIL(err, BY_ENOMEM, "no memory or no descriptor for %d requests", b->n_slots);
    catch_signals();
    b->start_ns = by_clock_ns();
    return BY_OK;
}

static void close_all(batch *b) {
    for (int i = 0; b->slots && i < b->n_slots; i++) {
        by_call_destroy(b->slots[i].call);
        by_batch_tokens_destroy(b->slots[i].ids);
        by_free(b->slots[i].custom_id);
    }
    by_tok_scratch_destroy(b->scratch);
    by_service_close(b->service);
    by_free(b->slots);
    by_line_reader_close(&b->in);
    by_batch_results_close(&b->results);
    by_buf_deinit(&b->held);
    by_buf_deinit(&b->body);
    by_buf_deinit(&b->answer);
    by_arena_deinit(&b->arena);
}

static void print_stats(const batch *b) {
    by_buf text = {0};
    by_engine_wait_idle(by_service_engine(b->service), IDLE_MS); /* the last step's figures come behind its tokens */
    by_engine_stats e = by_engine_stats_get(by_service_engine(b->service));
    by_batch_stats_write(&text, &b->stats, &e, (double)(by_clock_ns() - b->start_ns) * 1e-9);
    fputs(by_buf_z(&text), stderr);
    by_buf_deinit(&text);
}

static int report(batch *b, const char *output) {
    size_t failed = b->n_failed + b->n_old_failed; /* other rows of the file belong to requests that were not asked about */
    bool left = n_signals && (!b->input_ended || b->has_held || b->n_left);
    if (failed)
        fprintf(stderr, "bathyc batch: %zu of %zu requests failed: see \"error\" and \"status_code\" in %s\n", failed,
                b->n_ok + b->n_failed + b->n_skipped, strcmp(output, "-") == 0 ? "standard output" : output);
    if (left) fprintf(stderr, "bathyc batch: stopped by a signal; the same command resumes with the requests that are left\n");
    else if (b->n_skipped && b->n_ok + b->n_failed == 0)
        fprintf(stderr, "bathyc batch: nothing to do, %zu row%s there\n", b->n_skipped, b->n_skipped == 1 ? " is" : "s are");
    return failed || left;
}

int by_cmd_batch(int argc, char **argv) {
    const by_usage usage = {"batch", "-i REQUESTS.jsonl -o RESULTS.jsonl [flags]",
                            "Answers lines {custom_id, method, url, body} of the OpenAI batch format, for /v1/chat/completions,\n"
                            "/v1/responses, /v1/messages and /v1/completions, and lines {custom_id, tokens, ...} of token ids (see\n"
                            "docs/engine.md). Results come in the order in which they are done.\n"
                            "When RESULTS.jsonl has rows already, only what is missing is computed: after an interruption the\n"
                            "same command goes on. Rows with errors count as done, and as failed: take them out to try again.\n"
                            "SIGTERM and SIGINT let running requests end and start no others; a second one stops at once.\n"};
    by_engine_flags f = by_engine_flags_default();
    const char *input = NULL, *output = NULL;
    by_flag_list names = {0};
    bool honour = false, stats = false, smaller = false;
    const by_flag flags[] = {
        {.names = "--input,-i", .kind = BY_FLAG_STRING, .out = &input, .help = "request lines (- = standard input)"},
        {.names = "--output,-o", .kind = BY_FLAG_STRING, .out = &output, .help = "result lines, appended (- = standard output)"},
        {.names = "--served-model-name,--alias", .kind = BY_FLAG_LIST, .out = &names,
         .help = "accepted as \"model\"; may repeat (default: DeepSeek-V4.1-Flash and the folder's name)"},
        {.names = "--honour-sampling", .kind = BY_FLAG_BOOL, .out = &honour,
         .help = "keep temperature and top_p as requests have them, also where the vendor's service does not"},
        {.names = "--stats", .kind = BY_FLAG_BOOL, .out = &stats, .help = "say at the end where the time went (standard error)"},
        {.names = "--sum-smaller-probs", .kind = BY_FLAG_BOOL, .out = &smaller,
         .help = "lines of token ids with logprobs: also the probability of all tokens not likelier than the drawn one"},
        BY_ENGINE_FLAG_ROWS(f),
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    if (!input || !output) return fprintf(stderr, "bathyc batch: --input and --output are needed\n"), 2;
    by_err err = {0};
    batch b = {.terminal = isatty(STDERR_FILENO) == 1, .in = {.fd = -1}, .results = {.fd = -1}};
    by_arena_init(&b.arena, BY_MEM_JSON);
    by_service_opts o = {.names = names.items, .n_names = names.n};
    by_api_options_init(&o.api);
    o.api.honour_sampling = honour;
    by_status status = by_engine_flags_opts(&o.engine, &f, &err);
    o.engine.sum_smaller = smaller;
    b.smaller = smaller;
    if (status == BY_OK) status = open_all(&b, input, output, &o, &err);
    code = status < 0 ? by_model_exit_code(status) : 0;
    if (status == BY_OK) {
        by_engine_flags_warn(&f, by_engine_model(by_service_engine(b.service)));
        status = run(&b, &err);
        show_progress(&b, true);
        if (stats) print_stats(&b);
        code = status < 0 ? 1 : report(&b, output);
    }
    if (status < 0) by_command_fail(&usage, &err);
    close_all(&b);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&f);
    return code;
}
