/* grammar_format.c - the string formats that are asserted, as regular languages over the decoded text. */
#include <stdio.h>

#include "grammar/grammar_host.h"
#include "grammar/grammar_internal.h"

#define YEAR "[0-9]{4}"
#define DATE                                                                                                           \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"               \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-"   \
    "29)"
#define HOUR     "(?:[01][0-9]|2[0-3])"
#define TIME     HOUR ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]" HOUR ":[0-5][0-9])"
#define DUR_T    "T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)"
#define DURATION "P(?:[0-9]+W|(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:" DUR_T ")?|" DUR_T ")"
#define OCTET    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4     OCTET "(?:\\." OCTET "){3}"
#define H16      "[0-9a-fA-F]{1,4}"
#define LS32     "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                           \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16            \
    ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16      \
    ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16   \
    "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
#define UUID       "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
#define ATEXT      "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
#define QUOTED     "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""
#define ADDRESS    "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
#define MAIL_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
#define EMAIL      "(?:[" ATEXT "]+(?:\\.[" ATEXT "]+)*|" QUOTED ")@(?:" MAIL_LABEL "(?:\\." MAIL_LABEL ")*|" ADDRESS ")"
#define ILABEL     "[A-Za-z0-9\\u0080-\\U0010ffff](?:[A-Za-z0-9\\u0080-\\U0010ffff-]*[A-Za-z0-9\\u0080-\\U0010ffff])?"
#define IDN_EMAIL                                                                                                      \
    "(?:[\\u0080-\\U0010ffff" ATEXT "]+(?:\\.[\\u0080-\\U0010ffff" ATEXT "]+)*|" QUOTED ")@(?:" ILABEL "(?:\\." ILABEL \
    ")*|" ADDRESS ")"
/* RFC 3986; X adds characters: nothing for URIs, all beyond ASCII for IRIs. */
#define PCT             "%[0-9a-fA-F]{2}"
#define CHARS(extra, X) "(?:[A-Za-z0-9._~!$&'()*+,;=" extra X "-]|" PCT ")"
#define PCHAR(X)        CHARS(":@", X)
#define AUTH(X)                                                                                                        \
    "(?:" CHARS(":", X) "*@)?(?:\\[(?:" IPV6                                                                           \
                        "|[vV][0-9a-fA-F]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" CHARS("", X) "*)(?::[0-9]*)?"
#define TAIL(X)     "(?:\\?(?:" PCHAR(X) "|[/?])*)?(?:#(?:" PCHAR(X) "|[/?])*)?"
#define ABS(X)      "//" AUTH(X) "(?:/" PCHAR(X) "*)*|/(?:" PCHAR(X) "+(?:/" PCHAR(X) "*)*)?|"
#define URI(X)      "[A-Za-z][A-Za-z0-9+.-]*:(?:" ABS(X) PCHAR(X) "+(?:/" PCHAR(X) "*)*|)" TAIL(X)
#define RELATIVE(X) "(?:" ABS(X) CHARS("@", X) "+(?:/" PCHAR(X) "*)*|)" TAIL(X)
#define BEYOND      "\\u00a0-\\U0010ffff"
#define TEMPLATE                                                                                                       \
    "(?:[!#$&(-;=?-Z_a-z~\\[\\]" BEYOND "]|" PCT "|\\{[+#./;?&=,!@|]?(?:[A-Za-z0-9_]|" PCT ")(?:[A-Za-z0-9_.]|" PCT    \
    ")*(?::[1-9][0-9]{0,3}|\\*)?(?:,(?:[A-Za-z0-9_]|" PCT ")(?:[A-Za-z0-9_.]|" PCT                                     \
    ")*(?::[1-9][0-9]{0,3}|\\*)?)*\\})*"
#define POINTER "(?:/(?:[^/~]|~[01])*)*"
#define B64     "[A-Za-z0-9+/]"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"duration", DURATION},
    {"email", EMAIL},
    {"idn-email", IDN_EMAIL},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", UUID},
    {"uri", URI("")},
    {"uri-reference", URI("") "|" RELATIVE("")},
    {"iri", URI(BEYOND)},
    {"uri-template", TEMPLATE},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
    {"byte", "(?:" B64 "{4})*(?:" B64 "{2}==|" B64 "{3}=)?"},
    {"base64", "(?:" B64 "{4})*(?:" B64 "{2}==|" B64 "{3}=)?"},
};

static by_gr_term rx(by_gr *g, const char *z) {
    by_gr_regex_opts o = {.dotall = true, .ecma_space = true};
    return by_gr_regex(g, by_str_z(z), &o);
}

/* ---- regular expressions as in ECMA-262 with the u flag; a lone ] or } may stand for itself, as most engines have it. Whether
 * ranges and counts are in order, and a back-reference has its group, is not looked at: back-references are not offered. */

