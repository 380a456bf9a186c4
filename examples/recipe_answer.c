/* recipe_answer.c - the recipe library in one page: a request becomes a prompt, and what a model might say to it, in pieces as a
 * network would bring it, becomes the events that a client of the API sees. No engine is needed.
 *
 *   recipe_answer REQUEST.json [TOKENIZER.json]      with a tokenizer the prompt's token ids are shown too */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bathyc/recipe.h"

#define DSML "｜DSML｜"

/* What a model says that wants to know the weather. */
static const char answer[] = "The user asks about Oslo.\n</think>\n\nLet me look.\n\n<" DSML " calls>\n<" DSML
                             " invoke name=\"weather\">\n<" DSML " parameter name=\"city\" string=\"true\">Oslo</" DSML
                             " parameter>\n<" DSML " parameter name=\"days\" string=\"false\">2</" DSML " parameter>\n</" DSML
                             " invoke>\n</" DSML " calls>";

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    long size = 0;
    char *text = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) text = malloc((size_t)size + 1);
    if (text && fread(text, 1, (size_t)size, f) != (size_t)size) {
        free(text);
        text = NULL;
    }
    if (f) fclose(f);
    if (!text) fprintf(stderr, "%s: cannot be read\n", path);
    *bytes = (size_t)size;
    return text;
}

static int show_prompt(bathyc_recipe_request *r, bathyc_error *error) {
    bathyc_recipe_prompt prompt;
    int code = bathyc_recipe_render(r, 0, &prompt, error);
    if (code != BATHYC_OK) return code;
    printf("prompt of %zu bytes, %zu special tokens:\n%.*s\n", prompt.text.bytes, prompt.n_specials, (int)prompt.text.bytes,
           prompt.text.ptr);
    return BATHYC_OK;
}

static int show_ids(bathyc_recipe_request *r, const char *path, bathyc_error *error) {
    bathyc_recipe_tok *tok = NULL;
    const int32_t *ids;
    size_t n = 0;
    int code = bathyc_recipe_tok_open(&tok, path, error);
    if (code == BATHYC_OK) code = bathyc_recipe_encode(r, 0, tok, NULL, &ids, &n, error);
    if (code == BATHYC_OK) printf("%zu token ids:", n);
    for (size_t i = 0; i < n; i++) printf(" %d", ids[i]);
    if (code == BATHYC_OK) printf("\n");
    bathyc_recipe_tok_close(tok);
    return code;
}

static void show_event(void *ctx, const char *name, const char *json, size_t json_bytes) {
    (void)ctx, (void)json_bytes;
    if (name) printf("event: %s\n", name);
    printf("data: %s\n\n", json);
}

/* Feeds the answer seven bytes at a time: not even characters are whole. */
static int show_answer(const bathyc_recipe_request *r, bathyc_api api, bathyc_error *error) {
    bathyc_recipe_stream_options options = bathyc_recipe_stream_options_default();
    bathyc_recipe_stream *s = NULL;
    options.on_event = show_event;
    int code = bathyc_recipe_stream_create(&s, r, &options, error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_ready(s, 0, 0, error);
    for (size_t at = 0; code == BATHYC_OK && at < strlen(answer); at += 7)
        code = bathyc_recipe_stream_text(s, answer + at, strlen(answer) - at < 7 ? strlen(answer) - at : 7, 1, error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_finish(s, BATHYC_REASON_STOP, error);
    if (code == BATHYC_OK && bathyc_recipe_done_data(api)) printf("data: %s\n\n", bathyc_recipe_done_data(api));
    char *json = NULL;
    size_t json_bytes;
    if (code == BATHYC_OK) code = bathyc_recipe_stream_whole(s, &json, &json_bytes, error);
    if (code == BATHYC_OK) printf("whole: %s\n", json);
    bathyc_recipe_free(json);
    bathyc_recipe_stream_destroy(s);
    return code;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) return fprintf(stderr, "usage: recipe_answer REQUEST.json [TOKENIZER.json]\n"), 2;
    size_t bytes;
    char *body = read_file(argv[1], &bytes);
    if (!body) return 1;
    bathyc_recipe_options options = bathyc_recipe_options_default();
    bathyc_recipe_request *r = NULL;
    bathyc_refusal refusal;
    bathyc_error error;
    int code = bathyc_recipe_request_create(&r, BATHYC_API_CHAT, body, bytes, &options, &refusal, &error);
    if (refusal.json) printf("%s\n", refusal.json); /* what a server answers, with refusal.http_status */
    bathyc_recipe_free(refusal.json);
    free(body);
    if (code == BATHYC_OK) code = show_prompt(r, &error);
    if (code == BATHYC_OK && argc == 3) code = show_ids(r, argv[2], &error);
    if (code == BATHYC_OK) code = show_answer(r, BATHYC_API_CHAT, &error);
    if (code != BATHYC_OK) fprintf(stderr, "%s\n", error.message);
    bathyc_recipe_request_destroy(r);
    return code == BATHYC_OK ? 0 : 1;
}
