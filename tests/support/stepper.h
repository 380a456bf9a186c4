/* stepper.h - a model with its caches and a runner, for tests that make steps themselves. */
#ifndef BY_TESTS_STEPPER_H
#define BY_TESTS_STEPPER_H

#include "model/runner.h"

typedef struct by_test_stepper {
    by_device *dev;
    by_model *model;
    by_kv *kv;
    by_runner *runner;
    int64_t V; /* of the model's vocabulary */
} by_test_stepper;

/* Opens the model of a folder on dev, which is the stepper's from now on. What fails fails the test. */
by_test_stepper by_test_stepper_open(by_device *dev, const char *folder, const by_model_opts *model, const by_kv_opts *kv,
                                     const by_runner_opts *runner);
void by_test_stepper_close(by_test_stepper *s);

#endif
