/* mm_amx.c - bf16 cores on the matrix unit: A8 rows times FP4 and FP8 weights, bf16 rows times bf16 and fp32 weights, with
 * tdpbf16ps. Compiled with AVX-512 F, BW, VL, DQ, VBMI, BF16 and AMX tile, bf16.
 *
 * The weights are the left operand. A left tile is 16 weight rows by 32 columns of bf16, which is just what the expansions of
 * mm_bf16.h leave in a register for one row; they go to a small buffer that stays in the first-level cache, products with
 * their scales included (exact). bf16 weights are loaded where they lie; an fp32 weight is the sum of three bf16 numbers.
 * The right tile is 32 columns of up to 16 rows of x, pairs of columns interleaved over the rows, which is how x is packed. Result
 * tiles are 16 weights by 16 rows of x.
 *
 *   x block (n rows, n <= 16):  [k / 32][16 pairs][n] x 2 bf16
 *   buffer:                     [STEPS][2 halves of 16 weight rows][16][32] bf16, twice: one is filled while the other is used
 *
 * A core call takes 32 weight rows and up to 128 rows of x, in pairs of blocks: 4 result tiles, 4 operand tiles. With more
 * than one pair the results rest in memory between runs of STEPS tile columns; FP4 with one pair has a shorter way
 * (multiply_few). The order of sums is the instruction's own over 32 columns, then columns ascending: the same for every number of
 * rows.
 *
 * Scales outside the safe range count as safe where all weights of the group are zero (a checkpoint may give such a group any
 * scale); other rows of weights with such scales, and rows with NaN, are left to by_mm_wide. */
#include "ops/cpu/cpu_mm.h"

#include <string.h>

#include "ops/cpu/mm_bf16.h"

enum {
    STEPS = 8,                     /* tile columns expanded at once (256 weight columns): both buffers stay in L1 */
    TILE_BYTES = 1024,
    BUFFER_BYTES = STEPS * 2 * TILE_BYTES,
    PAIRS = BY_MM_MT / (2 * BY_MM_BLOCK),
    RESULT_TILES = 4 * PAIRS
};

typedef struct {
    uint8_t buffer[2][BUFFER_BYTES];
    float result[RESULT_TILES][16][16]; /* [pair, weight half, block of the pair][weight][row of x] */
    uint16_t exponent[STEPS / 2][32];   /* FP8: what to add to the values of a block */
    uint32_t add[BY_MM_ROWS][STEPS];    /* FP4: what to add to the table, as pairs of words */
    uint32_t shape;                     /* for which the tiles are configured, 0 = they are not */
} work;

/* Where the expansion of a run of tile columns stands. */
typedef struct {
    const by_mm_tile *t;
    work *w;
    int type;
    int64_t columns;  /* tile columns with padding */
    const fp8_tables *tab; /* FP8 */
    __m512i nan_seen; /* FP8: largest high byte so far */
    int64_t c;        /* first tile column of the run */
    int32_t r;        /* next row */
    const uint8_t *p;         /* that row's weights at column c */
    uint8_t *to;              /* its place in the buffer */
    int64_t ahead;            /* bytes from the start of the run to column 0 of the row 32 below */
} state;