#define ESCAPE                                                                                                         \
    "\\\\(?:[dDsSwWtnvfr0]|c[A-Za-z]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\\{0*(?:[0-9a-fA-F]|10[0-9a-fA-F]{4}|[0-9a-fA-F]" \
    "{2,5})\\}|[pP]\\{[A-Za-z_]+(?:=[A-Za-z0-9_]+)?\\}|[$^\\\\.*+?()\\[\\]{}|/])"
#define GROUP_NAME "<[A-Za-z_$][A-Za-z0-9_$]*>"
#define SET        "\\[\\^?(?:[^\\]\\\\]|" ESCAPE "|\\\\[b-])*\\]"

/* Groups inside groups are counted up to a depth, so that the language is a regular one, which can be negated and met with others. */
static by_gr_term regex_syntax(by_gr *g) {
    enum { GROUPS_MAX = 4 };
    by_gr_term assertion = rx(g, "[$^]|\\\\[bB]"), count = rx(g, "(?:(?:[*+?]|\\{[0-9]+(?:,[0-9]*)?\\})[?]?)?");
    by_gr_term atom = rx(g, "[^$^\\\\.*+?()\\[{|]|\\.|\\\\k" GROUP_NAME "|" ESCAPE "|" SET), root = BY_GR_NEVER;
    by_gr_term look = rx(g, "\\(\\?<?[=!]"), group = rx(g, "\\((?:\\?:|\\?" GROUP_NAME ")?"), close = by_gr_lit(g, BY_STR(")"));
    for (int depth = 0; depth <= GROUPS_MAX; depth++) {
        by_gr_term inner = by_gr_seq(g, root, close);
        by_gr_term counted = by_gr_seq(g, by_gr_alt2(g, atom, by_gr_seq(g, group, inner)), count);
        by_gr_term branch = by_gr_star(g, by_gr_alt2(g, by_gr_alt2(g, assertion, by_gr_seq(g, look, inner)), counted));
        root = by_gr_seq(g, branch, by_gr_star(g, by_gr_seq(g, by_gr_lit(g, BY_STR("|")), branch)));
    }
    return root;
}

/* ---- leap seconds: hh:mm:60 and an offset that makes it 23:59:60 UTC. LEAP terms: a = characters read, b = minutes.
 */

by_gr_term by_gr_leap(by_gr *g) {
    return by_gr_node_make(g, BY_GR_K_LEAP, 0, 0, 0, 0, 0);
}

static by_gr_term offset(by_gr *g, uint32_t minutes) {
    char text[8];
    by_gr_term v[4] = {0};
    uint32_t east = (minutes + 1) % 1440, west = 1439 - minutes;
    snprintf(text, sizeof text, "+%02u:%02u", east / 60 % 24, east % 60);
    v[0] = by_gr_lit(g, by_str_of(text, 6));
    snprintf(text, sizeof text, "-%02u:%02u", west / 60 % 24, west % 60);
    v[1] = by_gr_lit(g, by_str_of(text, 6));
    if (minutes == 1439) v[2] = by_gr_lit(g, BY_STR("Z")), v[3] = by_gr_lit(g, BY_STR("z"));
    return by_gr_seq(g, rx(g, "(?:\\.[0-9]+)?"), by_gr_alt(g, v, 4));
}

const by_gr_row *by_gr_row_leap(by_gr *g, by_gr_node n) {
    static const struct {
        char lo, hi;
    } want[] = {{'0', '2'}, {'0', '9'}, {':', ':'}, {'0', '5'}, {'0', '9'}, {':', ':'}, {'6', '6'}, {'0', '0'}};
    static const uint32_t worth[] = {600, 60, 0, 10, 1, 0, 0, 0};
    by_gr_range out[10];
    unsigned k = 0;
    for (char c = want[n.a].lo; c <= want[n.a].hi; c++) {
        uint32_t minutes = n.b + (uint32_t)(c - '0') * worth[n.a];
        if (worth[n.a] == 0) minutes = n.b;
        if (n.a < 2 && minutes >= 1440) break;
        by_gr_term to = n.a == 7 ? offset(g, minutes) : by_gr_node_make(g, BY_GR_K_LEAP, 0, n.a + 1, minutes, 0, 0);
        out[k++] = (by_gr_range){(uint8_t)c, (uint8_t)c, to};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

by_gr_term by_gr_format(by_gr *g, by_str name, bool *known) {
    *known = true;
    for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (by_str_eqz(name, formats[i].name)) return rx(g, formats[i].regex);
    if (by_str_eqz(name, "hostname")) return by_gr_host(g);
    if (by_str_eqz(name, "regex")) return regex_syntax(g);
    bool date = by_str_eqz(name, "date-time");
    if (date || by_str_eqz(name, "time")) {
        by_gr_term t = by_gr_alt2(g, rx(g, TIME), by_gr_leap(g));
        return date ? by_gr_seq(g, rx(g, DATE "[Tt]"), t) : t;
    }
    *known = false;
    return BY_GR_NEVER;
}
