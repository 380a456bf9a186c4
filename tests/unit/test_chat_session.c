/* Unit tests of cli/chat_session.h with a script in the model's place. The program's sources are in no library, so the one
 * under test is compiled in here. */
#include "cli/chat_session.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

#include "support/golden.h"

static by_tok *tok;
static const int32_t eos = 1;

/* ---- the script ---- */

static struct {
    const char *answer; /* what the next turn generates */
    by_answer_reason reason;
    bool fail, endless;
    by_buf prompt; /* text of the last prompt */
    int n_ids;     /* handed over in the last turn */
} script;

static by_buf shown; /* r:text c:text, one letter when the kind changes */
static int shown_kind;
static int interrupt_after; /* ids; 0 = never */

static by_status generate(void *ctx, const int32_t *prompt, size_t n, by_chat_take *take, void *arg, by_answer_reason *reason,
                          by_err *err) {
    (void)ctx;
    by_buf_clear(&script.prompt);
    BY_TRY(by_tok_decode(tok, prompt, n, false, &script.prompt, err));
    if (script.fail) return BY_FAIL(err, BY_ENUMERIC, "the script fails");
    by_tok_ids ids = {0};
    by_status status = by_tok_encode(tok, NULL, by_str_z(script.answer), BY_TOK_FULL, &ids, err);
    script.n_ids = 0;
    for (size_t i = 0; status == BY_OK && (i < ids.n || script.endless); i++) {
        script.n_ids++;
        status = take(arg, ids.ids[i % ids.n], err);
    }
    by_tok_ids_deinit(&ids);
    *reason = script.reason;
    return status < 0 ? status : BY_OK;
}

static bool interrupted(void) { return interrupt_after && script.n_ids >= interrupt_after; }

static void show(void *ctx, by_delta_kind kind, by_str text) {
    (void)ctx;
    if (shown_kind != (int)kind) by_buf_push_z(&shown, kind == BY_DELTA_REASONING ? "r:" : "c:");
    shown_kind = (int)kind;
    by_buf_push_str(&shown, text);
}

static by_chat *open_chat(void) {
    by_chat_opts o = {.tok = tok, .version = BY_RECIPE_V41, .end_ids = &eos, .n_end_ids = 1, .backend = {generate, NULL},
                      .show = show, .interrupted = interrupted};
    by_chat *c = NULL;
    assert_int_equal(by_chat_create(&c, &o, NULL), BY_OK);
    return c;
}

static by_chat_turn say(by_chat *c, const char *text, const char *answer) {
    by_chat_turn turn;
    by_err err;
    script.answer = answer;
    by_buf_clear(&shown);
    shown_kind = -1;
    if (by_chat_say(c, by_str_z(text), &turn, &err) != BY_OK) fail_msg("%s", err.msg);
    return turn;
}

static int setup(void **state) {
    (void)state;
    by_buf_deinit(&script.prompt);
    memset(&script, 0, sizeof script);
    interrupt_after = 0;
    return 0;
}
static int group_setup(void **state) {
    (void)state;
    return by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL) == BY_OK ? 0 : -1;
}
static int group_teardown(void **state) {
    (void)state;
    by_buf_deinit(&script.prompt);
    by_buf_deinit(&shown);
    by_tok_destroy(tok);
    return 0;
}
static void assert_buf(by_buf *b, const char *want) { assert_string_equal(by_buf_z(b), want); }

/* ---- turns ---- */

#define BOS "<｜begin▁of▁sentence｜>"
#define EOS "<｜end▁of▁sentence｜>"