/* Rows and columns of a square of 16 x 16 words change places. */
MM_INLINE void turn(__m512i r[16]) {
    __m512i t[16];
    MM_UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    MM_UNROLL for (int i = 0; i < 16; i += 4) { /* quarter q of r[i + j]: column 4 q + j of the rows i .. i + 3 */
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    MM_UNROLL for (int j = 0; j < 4; j++) {
        __m512i even0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), odd0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88), odd1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_i32x4(even0, even1, 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
        t[8 + j] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
        t[12 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
    }
    MM_UNROLL for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* ---- expansion --------------------------------------------------------------------------------------------------- */

/* n <= STEPS tile columns of a row of FP4 weights. */
MM_INLINE void unpack_fp4(const state *s, int n) {
    /* Local copies: as far as the compiler knows, the stores below may change *s. */
    const uint8_t *p = s->p;
    uint8_t *to = s->to;
    const uint32_t *add = s->w->add[s->r];
    const __m512i table = _mm512_loadu_si512(fp4_table);
    MM_UNROLL for (int i = 0; i < n; i++) {
        __m512i scaled = _mm512_mask_add_epi16(table, 0xfefefefe, table, _mm512_set1_epi32((int)add[i]));
        _mm512_store_si512(to + i * 2 * TILE_BYTES, _mm512_permutexvar_epi16(fp4_index(p + i * 16), scaled));
    }
}

/* The same of FP8 weights: blocks of 64 columns, each two tile columns; n is even. The tables hold values times 2^-50 and
 * the exponents to add are counted from there, so that a minimum with the value itself keeps zeros zero. */
MM_INLINE void unpack_fp8(state *s, int n) {
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    const fp8_tables tab = *s->tab;
    const uint8_t *p = s->p;
    uint8_t *to = s->to;
    const work *w = s->w;
    __m512i nan_seen = s->nan_seen;
    MM_UNROLL for (int i = 0; i < n; i += 2) {
        bool whole = n == STEPS || (s->c + i) * 32 + 64 <= s->t->k;
        if (n == STEPS && i == STEPS - 2) whole = s->c * 32 + STEPS * 32 <= s->t->k; /* the last half may be padding */
        __m512i b = whole ? _mm512_loadu_si512(p + i * 32) : _mm512_maskz_loadu_epi8(0xffffffff, p + i * 32);
        __m512i lo = _mm512_permutex2var_epi8(tab.lo0, b, tab.lo1), hi = _mm512_permutex2var_epi8(tab.hi0, b, tab.hi1);
        nan_seen = _mm512_max_epu8(nan_seen, hi);
        hi = _mm512_ternarylogic_epi32(hi, b, sign, 0xf8); /* hi | (b & 0x80) */
        __m512i add = _mm512_load_si512(w->exponent[i / 2]);
        __m512i w0 = _mm512_unpacklo_epi8(lo, hi), w1 = _mm512_unpackhi_epi8(lo, hi);
        w0 = _mm512_add_epi16(w0, _mm512_min_epu16(_mm512_add_epi16(w0, w0), add)); /* doubling drops the sign */
        w1 = _mm512_add_epi16(w1, _mm512_min_epu16(_mm512_add_epi16(w1, w1), add));
        _mm512_store_si512(to + i * 2 * TILE_BYTES, w0);
        _mm512_store_si512(to + (i + 1) * 2 * TILE_BYTES, w1);
    }
    s->nan_seen = nan_seen;
}

/* The last, shorter run of a row. */
static void unpack_rest(state *s) {
    switch (s->columns - s->c) {
    case 1: unpack_fp4(s, 1); break;
    case 2: s->type == BY_MM_FP4 ? unpack_fp4(s, 2) : unpack_fp8(s, 2); break;
    case 3: unpack_fp4(s, 3); break;
    case 4: s->type == BY_MM_FP4 ? unpack_fp4(s, 4) : unpack_fp8(s, 4); break;
    case 5: unpack_fp4(s, 5); break;
    case 6: s->type == BY_MM_FP4 ? unpack_fp4(s, 6) : unpack_fp8(s, 6); break;
    case 7: unpack_fp4(s, 7); break;
    }
}

/* Exponents to add in the run of tile columns that starts at s->c. They are ready long before they are read: a broadcast of
 * what was just stored would wait for the store. */
static void prepare_fp4(const state *s) {
    const by_mm_tile *t = s->t;
    int64_t n = s->columns - s->c < STEPS ? s->columns - s->c : STEPS;
    for (int64_t r = 0; r < t->n_rows; r++) {
        __m128i scale = _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), t->scale + r * t->scale_stride + s->c);
        __m256i e = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_cvtepu8_epi32(scale), _mm256_set1_epi32(127)), 7 + 16);
        _mm256_store_si256((__m256i *)(void *)s->w->add[r], _mm256_or_si256(e, _mm256_srli_epi32(e, 16)));
    }
}
static void prepare_fp8(const state *s) { /* low half of a block, high half */
    const by_mm_tile *t = s->t;
    for (int64_t i = 0; i < STEPS && s->c + i < s->columns; i++) {
        int b = s->c + i < t->k / 32 ? t->scale[s->c + i] : 127;
        b = b < BY_MM_SAFE_LO ? BY_MM_SAFE_LO : b > BY_MM_SAFE_HI ? BY_MM_SAFE_HI : b;
        _mm256_store_si256((__m256i *)(void *)&s->w->exponent[i / 2][i % 2 * 16], _mm256_set1_epi16((short)((b - BY_MM_SAFE_LO) * 128)));
    }
}

/* Starts the run of tile columns at c. */
MM_INLINE void start_run(state *s, uint8_t *buffer, int64_t c) {
    s->c = c;
    s->r = 0;
    s->to = buffer;
    s->p = s->t->w + c * (s->type == BY_MM_FP4 ? 16 : 32);
    s->ahead = BY_MM_ROWS * s->t->stride - c * (s->type == BY_MM_FP4 ? 16 : 32);
    if (s->type == BY_MM_FP4) prepare_fp4(s);
    else prepare_fp8(s);
}

/* The next row of the run. Fetches the same row's next columns, or at the end the first ones of the row 32 below, which this
 * thread usually takes next. */
MM_INLINE void expand_row(state *s) {
    const by_mm_tile *t = s->t;
    enum { FP4_RUN = STEPS * 16, FP8_RUN = STEPS * 32 };
    const int run = s->type == BY_MM_FP4 ? FP4_RUN : FP8_RUN;
    const uintptr_t next = (uintptr_t)s->p + (uintptr_t)(s->columns - s->c > STEPS ? run : s->ahead);
    MM_UNROLL for (int i = 0; i < run; i += 64) _mm_prefetch((const char *)(next + (uintptr_t)i), _MM_HINT_T0);
    if (s->columns - s->c < STEPS) unpack_rest(s);
    else if (s->type == BY_MM_FP4) unpack_fp4(s, STEPS);
    else unpack_fp8(s, STEPS);
    s->r++;
    s->p += t->stride;
    s->to += 64;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Tiles 0..3: results (weight half, block); 4, 5: weight halves; 6, 7: blocks of x. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "layout of the tile configuration");

/* n0, n1: rows of x in the two blocks, n1 may be 0; w0, w1: weight rows in the two halves, w1 may be 0. */
static void load_config(int n0, int n1, int w0, int w1) {
    tile_config c = {.palette = 1};
    int second = n1 ? n1 : n0, lower = w1 ? w1 : w0;
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i == 6 || i == 7 ? 16 : i == 2 || i == 3 || i == 5 ? lower : w0);
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? 64 : 4 * (i == 6 || i == 0 || i == 2 ? n0 : second));
    }
    __asm__ volatile("" : : "m"(c)); /* gcc 12 believes that the instruction reads the first 8 bytes only */
    _tile_loadconfig(&c);
}
/* The same, unless it is so already: the instruction takes longer than several products. */
MM_INLINE void configure(work *w, int n0, int n1, int w0, int w1) {
    const uint32_t shape = (uint32_t)(n0 | n1 << 8 | w0 << 16 | w1 << 24);
    if (w->shape == shape) return;
    load_config(n0, n1, w0, w1);
    w->shape = shape;
}

