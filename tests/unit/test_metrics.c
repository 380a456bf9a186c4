/* The metrics registry: exact counts from many threads, histograms against a slow twin, text that reads back, names in
 * the documents that exist. `test_metrics --dump` prints a filled text for an outside parser
 * (tests/integration/metrics_text.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "http/metrics.h"
#include "support/seed.h"

static by_metrics *make(bool vllm) {
    by_metrics *m = NULL;
    by_metrics_opts opts = {
        .model_name = "a \"quoted\"\nback\\slash", .max_context = 4096, .block_tokens = 128, .vllm_names = vllm};
    assert_int_equal(by_metrics_create(&m, &opts, NULL), BY_OK);
    return m;
}

static by_engine_stats some_stats(void) {
    return (by_engine_stats){
        .sched = {.n_waiting = 3, .n_running = 5, .n_swapped = 1, .n_admitted = 30, .n_preempted = 2},
        .n_steps = 1000,
        .n_rows = 5000,
        .n_prompt_rows = 700,
        .n_output_tokens = 4300,
        .n_finished = 25,
        .n_hit_tokens = 512,
        .n_replayed_rows = 128,
        .draft = {.n_steps = 900, .n_proposed = 1500, .n_verified = 1400, .n_accepted = 800, .verified = {700, 700},
                  .accepted = {500, 300}},
        .blocks_total = 80,
        .blocks_used = 20,
        .blocks_keyed = 70,
        .slots_total = 9,
        .slots_used = 6,
        .host_bytes = 123456789012,
        .plan_s = 0.5,
        .device_s = 12.25,
        .wait_s = 7};
}

static void fill(by_metrics *m) {
    by_metrics_add(m, BY_COUNT_SENT_BYTES, 12345678901234);
    by_metrics_gauge_set(m, BY_GAUGE_READY, 1);
    by_metrics_gauge_add(m, BY_GAUGE_OPEN_STREAMS, 7);
    by_metrics_gauge_add(m, BY_GAUGE_OPEN_STREAMS, -3);
    by_metrics_count_response(m, BY_ENDPOINT_CHAT, 200);
    by_metrics_count_response(m, BY_ENDPOINT_CHAT, 200);
    by_metrics_count_response(m, BY_ENDPOINT_OTHER, 404);
    by_metrics_count_response(m, BY_ENDPOINT_MESSAGES, 418);
    for (int i = 0; i < 10; i++) by_metrics_observe(m, BY_HIST_INTER_TOKEN, 4000000 + i);
    by_metrics_count_request(m, &(by_metrics_request){.received_us = 1000,
                                                      .submit_us = 3000,
                                                      .start_us = 10000,
                                                      .first_us = 60000,
                                                      .end_us = 1060000,
                                                      .n_prompt = 100,
                                                      .n_cached = 64,
                                                      .n_output = 11,
                                                      .n_reasoning = 4,
                                                      .max_tokens = 2000,
                                                      .finish = BY_FINISH_TOOL_CALLS});
}

/* The value of a sample by its name and labels as written, or -1. */
static double value_of(const char *text, const char *sample) {
    size_t n = strlen(sample);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, sample, n) == 0 && line[n] == ' ') return strtod(line + n + 1, NULL);
    return -1;
}

static const char *write_text(by_metrics *m, by_buf *out, const by_engine_stats *stats) {
    by_buf_clear(out);
    assert_int_equal(by_metrics_write(m, out, stats, NULL), BY_OK);
    return by_buf_z(out);
}

static void check_value(const char *text, const char *sample, double want, int line) {
    double got = value_of(text, sample); /* cmocka compares floats only */
    if (!(got >= want - 1e-12 && got <= want + 1e-12))
        fail_msg("line %d: %s is %.17g instead of %.17g", line, sample, got, want);
}

#define IS(sample, want) check_value(text, sample, want, __LINE__)