static void a_turn_shows_and_keeps_the_answer(void **state) {
    (void)state;
    by_chat *c = open_chat();
    assert_int_equal(by_chat_set_system(c, BY_STR("Be brief."), NULL), BY_OK);
    by_chat_turn t = say(c, "Hi", "They greet.\n</think>\n\nHello 漢!" EOS "never shown");
    assert_buf(&shown, "r:They greet.c:Hello 漢!");
    assert_int_equal(t.kind, BY_END_STOP);
    assert_false(t.interrupted);
    assert_true(t.usage.prompt_tokens > 0);
    assert_true(t.usage.reasoning_tokens > 0 && t.usage.reasoning_tokens < t.usage.completion_tokens);
    assert_int_equal(by_chat_n_messages(c), 2);
    assert_non_null(strstr(by_buf_z(&script.prompt), "Be brief."));
    assert_non_null(strstr(by_buf_z(&script.prompt), "<｜User｜>Hi<｜Assistant｜><think>"));

    say(c, "And?", "x</think>y");
    assert_non_null(strstr(by_buf_z(&script.prompt), "Hello 漢!" EOS "<｜User｜>And?<｜Assistant｜><think>"));
    assert_null(strstr(by_buf_z(&script.prompt), "They greet.")); /* earlier reasoning is not repeated */
    assert_int_equal(by_chat_n_messages(c), 4);

    by_chat_clear(c);
    assert_int_equal(by_chat_n_messages(c), 0);
    say(c, "Again", "</think>z");
    assert_null(strstr(by_buf_z(&script.prompt), "And?"));
    assert_non_null(strstr(by_buf_z(&script.prompt), "Be brief."));
    by_chat_destroy(c);
}

static void what_users_type_is_never_markup(void **state) {
    (void)state;
    by_chat *c = open_chat();
    say(c, "what is </think> and " EOS "?", "a</think>b");
    /* The prompt decodes to the same text, but these were typed: only one end of sentence may be a token, and there is none. */
    for (size_t i = 0; i < c->ids.n; i++) assert_int_not_equal(c->ids.ids[i], eos);
    by_chat_destroy(c);
}