static void enter(void *scratch) { ((work *)scratch)->shape = 0; }
static void leave(void *scratch) {
    if (((work *)scratch)->shape) _tile_release();
}

/* One step of up to 2 x 2 tiles: 16 weight rows at `low` and, if tall, 16 more at `high`, `apart` bytes from row to row, times the
 * blocks b0 (n0 columns) and, if two, b1. */
MM_INLINE void multiply_tiles(const uint8_t *low, const uint8_t *high, size_t apart, const uint8_t *b0, const uint8_t *b1, int64_t n0,
                              int64_t n1, bool two, bool tall) {
    _tile_loadd(4, low, apart);
    _tile_loadd(6, b0, (size_t)(4 * n0));
    _tile_dpbf16ps(0, 4, 6);
    if (two) {
        _tile_loadd(7, b1, (size_t)(4 * n1));
        _tile_dpbf16ps(1, 4, 7);
    }
    if (tall) {
        _tile_loadd(5, high, apart);
        _tile_dpbf16ps(2, 5, 6);
        if (two) _tile_dpbf16ps(3, 5, 7);
    }
}

/* One pair of blocks over n tile columns in the buffer; rows of the next run are expanded between the steps, per_step each,
 * until `rows` are done. two: the pair has a second block; tall: more than 16 weight rows. */
MM_INLINE void multiply_pair(state *s, const uint8_t *buffer, const uint8_t *b0, const uint8_t *b1, int64_t n0, int64_t n1,
                             int64_t n, bool two, bool tall, int rows, int per_step) {
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *low = buffer + i * 2 * TILE_BYTES;
        multiply_tiles(low, low + TILE_BYTES, 64, b0 + i * 64 * n0, b1 + i * 64 * n1, n0, n1, two, tall);
        for (int u = 0; u < per_step && s->r < rows; u++) expand_row(s);
    }
}

MM_INLINE void load_results(float (*r)[16][16], bool first) {
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, r[0], 64);
    _tile_loadd(1, r[1], 64);
    _tile_loadd(2, r[2], 64);
    _tile_loadd(3, r[3], 64);
}

MM_INLINE void store_results(float (*r)[16][16], bool two, bool tall) {
    _tile_stored(0, r[0], 64);
    if (two) _tile_stored(1, r[1], 64);
    if (tall) _tile_stored(2, r[2], 64);
    if (two && tall) _tile_stored(3, r[3], 64);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

enum { FEW_COLUMNS = 4 }; /* so many columns are gathered one by one sooner than the square is turned */

/* n <= 16 columns of a square of 16 rows, each as a row of `to`, stride bytes apart. */
MM_INLINE void store_columns(uint8_t *to, int64_t stride, const void *square, int n) {
    const uint8_t *p = square;
    if (n < FEW_COLUMNS) {
        const __m512i every = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
        for (int i = 0; i < n; i++) _mm512_storeu_si512(to + i * stride, _mm512_i32gather_epi32(every, p + 4 * i, 4));
        return;
    }
    __m512i r[16];
    MM_UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(p + i * 64);
    turn(r);
    MM_UNROLL for (int i = 0; i < 16; i++)
        if (i < n) _mm512_storeu_si512(to + i * stride, r[i]);
}

/* Two rows of 16 to bf16. The instruction turns denormals into zeros (the products leave none, only by_mm_wide can, whose results
 * the callers round). */
MM_INLINE __m512i round_pair(__m512 a, __m512 b) { return (__m512i)_mm512_cvtne2ps_pbh(b, a); }

/* n <= 16 rows of x times n_rows <= 32 weights, from squares [weight][row of x], to their rows of out. Pairs of weights are rounded
 * before the square is turned, which halves it. */
static void put_block(const by_mm_out *out, int64_t n0, int64_t m, int n, int n_rows, const float (*low)[16], const float (*high)[16]) {
    const __mmask32 columns = (__mmask32)(UINT32_MAX >> (BY_MM_ROWS - n_rows));
    const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                           18, 2, 17, 1, 16, 0);
    const by_mm_out o = *out;
    __m512i r[16];
    if (o.bf16) {
        MM_UNROLL for (int j = 0; j < 8; j++) {
            r[j] = _mm512_permutexvar_epi16(pairs, round_pair(_mm512_load_ps(low[2 * j]), _mm512_load_ps(low[2 * j + 1])));
            r[8 + j] = _mm512_permutexvar_epi16(pairs, round_pair(_mm512_load_ps(high[2 * j]), _mm512_load_ps(high[2 * j + 1])));
        }
        turn(r);
        MM_UNROLL for (int i = 0; i < 16; i++)
            if (i < n) _mm512_mask_storeu_epi16(o.y + (o.list ? o.list[m + i] : m + i) * o.stride + n0 * 2, columns, r[i]);
        return;
    }
    for (int half = 0; half < n_rows; half += 16) {
        MM_UNROLL for (int j = 0; j < 16; j++) r[j] = _mm512_load_si512(half ? high[j] : low[j]);
        turn(r);
        MM_UNROLL for (int i = 0; i < 16; i++)
            if (i < n)
                _mm512_mask_storeu_epi32(o.y + (o.list ? o.list[m + i] : m + i) * o.stride + (n0 + half) * 4, (__mmask16)(columns >> half),
                                         r[i]);
    }
}

