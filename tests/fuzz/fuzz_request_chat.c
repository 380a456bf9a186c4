/* Fuzz entry of request bodies, see support/fuzz_request.h: chat. */
#include "support/fuzz_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_request(BY_API_CHAT, data, size); }
