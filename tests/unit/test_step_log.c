/* test_step_log.c - the line of --log-steps from given figures: rates are of what came since the line before. */
#include "cli/step_log.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_first_line_counts_from_the_opening_the_next_from_the_line_before(void **state) {
    (void)state;
    by_step_log log = {0};
    by_buf out = {0};
    by_engine_stats s = {.open_ns = 1000000000, .max_rows = 64, .n_steps = 10, .n_rows = 80, .n_prompt_rows = 60, .n_output_tokens = 20,
                         .n_prompt_tokens = 80, .n_hit_tokens = 20, .prefill_s = 0.75, .decode_s = 0.25, .n_first = 2, .first_s = 0.04,
                         .first_max_s = 0.03, .n_chunked = 1, .blocks_total = 9, .blocks_used = 4, .slots_total = 5, .slots_used = 3,
                         .n_finished = 1, .sched = {.n_running = 2, .n_waiting = 7, .n_swapped = 1, .n_preempted = 3},
                         .n_finished_in = 30, .n_finished_out = 12, .ops = 4e12, .attention_ops = 5e11, .query_keys = 1200, .k_least = 9,
                         .k_most = 40, .device_s = 2, .plan_s = 0.001};
    by_step_log_write(&out, &log, &s, 3000000000);
    assert_string_equal(by_buf_z(&out),
                        "bathyc: step=10 steps/s=5.0 mean_steps/s=5.0 tokens/s=40.0 prompt/s=30.0 completion/s=10.0 running=2 pending=7 "
                        "chunked=1 swapped=1 rows=8.0 budget=12.5% blocks=4/9 slots=3/5 prefill:decode=75:25 hits=25.0% mean_in=30.0 "
                        "mean_out=12.0 qk=1.2e+03 k=9..40 attention_tflop=0.5 tflop=4 tflop/s=2 "
                        "device=200.000ms scheduler=100.0us ttft_max=30.0ms "
                        "ttft_mean=20.0ms finished=1 preempted=3 aborted=0 failed=0\n");
    s.n_steps = 14;
    s.n_rows = 88;
    s.n_output_tokens = 28;
    s.decode_s = 0.5;
    s.n_cancelled = 1;
    s.ops = 5e12;
    s.device_s = 2.25;
    s.draft = (by_draft_stats){.n_steps = 4, .n_tokens = 8, .n_verified = 8, .n_accepted = 4, .verified = {6, 2}, .accepted = {3, 1},
                                .bin_n = {8}, .bin_hits = {4}, .bin_sum = {2}};
    by_buf_clear(&out);
    by_step_log_write(&out, &log, &s, 4000000000);
    assert_string_equal(by_buf_z(&out),
                        "bathyc: step=14 steps/s=4.0 mean_steps/s=4.7 tokens/s=8.0 prompt/s=0.0 completion/s=8.0 verified=8 accepted=4 "
                        "accept_rate=50.0% by_position=50.0/50.0% mean_verified=2.00 mean_length=2.00 confidence_error=0.250 running=2 "
                        "pending=7 chunked=1 swapped=1 rows=2.0 budget=3.1% blocks=4/9 slots=3/5 prefill:decode=0:100 hits=0.0% qk=0 k=9..40 "
                        "attention_tflop=0 tflop=1 tflop/s=4 device=62.500ms scheduler=0.0us finished=0 preempted=0 aborted=1 failed=0\n");
    by_buf_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_line_counts_from_the_opening_the_next_from_the_line_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