static void what_was_recorded_is_written(void **state) {
    (void)state;
    by_metrics *m = make(true);
    by_buf out = {0};
    by_engine_stats stats = some_stats();
    fill(m);
    const char *text = write_text(m, &out, &stats);
    IS("bathyc_http_sent_bytes_total", 12345678901234.0);
    IS("bathyc_ready", 1);
    IS("bathyc_http_open_streams", 4);
    IS("bathyc_http_requests_total{endpoint=\"/v1/chat/completions\",code=\"200\"}", 2);
    IS("bathyc_http_requests_total{endpoint=\"other\",code=\"404\"}", 1);
    IS("bathyc_http_requests_total{endpoint=\"/v1/messages\",code=\"other\"}", 1);
    IS("bathyc_requests_finished_total{reason=\"tool_calls\"}", 1);
    IS("bathyc_inter_token_seconds_bucket{le=\"0.003\"}", 0);
    IS("bathyc_inter_token_seconds_bucket{le=\"0.005\"}", 10);
    IS("bathyc_inter_token_seconds_count", 10);
    IS("bathyc_time_to_first_token_seconds_sum", 0.059);
    IS("bathyc_queue_seconds_sum", 0.007);
    IS("bathyc_prefill_seconds_sum", 0.05);
    IS("bathyc_decode_seconds_sum", 1);
    IS("bathyc_request_seconds_sum", 1.059);
    IS("bathyc_request_time_per_output_token_seconds_sum", 0.1);
    IS("bathyc_request_prompt_tokens_bucket{le=\"100.0\"}", 1);
    IS("bathyc_request_prompt_tokens_bucket{le=\"50.0\"}", 0);
    IS("bathyc_prompt_tokens_total", 100);
    IS("bathyc_cached_prompt_tokens_total", 64);
    IS("bathyc_output_tokens_total", 11);
    IS("bathyc_reasoning_tokens_total", 4);
    IS("bathyc_kv_usage_ratio", 0.25);
    IS("bathyc_draft_tokens_total", 1400);
    IS("bathyc_draft_accepted_tokens_total", 800);
    IS("bathyc_draft_position_accepted_total{position=\"2\"}", 300);
    IS("bathyc_host_state_bytes", 123456789012.0);
    IS("bathyc_engine_seconds_total{part=\"device\"}", 12.25);
    IS("bathyc_model_info{model=\"a \\\"quoted\\\"\\nback\\\\slash\",max_context=\"4096\",block_tokens=\"128\"}", 1);
    assert_true(value_of(text, "process_resident_memory_bytes") > 1e5);
    assert_true(value_of(text, "process_cpu_seconds_total") >= 0);
#define VLLM "{engine=\"0\",model_name=\"a \\\"quoted\\\"\\nback\\\\slash\"}"
    IS("vllm:num_requests_waiting" VLLM, 3);
    IS("vllm:kv_cache_usage_perc" VLLM, 0.25);
    IS("vllm:prefix_cache_hits_total" VLLM, 512);
    IS("vllm:prefix_cache_queries_total" VLLM, 512 + 700 - 128);
    IS("vllm:spec_decode_num_drafts_total" VLLM, 700);
    IS("vllm:spec_decode_num_accepted_tokens_total" VLLM, 800);
    IS("vllm:time_to_first_token_seconds_count" VLLM, 1);
    IS("vllm:cache_config_info{block_size=\"128\",num_gpu_blocks=\"80\",engine=\"0\"}", 1);
    assert_non_null(strstr(text, "finished_reason=\"stop\"} 1\n"));
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

static void steps_and_evictions_are_written(void **state) {
    (void)state;
    by_metrics *m = make(false);
    by_buf out = {0};
    by_engine_stats stats = some_stats();
    stats.n_blocks_forgotten = 7;
    stats.n_snapshots_replaced = 5;
    stats.n_snapshots_dropped = 6;
    stats.sched.n_preempted_paused = 1;
    stats.n_hit_tokens = 900;
    stats.n_snapshot_hit_tokens = 256;
    stats.copied_bytes[BY_COPY_SWAP_IN] = 77;
    stats.copied_bytes[BY_COPY_FORK] = 78;
    stats.ops = 3e9;
    stats.attention_ops = 1e9;
    stats.query_keys = 4321;
    by_tally_add(&stats.step_us, 50);
    by_tally_add(&stats.step_us, 120);
    by_tally_add(&stats.step_us, 20000000);
    by_tally_add(&stats.step_rows, 10);
    const char *text = write_text(m, &out, &stats);
    IS("bathyc_engine_step_seconds_bucket{le=\"0.0001\"}", 1);
    IS("bathyc_engine_step_seconds_bucket{le=\"0.0002\"}", 2);
    IS("bathyc_engine_step_seconds_bucket{le=\"10.0\"}", 2);
    IS("bathyc_engine_step_seconds_bucket{le=\"+Inf\"}", 3);
    IS("bathyc_engine_step_seconds_sum", 20.00017);
    IS("bathyc_engine_step_rows_bucket{le=\"5.0\"}", 0);
    IS("bathyc_engine_step_rows_bucket{le=\"10.0\"}", 1);
    IS("bathyc_engine_step_rows_count", 1);
    IS("bathyc_engine_prefill_rows_count", 0);
    IS("bathyc_prefix_cache_tier_tokens_total{tier=\"host\"}", 256);
    IS("bathyc_prefix_cache_tier_tokens_total{tier=\"device\"}", 644);
    IS("bathyc_copied_bytes_total{what=\"swap_out\"}", 0);
    IS("bathyc_copied_bytes_total{what=\"swap_in\"}", 77);
    IS("bathyc_copied_bytes_total{what=\"fork\"}", 78);
    IS("bathyc_engine_operations_total{part=\"all\"}", 3e9);
    IS("bathyc_engine_operations_total{part=\"attention\"}", 1e9);
    IS("bathyc_engine_query_keys_total", 4321);
    IS("bathyc_evictions_total{what=\"block\",cause=\"reuse\"}", 7);
    IS("bathyc_evictions_total{what=\"snapshot\",cause=\"newer\"}", 5);
    IS("bathyc_evictions_total{what=\"snapshot\",cause=\"swap\"}", 6);
    IS("bathyc_evictions_total{what=\"sequence\",cause=\"slow_reader\"}", 1);
    IS("bathyc_evictions_total{what=\"sequence\",cause=\"memory\"}", 1);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

static void without_an_engine_or_the_flag_its_families_are_absent(void **state) {
    (void)state;
    by_metrics *m = make(false);
    by_buf out = {0};
    const char *text = write_text(m, &out, NULL);
    assert_null(strstr(text, "vllm:"));
    assert_null(strstr(text, "bathyc_kv_blocks"));
    IS("bathyc_ready", 0);
    assert_int_equal(by_metrics_set_model(m, "later", 77, 64, NULL), BY_OK);
    text = write_text(m, &out, NULL);
    IS("bathyc_model_info{model=\"later\",max_context=\"77\",block_tokens=\"64\"}", 1);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

/* Points that a request did not reach are not observed, and its other figures are. */
static void a_cancelled_request_has_no_first_token(void **state) {
    (void)state;
    by_metrics *m = make(false);
    by_buf out = {0};
    by_metrics_count_request(
        m, &(by_metrics_request){.submit_us = 5000, .end_us = 9000, .n_prompt = 9, .finish = BY_FINISH_CANCELLED});
    const char *text = write_text(m, &out, NULL);
    IS("bathyc_time_to_first_token_seconds_count", 0);
    IS("bathyc_queue_seconds_count", 0);
    IS("bathyc_decode_seconds_count", 0);
    IS("bathyc_request_time_per_output_token_seconds_count", 0);
    IS("bathyc_request_max_tokens_count", 0);
    IS("bathyc_request_seconds_sum", 0.004);
    IS("bathyc_request_output_tokens_bucket{le=\"1.0\"}", 1);
    IS("bathyc_requests_finished_total{reason=\"cancelled\"}", 1);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

/* Every bucket line of the text against counting by hand with the bound that the line itself names. */
static void histograms_count_as_a_slow_twin_does(void **state) {
    (void)state;
    static int64_t seen[5000];
    by_metrics *m = make(false);
    by_buf out = {0};
    by_rng rng = by_test_rng(11);
    int n = 5000;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        int64_t v = (int64_t)(by_rng_below(&rng, 1000) << by_rng_below(&rng, 36));
        if (i % 10 == 0) v = 1000000; /* just on a bound: inside it */
        if (i % 97 == 0) v = -v;
        by_metrics_observe(m, BY_HIST_FIRST_TOKEN, v);
        seen[i] = v < 0 ? 0 : v;
        sum += (double)seen[i] / 1e9;
    }
    const char *text = write_text(m, &out, NULL), *prefix = "bathyc_time_to_first_token_seconds_bucket{le=\"";
    int lines = 0;
    for (const char *p = strstr(text, prefix); p; p = strstr(p + 1, prefix), lines++) {
        const char *le = p + strlen(prefix);
        int want = n;
        if (*le != '+') {
            double bound = strtod(le, NULL) * 1e9;
            want = 0;
            for (int i = 0; i < n; i++) want += (double)seen[i] <= bound + 0.5;
        }
        assert_int_equal(strtoll(strchr(p, ' ') + 1, NULL, 10), want);
    }
    assert_true(lines > 10);
    IS("bathyc_time_to_first_token_seconds_count", n);
    assert_true(value_of(text, "bathyc_time_to_first_token_seconds_sum") / sum < 1 + 1e-9);
    assert_true(value_of(text, "bathyc_time_to_first_token_seconds_sum") / sum > 1 - 1e-9);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

enum { THREADS = 4 };
static int rounds;

static void *record(void *arg) {
    by_metrics *m = arg;
    for (int i = 0; i < rounds; i++) {
        by_metrics_add(m, BY_COUNT_STREAM_EVENTS, 2);
        by_metrics_gauge_add(m, BY_GAUGE_OPEN_REQUESTS, i % 2 ? 1 : -1);
        by_metrics_observe(m, BY_HIST_INTER_TOKEN, (i % 300) * 100000);
        by_metrics_count_response(m, BY_ENDPOINT_CHAT, 200);
    }
    return NULL;
}

/* Threads record while the text is written: each text is a valid histogram, counters never fall, nothing is lost. */
static void threads_lose_nothing(void **state) {
    (void)state;
    by_metrics *m = make(false);
    by_buf out = {0};
    pthread_t threads[THREADS];
    double events = 0, count = 0;
    rounds = by_test_scaled(100000);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, record, m), 0);
    for (int i = 0; i < 50; i++) {
        const char *text = write_text(m, &out, NULL);
        assert_true(value_of(text, "bathyc_http_stream_events_total") >= events);
        assert_true(value_of(text, "bathyc_inter_token_seconds_count") >= count);
        events = value_of(text, "bathyc_http_stream_events_total");
        count = value_of(text, "bathyc_inter_token_seconds_count");
        IS("bathyc_inter_token_seconds_bucket{le=\"+Inf\"}", count);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    const char *text = write_text(m, &out, NULL);
    IS("bathyc_http_stream_events_total", 2.0 * THREADS * rounds);
    IS("bathyc_inter_token_seconds_count", (double)THREADS * rounds);
    IS("bathyc_http_open_requests", rounds % 2 ? -(double)THREADS : 0);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

static void paths_have_endpoints(void **state) {
    (void)state;
    static const struct {
        const char *path;
        by_metrics_endpoint want;
    } rows[] = {{"/", BY_ENDPOINT_PAGE},
                {"", BY_ENDPOINT_OTHER},
                {"/v1/messages", BY_ENDPOINT_MESSAGES},
                {"/v1/messages/count_tokens", BY_ENDPOINT_COUNT_TOKENS},
                {"/v1/messages/batches", BY_ENDPOINT_MESSAGES},
                {"/v1/responses/resp_1/cancel", BY_ENDPOINT_RESPONSES},
                {"/v1/responsesx", BY_ENDPOINT_OTHER},
                {"/v1/models/a/b", BY_ENDPOINT_MODELS},
                {"/metrics", BY_ENDPOINT_METRICS},
                {"/nothing", BY_ENDPOINT_OTHER},
                {"/v1/chat/completions", BY_ENDPOINT_CHAT},
                {"/v1/completions", BY_ENDPOINT_COMPLETIONS}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(by_metrics_endpoint_of(by_str_z(rows[i].path)), rows[i].want);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    int64_t held = by_alloc_bytes_total();
    by_engine_stats stats = some_stats();
    bool done = false;
    for (int n = 1; !done && n < 200; n++) {
        by_metrics *m = NULL;
        by_buf out = {0};
        by_metrics_opts opts = {.model_name = "m", .vllm_names = true};
        by_alloc_fail_nth(n);
        by_status status = by_metrics_create(&m, &opts, NULL);
        if (status == BY_OK) status = by_metrics_write(m, &out, &stats, NULL);
        done = status == BY_OK && n > 20; /* reading /proc may fail without failing the text */
        if (status != BY_OK) assert_int_equal(status, BY_ENOMEM);
        by_alloc_fail_nth(0);
        by_buf_deinit(&out);
        by_metrics_destroy(m);
        assert_int_equal(by_alloc_bytes_total(), held);
    }
    assert_true(done);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--dump") == 0) {
        by_metrics *m = make(true);
        by_buf out = {0};
        by_engine_stats stats = some_stats();
        fill(m);
        fputs(write_text(m, &out, &stats), stdout);
        by_buf_deinit(&out);
        by_metrics_destroy(m);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_is_written),
        cmocka_unit_test(steps_and_evictions_are_written),
        cmocka_unit_test(without_an_engine_or_the_flag_its_families_are_absent),
        cmocka_unit_test(a_cancelled_request_has_no_first_token),
        cmocka_unit_test(histograms_count_as_a_slow_twin_does),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(paths_have_endpoints),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
