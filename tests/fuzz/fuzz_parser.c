/* Fuzz entry of recipe/parser.h: the first bytes choose the options and how the text is cut, the rest is the text. The joined
 * result must be the same whole, in pieces, and from the slow twin. */
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "support/parse_twin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { HEAD = 4, MOST = 2048 };
    if (size < HEAD || size > MOST) return 0;
    static const char *const stops[] = {"STOP", "\n", "aab", "é"};
    by_str list[4];
    by_parser_opts opts = {.parse_calls = data[0] & 1,
                           .starts_in_calls = data[0] & 2,
                           .json_output = data[0] & 4,
                           .eager = data[0] & 8,
                           .stage = (by_stage)(data[0] >> 4 & 3),
                           .stops = list,
                           .n_stops = data[1] & 3};
    for (size_t i = 0; i < opts.n_stops; i++) list[i] = by_str_z(stops[(data[1] >> (2 + i)) & 3]);
    by_str raw = {(const char *)data + HEAD, size - HEAD};
    by_buf text = {0};
    by_utf8_push_lossy(&text, raw);

    static size_t cuts[MOST];
    size_t n = 0, step = 1 + data[2] % 16;
    for (size_t at = data[3] % 16; at < raw.len; at += step) cuts[n++] = at;
    by_parse_record whole = {0}, cut = {0}, twin = {0};
    by_parse_in_pieces(&whole, &opts, raw, NULL, 0);
    by_parse_in_pieces(&cut, &opts, raw, cuts, n);
    by_parse_twin(&twin, &opts, by_buf_str(&text));
    if (!by_parse_record_same(&whole, &cut, opts.json_output) || !by_parse_record_same(&whole, &twin, opts.json_output))
        abort();
    by_parse_record_deinit(&whole);
    by_parse_record_deinit(&cut);
    by_parse_record_deinit(&twin);
    by_buf_deinit(&text);
    return 0;
}
