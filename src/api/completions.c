#include "api/convert.h"
by_status by_convert_completions(by_convert *cv, by_json *body) { (void)body; return BY_REFUSE(cv, BY_STR("todo")); }