/* The same of n < FEW_COLUMNS rows of x. */
static void put_few(const by_mm_out *out, int64_t n0, int64_t m, int n, int n_rows, const float (*low)[16], const float (*high)[16]) {
    const __m512i every = _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
    const __mmask32 columns = (__mmask32)(UINT32_MAX >> (BY_MM_ROWS - n_rows));
    for (int i = 0; i < n; i++) {
        uint8_t *to = out->y + (out->list ? out->list[m + i] : m + i) * out->stride;
        __m512 a = _mm512_i32gather_ps(every, &low[0][i], 4), b = _mm512_i32gather_ps(every, &high[0][i], 4);
        if (out->bf16) {
            _mm512_mask_storeu_epi16(to + n0 * 2, columns, round_pair(a, b));
        } else {
            _mm512_mask_storeu_ps(to + n0 * 4, (__mmask16)columns, a);
            _mm512_mask_storeu_ps(to + n0 * 4 + 64, (__mmask16)(columns >> 16), b);
        }
    }
}

/* From the result tiles [weight][row of x] to where out says, or y[m][32]. */
static void write_results(const by_mm_tile *t, const work *w) {
    for (int32_t m = 0; m < t->m; m += BY_MM_BLOCK) {
        const int pair = m / 32, block = m / 16 % 2, n = t->m - m < BY_MM_BLOCK ? t->m - m : BY_MM_BLOCK;
        const float(*low)[16] = w->result[4 * pair + block], (*high)[16] = w->result[4 * pair + 2 + block];
        if (t->out) {
            (n < FEW_COLUMNS ? put_few : put_block)(t->out, t->n0, m, n, t->n_rows, low, high);
            continue;
        }
        uint8_t *to = (uint8_t *)(t->y + m * BY_MM_ROWS);
        store_columns(to, BY_MM_ROWS * 4, low, n);
        if (t->n_rows > 16) store_columns(to + 64, BY_MM_ROWS * 4, high, n);
    }
}

/* ---- many rows of x ----------------------------------------------------------------------------------------------- */

/* All pairs of blocks of a tile over n tile columns from c on. The rows of the next run, of this tile or the next, are expanded
 * between the products. */
MM_INLINE void multiply_run(state *s, const by_mm_tile *t, const uint8_t *buffer, int64_t c, int64_t n, bool last, int rows) {
    const int n_pairs = (t->m + 31) / 32, per_step = (BY_MM_ROWS + n_pairs * STEPS - 1) / (n_pairs * STEPS);
    const bool tall = t->n_rows > 16;
    for (int p = 0; p < n_pairs; p++) {
        int64_t left = t->m - p * 32, n0 = left < 16 ? left : 16, n1 = left < 16 ? 0 : left < 32 ? left - 16 : 16;
        const uint8_t *b0 = t->x + p * 32 * t->x_stride, *b1 = b0 + 16 * t->x_stride;
        if (c == 0 || n_pairs > 1) {
            configure(s->w, (int)n0, (int)n1, 16, 16);
            load_results(s->w->result + 4 * p, c == 0);
        }
        b0 += c * 64 * n0;
        b1 += c * 64 * n1;
        if (tall && n1) multiply_pair(s, buffer, b0, b1, n0, n1, n, true, true, rows, per_step);
        else if (tall) multiply_pair(s, buffer, b0, b0, n0, 0, n, false, true, rows, per_step);
        else if (n1) multiply_pair(s, buffer, b0, b1, n0, n1, n, true, false, rows, per_step);
        else multiply_pair(s, buffer, b0, b0, n0, 0, n, false, false, rows, per_step);
        if (last || n_pairs > 1) store_results(s->w->result + 4 * p, n1 > 0, tall);
    }
    while (s->r < rows) expand_row(s);
}

/* n tiles with the same x. nan_seen [n]: what state.nan_seen has come to for each. */
MM_INLINE void multiply_all(state *s, const by_mm_tile *tiles, int n, __m512i *nan_seen) {
    start_run(s, s->w->buffer[0], 0);
    while (s->r < s->t->n_rows) expand_row(s);
    int run = 0;
    for (int i = 0; i < n; i++) {
        for (int64_t c = 0; c < s->columns; c += STEPS, run++) {
            const bool last = c + STEPS >= s->columns;
            int rows = 0;
            if (last) {
                nan_seen[i] = s->nan_seen;
                s->nan_seen = _mm512_setzero_si512();
                if (i + 1 < n) s->t = &tiles[i + 1];
            }
            if (!last || i + 1 < n) {
                start_run(s, s->w->buffer[~run & 1], last ? 0 : c + STEPS);
                rows = s->t->n_rows;
            }
            multiply_run(s, &tiles[i], s->w->buffer[run & 1], c, last ? s->columns - c : STEPS, last, rows);
        }
        write_results(&tiles[i], s->w);
    }
}

/* ---- few rows of x ------------------------------------------------------------------------------------------------ */