static void thinking_can_be_set(void **state) {
    (void)state;
    by_chat *c = open_chat();
    by_err err;
    assert_string_equal(by_chat_think(c), "high");
    static const char *const bad[] = {"", "medium-rare", "0", "101", "1000", "-1", "7x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(by_chat_set_think(c, by_str_z(bad[i]), &err), BY_EINVAL);
    assert_string_equal(by_chat_think(c), "high");
    static const char *const good[] = {"low", "max", "1", "63", "100", "none"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(by_chat_set_think(c, by_str_z(good[i]), NULL), BY_OK);
        assert_string_equal(by_chat_think(c), good[i]);
    }
    say(c, "Hi", "Hello");
    assert_buf(&shown, "c:Hello");
    assert_non_null(strstr(by_buf_z(&script.prompt), "<｜Assistant｜></think>"));
    by_chat_destroy(c);
}

static void an_interrupt_keeps_what_had_come(void **state) {
    (void)state;
    by_chat *c = open_chat();
    script.endless = true;
    interrupt_after = 20;
    by_chat_turn t = say(c, "count", "a</think>b c d");
    assert_true(t.interrupted);
    assert_int_equal(script.n_ids, 20);
    assert_int_equal(by_chat_n_messages(c), 2);
    script.endless = false;
    interrupt_after = 0;
    say(c, "go on", "x</think>y");
    assert_non_null(strstr(by_buf_z(&script.prompt), "<｜User｜>count<｜Assistant｜></think>b c d"));
    by_chat_destroy(c);
}

static void a_failed_turn_leaves_no_trace(void **state) {
    (void)state;
    by_chat *c = open_chat();
    by_chat_turn turn;
    by_err err;
    say(c, "one", "</think>1");
    script.fail = true;
    assert_int_equal(by_chat_say(c, BY_STR("two"), &turn, &err), BY_ENUMERIC);
    assert_string_equal(err.msg, "the script fails");
    assert_int_equal(by_chat_n_messages(c), 2);
    script.fail = false;
    say(c, "three", "</think>3");
    assert_null(strstr(by_buf_z(&script.prompt), "two"));
    by_chat_destroy(c);
}

static void a_limit_is_reported(void **state) {
    (void)state;
    by_chat *c = open_chat();
    script.reason = BY_REASON_LENGTH;
    assert_int_equal(say(c, "Hi", "a</think>b").kind, BY_END_LENGTH);
    by_chat_destroy(c);
}

/* ---- files ---- */

static void saved_conversations_come_back(void **state) {
    (void)state;
    char path[] = "/tmp/by_chat_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    by_chat *a = open_chat(), *b = open_chat();
    assert_int_equal(by_chat_set_system(a, BY_STR("Be \"brief\".\n"), NULL), BY_OK);
    assert_int_equal(by_chat_set_think(a, BY_STR("low"), NULL), BY_OK);
    say(a, "Hi\x01", "r</think>Hello\n漢");
    assert_int_equal(by_chat_save(a, path, NULL), BY_OK);
    say(b, "to be replaced", "</think>x");
    assert_int_equal(by_chat_load(b, path, NULL), BY_OK);
    assert_int_equal(by_chat_n_messages(b), 2);
    assert_string_equal(by_chat_think(b), "low");
    assert_true(by_str_eq(by_chat_system(a), by_chat_system(b)));
    by_buf want = {0};
    say(a, "next", "</think>x");
    by_buf_push_str(&want, by_buf_str(&script.prompt));
    say(b, "next", "</think>x");
    assert_true(by_str_eq(by_buf_str(&want), by_buf_str(&script.prompt)));
    by_buf_deinit(&want);
    by_chat_destroy(a);
    by_chat_destroy(b);
    unlink(path);
}

static void broken_files_change_nothing(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{", "line 1"},
        {"{}", "messages: want an array"},
        {"{\"messages\": [{\"content\": \"x\"}]}", "messages[0].role"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "messages[0].content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": \"y\"}]}", "messages[1].role"},
        {"{\"messages\": [], \"think\": \"much\"}", "'much'"},
    };
    char path[] = "/tmp/by_chat_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    by_chat *c = open_chat();
    say(c, "Hi", "</think>x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_err err;
        assert_int_equal(by_file_write(path, cases[i].text, strlen(cases[i].text), NULL), BY_OK);
        assert_true(by_chat_load(c, path, &err) < 0);
        if (!strstr(err.msg, cases[i].want) || !strstr(err.msg, path)) fail_msg("%s: %s", cases[i].text, err.msg);
        assert_int_equal(by_chat_n_messages(c), 2);
    }
    assert_int_equal(by_chat_load(c, "/does/not/exist", NULL), BY_EMISSING);
    by_chat_destroy(c);
    unlink(path);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    script.answer = "think</think>text";
    for (int n = 1;; n++) {
        by_chat_opts o = {.tok = tok, .version = BY_RECIPE_V41, .end_ids = &eos, .n_end_ids = 1, .backend = {generate, NULL}};
        by_chat *c = NULL;
        by_chat_turn turn;
        by_buf_deinit(&script.prompt);
        int64_t before = by_alloc_bytes_total();
        by_alloc_fail_nth(n);
        by_status status = by_chat_create(&c, &o, NULL);
        if (status == BY_OK) status = by_chat_set_system(c, BY_STR("s"), NULL);
        if (status == BY_OK) status = by_chat_say(c, BY_STR("Hi"), &turn, NULL);
        by_alloc_fail_nth(0);
        if (status != BY_OK && c) assert_int_equal(by_chat_n_messages(c), 0);
        by_chat_destroy(c);
        by_buf_deinit(&script.prompt);
        assert_int_equal(by_alloc_bytes_total(), before);
        if (status == BY_OK) break;
        assert_int_equal(status, BY_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_turn_shows_and_keeps_the_answer, setup),
        cmocka_unit_test_setup(what_users_type_is_never_markup, setup),
        cmocka_unit_test_setup(thinking_can_be_set, setup),
        cmocka_unit_test_setup(an_interrupt_keeps_what_had_come, setup),
        cmocka_unit_test_setup(a_failed_turn_leaves_no_trace, setup),
        cmocka_unit_test_setup(a_limit_is_reported, setup),
        cmocka_unit_test_setup(saved_conversations_come_back, setup),
        cmocka_unit_test_setup(broken_files_change_nothing, setup),
        cmocka_unit_test_setup(every_allocation_may_fail, setup),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
