/* stepper.c - see stepper.h. */
#include "support/stepper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { BACKTRACK = 6 };

static void check(by_status s, const by_err *err) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err->msg);
}

by_test_stepper by_test_stepper_open(by_device *dev, const char *folder, const by_model_opts *model, const by_kv_opts *kv,
                                     const by_runner_opts *runner) {
    by_test_stepper s = {.dev = dev};
    by_kv_layout layout;
    by_err err;
    check(by_model_open(&s.model, folder, dev, model, &err), &err);
    check(by_model_kv_layout(&layout, s.model, BACKTRACK, &err), &err);
    check(by_kv_create(&s.kv, dev, &layout, kv, &err), &err);
    check(by_runner_create(&s.runner, s.model, s.kv, runner, &err), &err);
    s.V = s.model->cfg.vocab_size;
    return s;
}

void by_test_stepper_close(by_test_stepper *s) {
    by_runner_destroy(s->runner);
    by_kv_destroy(s->kv);
    by_model_close(s->model);
    by_device_close(s->dev);
}