/* Entry e: the table of FP4 values times 2^(e - 127), e cut to the safe range; twice, as fp4_table. */
#define FP4_CUT(e) ((e) < BY_MM_SAFE_LO ? BY_MM_SAFE_LO : (e) > BY_MM_SAFE_HI ? BY_MM_SAFE_HI : (e))
#define FP4_E(e, v) (short)((v) + (FP4_CUT(e) - 127) * 128)
#define FP4_T(e)                                                                                                       \
    0, FP4_E(e, 0x3f00), FP4_E(e, 0x3f80), FP4_E(e, 0x3fc0), FP4_E(e, 0x4000), FP4_E(e, 0x4040), FP4_E(e, 0x4080),     \
        FP4_E(e, 0x40c0), 0, FP4_E(e, 0xbf00), FP4_E(e, 0xbf80), FP4_E(e, 0xbfc0), FP4_E(e, 0xc000), FP4_E(e, 0xc040), \
        FP4_E(e, 0xc080), FP4_E(e, 0xc0c0)
#define FP4_1(e) {FP4_T(e), FP4_T(e)}
#define FP4_4(e) FP4_1(e), FP4_1((e) + 1), FP4_1((e) + 2), FP4_1((e) + 3)
#define FP4_16(e) FP4_4(e), FP4_4((e) + 4), FP4_4((e) + 8), FP4_4((e) + 12)
#define FP4_64(e) FP4_16(e), FP4_16((e) + 16), FP4_16((e) + 32), FP4_16((e) + 48)
static _Alignas(64) const short fp4_scaled[256][32] = {FP4_64(0), FP4_64(64), FP4_64(128), FP4_64(192)};

/* n tile columns of `rows` weight rows; p and s stand at the first ones of the first row. */
MM_INLINE void columns_fp4(uint8_t *to, const uint8_t *p, int64_t stride, const uint8_t *s, int64_t scale_stride, int rows, int n) {
    for (int r = 0; r < rows; r++, p += stride, s += scale_stride, to += 64)
        MM_UNROLL for (int i = 0; i < n; i++)
            _mm512_store_si512(to + i * 2 * TILE_BYTES,
                               _mm512_permutexvar_epi16(fp4_index(p + i * 16), _mm512_load_si512(fp4_scaled[s[i]])));
}

/* Up to RUN tile columns of FP4 weights, which are expanded while the run before is multiplied. */
typedef struct {
    const by_mm_tile *t; /* of the next run */
    int64_t c;           /* its first column */
    int n;
} fp4_run;

MM_INLINE void expand_run(fp4_run *run, uint8_t *to, const by_mm_tile *end, int64_t columns, int most) {
    const by_mm_tile *t = run->t;
    run->n = 0;
    if (t == end) return;
    const int64_t left = columns - run->c;
    run->n = left < most ? (int)left : most;
    const uint8_t *p = t->w + run->c * 16, *scale = t->scale + run->c;
    switch (run->n) {
    case 1: columns_fp4(to, p, t->stride, scale, t->scale_stride, t->n_rows, 1); break;
    case 2: columns_fp4(to, p, t->stride, scale, t->scale_stride, t->n_rows, 2); break;
    case 3: columns_fp4(to, p, t->stride, scale, t->scale_stride, t->n_rows, 3); break;
    case 4: columns_fp4(to, p, t->stride, scale, t->scale_stride, t->n_rows, 4); break;
    }
    run->c += run->n;
    if (run->c < columns) return;
    run->c = 0;
    run->t++;
}

/* FP4 with at most two blocks of x. A run of columns is expanded behind the products of the run before, so that the processor does
 * both at a time. The weight rows below, which this thread usually takes next, are fetched in the order of their addresses:
 * 32 separate streams are more than the hardware follows. */
MM_INLINE void multiply_few(const state *s, const by_mm_tile *tiles, int n, bool two) {
    enum { RUN = 4, LINES = BY_MM_ROWS * 16 / 64 };
    const int64_t m = tiles->m, n0 = m < 16 ? m : 16, n1 = m - n0, columns = s->columns;
    const uint8_t *b0 = tiles->x, *b1 = tiles->x + 16 * tiles->x_stride;
    fp4_run run = {.t = tiles};
    int at = 0;
    configure(s->w, (int)n0, (int)n1, 16, 16);
    expand_run(&run, s->w->buffer[0], tiles + n, columns, RUN);
    for (const by_mm_tile *t = tiles; t < tiles + n; t++) {
        const bool tall = t->n_rows > 16;
        uintptr_t next = (uintptr_t)t->w + (uintptr_t)(BY_MM_ROWS * t->stride);
        uintptr_t next_scale = (uintptr_t)t->scale + (uintptr_t)(BY_MM_ROWS * t->scale_stride);
        load_results(s->w->result, true);
        for (int64_t c = 0; c < columns;) {
            const uint8_t *slot = s->w->buffer[at];
            const int k = run.n;
            for (int i = 0; i < k; i++, c++, slot += 2 * TILE_BYTES) {
                multiply_tiles(slot, slot + TILE_BYTES, 64, b0 + c * 64 * n0, b1 + c * 64 * n1, n0, n1, two, tall);
                for (int j = 0; j < LINES; j++, next += 64) _mm_prefetch((const char *)next, _MM_HINT_T1);
                if (c % 2 == 0) { /* 32 bytes a column */
                    _mm_prefetch((const char *)next_scale, _MM_HINT_T1);
                    next_scale += 64;
                }
            }
            expand_run(&run, s->w->buffer[at ^= 1], tiles + n, columns, RUN);
        }
        store_results(s->w->result, two, tall);
        write_results(t, s->w);
    }
}

static void multiply_fp4(state *s, const by_mm_tile *tiles, int n) {
    __m512i nan_seen[BY_MM_JOBS]; /* FP4 has none */
    if (tiles->m <= 16) multiply_few(s, tiles, n, false);
    else if (tiles->m <= 32) multiply_few(s, tiles, n, true);
    else multiply_all(s, tiles, n, nan_seen);
}

