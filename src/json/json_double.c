/* json_double.c - shortest decimal digits of a double.
 *
 * A decimal of at most 15 digits survives the way through a normal double, so the correctly rounded 15 digits, if they
 * read back, are the shortest ones with zeros behind. Otherwise 16 or 17 digits are needed. Two cases lie outside that
 * rule: subnormals hold fewer digits, so every length is tried, and below a power of two the spacing halves, so that
 * the nearest 16 digits may lie just outside on the lower side while the next ones above still read back.
 *
 * A locale may have put another sign, of several bytes, in the place of the point: only digits are looked at, and strtod
 * reads what snprintf wrote. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_write.h"

/* Writes v with n significant digits as "d.ddde[+-]xx" into text and returns whether it reads back. */
static bool try_digits(double v, int n, char text[48]) {
    snprintf(text, 48, "%.*e", n - 1, v);
    return strtod(text, NULL) == v;
}

/* Adds one unit to the last digit of "d.ddd" in place; false when that carries out of the first digit. */
static bool add_one_unit(char *text) {
    char *p = text + strcspn(text, "e");
    while (p-- > text) {
        if (*p < '0' || *p > '9') continue;
        if (*p != '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

static bool is_power_of_two(double v) {
    int e;
    return frexp(v, &e) == 0.5;
}

/* v > 0. Small whole numbers need no search. */
static int whole_digits(uint64_t v, char digits[17], int *exponent) {
    int n = 0, zeros = 0;
    for (; v % 10 == 0; v /= 10) zeros++;
    for (uint64_t rest = v; rest; rest /= 10) n++;
    for (int i = n; i-- > 0; v /= 10) digits[i] = (char)('0' + v % 10);
    *exponent = n + zeros;
    return n;
}

int by_json_double_digits(double v, char digits[17], int *exponent) {
    if (v < 1e15 && v == floor(v)) return whole_digits((uint64_t)v, digits, exponent);
    char text[48];
    int n = v < DBL_MIN ? 1 : 15;
    for (; n < 17; n++) {
        if (try_digits(v, n, text)) break;
        if (is_power_of_two(v) && add_one_unit(text) && strtod(text, NULL) == v) break;
    }
    if (n == 17) try_digits(v, 17, text);
    char *mark = strchr(text, 'e');
    *exponent = (int)strtol(mark + 1, NULL, 10) + 1;
    int count = 0;
    for (const char *p = text; p < mark; p++)
        if (*p >= '0' && *p <= '9') digits[count++] = *p;
    while (count > 1 && digits[count - 1] == '0') count--;
    return count;
}
