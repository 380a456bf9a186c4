/* chat_line.c - see chat_line.h. Without libedit, or without a terminal, lines are only read. */
#include "cli/chat_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef BATHYC_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "base/alloc.h"
#include "cli/command.h"

enum { HISTORY_LINES = 500 };

struct by_chat_line {
    bool terminal;
    by_line_reader lines; /* without editing */
    const char *history_file;
#ifdef BATHYC_HAVE_LIBEDIT
    EditLine *edit;
    History *history;
    HistEvent event;
#endif
};

#ifdef BATHYC_HAVE_LIBEDIT
static char *prompt(EditLine *e) {
    (void)e;
    static char text[] = "> ";
    return text;
}

static void open_editor(by_chat_line *l) {
    l->edit = el_init("bathyc", stdin, stdout, stderr);
    l->history = l->edit ? history_init() : NULL;
    if (!l->history) return;
    history(l->history, &l->event, H_SETSIZE, HISTORY_LINES);
    history(l->history, &l->event, H_SETUNIQUE, 1);
    if (l->history_file) history(l->history, &l->event, H_LOAD, l->history_file);
    el_set(l->edit, EL_PROMPT, prompt);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_HIST, history, l->history);
    el_source(l->edit, NULL);
}

static void close_editor(by_chat_line *l) {
    if (l->history && l->history_file) history(l->history, &l->event, H_SAVE, l->history_file);
    if (l->history) history_end(l->history);
    if (l->edit) el_end(l->edit);
}

static by_status edit_line(by_chat_line *l, by_str *line, by_err *err) {
    int n = 0;
    /* libedit writes the prompt before it changes the terminal, and an end of file typed between the two is lost. */
    el_set(l->edit, EL_PREP_TERM, 1);
    errno = 0;
    const char *text = el_gets(l->edit, &n);
    if (!text || n <= 0) {
        if (errno == EINTR) return BY_AGAIN;
        return n < 0 && errno ? BY_FAIL(err, BY_EIO, "reading the terminal failed: %s", strerror(errno)) : BY_END;
    }
    if (n > 1) history(l->history, &l->event, H_ENTER, text);
    *line = by_str_of(text, (size_t)n);
    return BY_OK;
}
#endif

by_status by_chat_line_open(by_chat_line **out, const char *history_file, by_err *err) {
    by_chat_line *l = by_alloc_zero(BY_MEM_MISC, sizeof *l);
    if (!l) return BY_FAIL(err, BY_ENOMEM, "out of memory for the terminal");
    l->terminal = isatty(0) && isatty(1);
    l->history_file = history_file;
#ifdef BATHYC_HAVE_LIBEDIT
    if (l->terminal) open_editor(l);
#endif
    by_status status = by_line_reader_open(&l->lines, "-", err);
    if (status == BY_OK) *out = l;
    else by_chat_line_close(l);
    return status;
}

void by_chat_line_close(by_chat_line *l) {
    if (!l) return;
#ifdef BATHYC_HAVE_LIBEDIT
    close_editor(l);
#endif
    by_line_reader_close(&l->lines);
    by_free(l);
}

bool by_chat_line_is_terminal(const by_chat_line *l) { return l->terminal; }

static by_status plain_line(by_chat_line *l, by_str *line, by_err *err) {
    if (l->terminal) {
        fputs("> ", stdout);
        fflush(stdout);
    }
    return by_line_reader_next(&l->lines, line, err);
}

by_status by_chat_line_read(by_chat_line *l, by_buf *out, by_err *err) {
    by_str line = {"", 0};
#ifdef BATHYC_HAVE_LIBEDIT
    by_status status = l->history ? edit_line(l, &line, err) : plain_line(l, &line, err);
#else
    by_status status = plain_line(l, &line, err);
#endif
    by_buf_clear(out);
    if (status != BY_OK) return status;
    while (line.len && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r')) line.len--;
    by_buf_push_str(out, line);
    return by_buf_check(out, err);
}