/* ---- bf16 weights -------------------------------------------------------------------------------------------------- */

/* Tiles are loaded from the weights themselves; the last columns of a width that is no multiple of 32 through the buffer. The rows
 * below are fetched in the order of their addresses, as in multiply_few. */
MM_INLINE void multiply_plain(const by_mm_tile *t, work *w, bool two, bool tall, int64_t m0) {
    const int64_t whole = t->k / 32, columns = (t->k + 31) / 32, left = t->m - m0;
    const int64_t n0 = left < 16 ? left : 16, n1 = left < 32 ? left - n0 : 16;
    const uint8_t *b0 = t->x + m0 * t->x_stride, *b1 = b0 + 16 * t->x_stride;
    const int w0 = t->n_rows < 16 ? t->n_rows : 16, w1 = t->n_rows - w0;
    uintptr_t next = (uintptr_t)t->w + (uintptr_t)(BY_MM_ROWS * t->stride);
    if (whole < columns) { /* rows 64 bytes apart, zeros behind the width */
        const __mmask32 rest = (__mmask32)((UINT32_C(1) << t->k % 32) - 1);
        for (int r = 0; r < t->n_rows; r++)
            _mm512_store_si512(w->buffer[0] + r * 64, _mm512_maskz_loadu_epi16(rest, t->w + r * t->stride + whole * 64));
    }
    configure(w, (int)n0, (int)n1, w0, w1);
    load_results(w->result, true);
    for (int64_t c = 0; c < columns; c++) {
        const uint8_t *from = c < whole ? t->w + c * 64 : w->buffer[0];
        const size_t apart = c < whole ? (size_t)t->stride : 64;
        multiply_tiles(from, from + 16 * apart, apart, b0 + c * 64 * n0, b1 + c * 64 * n1, n0, n1, two, tall);
        for (int i = 0; i < BY_MM_ROWS && m0 == 0; i++, next += 64) _mm_prefetch((const char *)next, _MM_HINT_T1);
    }
    store_results(w->result + 4 * (m0 / 32), two, tall);
}

/* ---- fp32 weights -------------------------------------------------------------------------------------------------- */

/* 24 bits in three times eight: the upper half of the number, that of what is left, and the rest; each difference is exact, and so
 * are their products with bf16. Parts below 2^-126 count as zero, and an infinite factor gives NaN. */
enum { PARTS = 3, PART_BYTES = 2 * TILE_BYTES, SPLIT_BYTES = PARTS * PART_BYTES, SPLIT_RUN = BUFFER_BYTES / SPLIT_BYTES };

MM_INLINE void split_column(uint8_t *to, __m512 a, __m512 b) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000), odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39,
        37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    MM_UNROLL for (int part = 0; part < PARTS; part++) {
        const __m512i ia = _mm512_castps_si512(a), ib = _mm512_castps_si512(b);
        _mm512_store_si512(to + part * PART_BYTES, _mm512_permutex2var_epi16(ia, odd, ib));
        a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(ia, upper)));
        b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(ib, upper)));
    }
}

/* Where the splitting of a run of n tile columns from c on stands: [column][part][weight row][32]. */
typedef struct {
    const by_mm_tile *t;
    const uint8_t *p; /* next row's weights at column c */
    uint8_t *to;
    int64_t c, n;
    int r; /* next row; n_rows: done */
} split_state;

static split_state split_start(const by_mm_tile *t, uint8_t *to, int64_t c) {
    const int64_t left = (t->k + 31) / 32 - c;
    return (split_state){.t = t, .p = t->w + c * 128, .to = to, .c = c, .n = left < SPLIT_RUN ? left : SPLIT_RUN, .r = left > 0 ? 0 : t->n_rows};
}

MM_INLINE void split_rows(split_state *s, int n) {
    for (; n > 0 && s->r < s->t->n_rows; n--, s->r++, s->p += s->t->stride, s->to += 64) {
        for (int64_t i = 0; i < s->n; i++) {
            const uint8_t *at = s->p + i * 128;
            const int64_t rest = s->t->k - (s->c + i) * 32;
            if (rest >= 32) {
                split_column(s->to + i * SPLIT_BYTES, _mm512_loadu_ps(at), _mm512_loadu_ps(at + 64));
            } else {
                const uint32_t columns = (UINT32_C(1) << rest) - 1;
                split_column(s->to + i * SPLIT_BYTES, _mm512_maskz_loadu_ps((__mmask16)columns, at),
                             _mm512_maskz_loadu_ps((__mmask16)(columns >> 16), at + 64));
            }
        }
    }
}

/* n columns of one pair of blocks; between the products, per_step rows of the next run are split. */
MM_INLINE void multiply_split(const uint8_t *from, const uint8_t *b0, const uint8_t *b1, int64_t n0, int64_t n1, int64_t n, bool two,
                              bool tall, split_state *next, int per_step) {
    for (int64_t i = 0; i < n; i++, from += SPLIT_BYTES) {
        _tile_loadd(6, b0 + i * 64 * n0, (size_t)(4 * n0));
        if (two) _tile_loadd(7, b1 + i * 64 * n1, (size_t)(4 * n1));
        for (int part = 0; part < PARTS; part++) {
            _tile_loadd(4, from + part * PART_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            if (two) _tile_dpbf16ps(1, 4, 7);
            if (tall) {
                _tile_loadd(5, from + part * PART_BYTES + TILE_BYTES, 64);
                _tile_dpbf16ps(2, 5, 6);
                if (two) _tile_dpbf16ps(3, 5, 7);
            }
            split_rows(next, per_step);
        }
    }
}

static void one_f32(const by_mm_tile *t) {
    work *w = (work *)(void *)t->scratch;
    const int64_t columns = (t->k + 31) / 32, n_pairs = (t->m + 31) / 32, steps = n_pairs * SPLIT_RUN * PARTS;
    const int w0 = t->n_rows < 16 ? t->n_rows : 16, w1 = t->n_rows - w0, per_step = (int)((t->n_rows + steps - 1) / steps);
    split_state next = split_start(t, w->buffer[0], 0);
    split_rows(&next, BY_MM_ROWS);
    for (int64_t c = 0; c < columns; c += SPLIT_RUN) {
        const uint8_t *buffer = w->buffer[c / SPLIT_RUN % 2];
        const int64_t n = next.n;
        next = split_start(t, w->buffer[~(c / SPLIT_RUN) & 1], c + n);
        for (int64_t p = 0; p < n_pairs; p++) {
            const int64_t left = t->m - p * 32, n0 = left < 16 ? left : 16, n1 = left < 32 ? left - n0 : 16;
            const uint8_t *b0 = t->x + p * 32 * t->x_stride, *b1 = b0 + 16 * t->x_stride;
            if (c == 0 || n_pairs > 1) {
                configure(w, (int)n0, (int)n1, w0, w1);
                load_results(w->result + 4 * p, c == 0);
            }
            b0 += c * 64 * n0;
            b1 += c * 64 * n1;
            if (w1 && n1) multiply_split(buffer, b0, b1, n0, n1, n, true, true, &next, per_step);
            else if (w1) multiply_split(buffer, b0, b0, n0, 0, n, false, true, &next, per_step);
            else if (n1) multiply_split(buffer, b0, b1, n0, n1, n, true, false, &next, per_step);
            else multiply_split(buffer, b0, b0, n0, 0, n, false, false, &next, per_step);
            if (n_pairs > 1 || c + n == columns) store_results(w->result + 4 * p, n1 > 0, w1 > 0);
        }
        split_rows(&next, BY_MM_ROWS);
    }
    write_results(t, w);
}

/* ---- cores ------------------------------------------------------------------------------------------------------- */

static bool all_zero(const uint8_t *p, int64_t n, uint8_t keep) {
    uint8_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= p[i];
    return (any & keep) == 0;
}

/* Rows with a scale outside the safe range and a weight that is not zero in its group. */
static uint32_t far_rows_fp4(const by_mm_tile *t) {
    uint32_t far = 0;
    if (t->scale_stride == t->k / 32 && scales_safe(t->scale, t->n_rows * t->scale_stride)) return 0; /* one behind another */
    for (int64_t r = 0; r < t->n_rows; r++) {
        const uint8_t *s = t->scale + r * t->scale_stride;
        if (scales_safe(s, t->k / 32)) continue;
        for (int64_t g = 0; g < t->k / 32; g++)
            if (!scales_safe(s + g, 1) && !all_zero(t->w + r * t->stride + g * 16, 16, 0x77)) far |= UINT32_C(1) << r;
    }
    return far;
}

static void many_fp4(const by_mm_tile *tiles, int n, uint32_t *bad) {
    state s = {.t = tiles, .w = (work *)(void *)tiles->scratch, .type = BY_MM_FP4, .columns = tiles->k / 32};
    multiply_fp4(&s, tiles, n);
    for (int i = 0; i < n; i++) bad[i] = far_rows_fp4(&tiles[i]);
}

static uint32_t far_rows_fp8(const by_mm_tile *t) {
    if (scales_safe(t->scale, t->k / 32)) return 0;
    uint32_t far = 0;
    for (int64_t g = 0; g < t->k / 32; g++)
        for (int64_t r = 0; r < t->n_rows && !scales_safe(t->scale + g, 1); r++)
            if (!all_zero(t->w + r * t->stride + g * 32, 32, 0x7f)) far |= UINT32_C(1) << r;
    return far;
}

static uint32_t nan_rows_fp8(const by_mm_tile *t) {
    uint32_t rows = 0;
    for (int64_t r = 0; r < t->n_rows; r++)
        for (int64_t k = 0; k < t->k; k++)
            if ((t->w[r * t->stride + k] & 0x7f) == 0x7f) rows |= UINT32_C(1) << r;
    return rows;
}

static void many_fp8(const by_mm_tile *tiles, int n, uint32_t *bad) {
    const __m512i fifty = _mm512_set1_epi8(25);
    __m512i nan_seen[BY_MM_JOBS];
    fp8_tables tab = fp8_load_tables();
    tab.hi0 = _mm512_mask_sub_epi8(tab.hi0, ~(__mmask64)1, tab.hi0, fifty);
    tab.hi1 = _mm512_mask_sub_epi8(tab.hi1, ~(__mmask64)0 >> 1, tab.hi1, fifty); /* not the NaN: it is looked for */
    state s = {.t = tiles, .w = (work *)(void *)tiles->scratch, .type = BY_MM_FP8, .columns = (tiles->k + 63) / 64 * 2, .tab = &tab};
    multiply_all(&s, tiles, n, nan_seen);
    for (int i = 0; i < n; i++) {
        bool nan = _mm512_cmpeq_epi8_mask(nan_seen[i], _mm512_set1_epi8(0x7f)) != 0;
        bad[i] = far_rows_fp8(&tiles[i]) | (nan ? nan_rows_fp8(&tiles[i]) : 0);
    }
}

static void one_bf16(const by_mm_tile *t) {
    work *w = (work *)(void *)t->scratch;
    for (int64_t m = 0; m < t->m; m += 32) {
        if (t->n_rows > 16) {
            if (t->m - m > 16) multiply_plain(t, w, true, true, m);
            else multiply_plain(t, w, false, true, m);
        } else {
            if (t->m - m > 16) multiply_plain(t, w, true, false, m);
            else multiply_plain(t, w, false, false, m);
        }
    }
    write_results(t, w);
}
static void many_bf16(const by_mm_tile *tiles, int n, uint32_t *bad) {
    for (int i = 0; i < n; i++) {
        one_bf16(&tiles[i]);
        bad[i] = 0;
    }
}

static void many_f32(const by_mm_tile *tiles, int n, uint32_t *bad) {
    for (int i = 0; i < n; i++) {
        one_f32(&tiles[i]);
        bad[i] = 0;
    }
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Group g of n rows, 32 columns of each in a row of the square: pair j of every row goes to its pair of a tile column, rows side by
 * side. In FP8's layout two groups share two tile columns. */
MM_INLINE void place_group(uint8_t *to, int32_t n, const uint32_t (*square)[16], int64_t g, bool fp8) {
    if (n == 1) { /* a row alone stays as it is */
        memcpy(to + (fp8 ? g / 2 * 128 + g % 2 * 32 : g * 64), square[0], fp8 ? 32 : 64);
        if (fp8) memcpy(to + g / 2 * 128 + g % 2 * 32 + 64, square[0] + 8, 32);
        return;
    }
    const __mmask16 rows = (__mmask16)((1u << n) - 1);
    __m512i r[16];
    MM_UNROLL for (int j = 0; j < 16; j++) r[j] = j < n ? _mm512_load_si512(square[j]) : _mm512_setzero_si512();
    turn(r);
    MM_UNROLL for (int j = 0; j < 16; j++) {
        int64_t pair = fp8 ? (g / 2 * 2 + j / 8) * 16 + g % 2 * 8 + j % 8 : g * 16 + j;
        _mm512_mask_storeu_epi32(to + pair * 4 * n, rows, r[j]);
    }
}

MM_INLINE uint32_t pack_group(uint8_t *to, int32_t n, const by_mm_src *src, int64_t k, int64_t g, bool fp8) {
    const fp8_tables tab = fp8_load_tables();
    _Alignas(64) uint32_t square[BY_MM_BLOCK][16];
    uint32_t unsafe = 0;
    for (int32_t m = 0; m < n; m++) {
        __m512i v = _mm512_setzero_si512();
        if (g < k / BY_MM_GROUP && !a8_group(&v, &tab, &src[m], g)) unsafe |= UINT32_C(1) << m;
        _mm512_store_si512(square[m], fp8 ? fp8_order(v) : fp4_order(v));
    }
    place_group(to, n, (const uint32_t(*)[16])square, g, fp8);
    return unsafe;
}

static uint32_t pack_fp4(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    uint32_t unsafe = 0;
    for (int64_t g = g0; g < g1; g++) unsafe |= pack_group(to, n_block, src, k, g, false);
    return unsafe;
}

static uint32_t pack_fp8(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    int64_t groups = k / BY_MM_GROUP, end = g1 == groups ? (g1 + 1) / 2 * 2 : g1; /* with padding */
    uint32_t unsafe = 0;
    for (int64_t g = g0; g < end; g++) unsafe |= pack_group(to, n_block, src, k, g, true);
    return unsafe;
}

/* bf16 rows as they are. */
static uint32_t pack_bf16(uint8_t *to, int32_t n_block, const by_mm_src *src, int64_t k, int64_t g0, int64_t g1) {
    _Alignas(64) uint32_t square[BY_MM_BLOCK][16];
    for (int64_t g = g0; g < g1; g++) {
        const int64_t left = k - g * BY_MM_GROUP;
        const __mmask32 columns = left >= 32 ? 0xffffffff : (__mmask32)((UINT32_C(1) << left) - 1);
        for (int32_t m = 0; m < n_block; m++)
            _mm512_store_si512(square[m], _mm512_maskz_loadu_epi16(columns, src[m].data + g * 64));
        place_group(to, n_block, (const uint32_t(*)[16])square, g, false);
    }
    return 0;
}

/* ---- the limit ---------------------------------------------------------------------------------------------------- */

/* Four results from two times two operands, as in multiply_pair, nothing loaded. */
static double peak(int64_t n) {
    load_config(16, 16, 16, 16);
    _tile_zero(0); /* the instructions name tiles by constants */
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t r = 0; r < n; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return (double)n * 4 * 16 * 16 * 32 * 2;
}

#define AMX_WAY(c, p, columns)                                                                                         \
    {.many = c, .pack = p, .mt = BY_MM_MT, .block = BY_MM_BLOCK, .elem_bytes = 2, .pad = columns, .bf16 = true,         \
     .scratch_bytes = sizeof(work)}
const by_mm_kernels by_mm_amx = {
    .isa = BY_ISA_AMX,
    .base = &by_mm_avx512,
    .a8 = {AMX_WAY(many_fp4, pack_fp4, 32), AMX_WAY(many_fp8, pack_fp8, 64)},
    .bf16 = AMX_WAY(many_bf16, pack_bf16, 32),
    .f32 = AMX_WAY(many_f32, pack_bf16, 32),
    .enter = enter,
    .leave = leave,
    .peak = peak,
};
