/* Numbers as text and back, beside what the C library says. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"

static void check(uint64_t value, uint64_t max) {
    char expected[32];
    uint8_t text[32];
    int bytes = snprintf(expected, sizeof expected, "%" PRIu64, value);
    assert(decimal_put(text, value) == text + bytes && memcmp(text, expected, (size_t)bytes) == 0);
    text[bytes] = ' ';
    const uint8_t *at = text;
    uint64_t got = 7;
    bool read = decimal_get(&at, text + bytes + 1, max, &got);
    assert(read == (value <= max) && at == (read ? text + bytes : text) && got == (read ? value : 7));
    at = text, got = 7;
    assert(decimal_get_ended(&at, max, &got) == read && at == (read ? text + bytes : text) &&
           got == (read ? value : 7));
    at = text;
    assert(bytes == 1 || (decimal_get(&at, text + bytes - 1, UINT64_MAX, &got) && got == value / 10));
}

static void check_text(const char *text) {
    const uint8_t *begin = (const uint8_t *)text, *at = begin;
    char *end;
    errno = 0;
    uint64_t expected = strtoull(text, &end, 10), got;
    bool read = decimal_get(&at, begin + strlen(text), UINT64_MAX, &got);
    assert(read == (errno == 0 && end != text));
    assert(!read || (got == expected && (const char *)at == end));
    at = begin;
    assert(decimal_get_ended(&at, UINT64_MAX, &got) == read);
    assert(!read || (got == expected && (const char *)at == end));
}

int main(void) {
    uint64_t state = 1, power = 1;
    for (int i = 0; i < 20; i++, power *= 10)
        for (uint64_t d = 0; d < 3; d++) check(power - 1 + d, UINT64_MAX), check(power - 1 + d, power - 1);
    for (int i = 0; i < 64; i++) check(UINT64_C(1) << i, UINT64_MAX), check((UINT64_C(1) << i) - 1, UINT64_MAX);
    check(UINT64_MAX, UINT64_MAX), check(UINT64_MAX, UINT64_MAX - 1), check(0, 0);
    for (int i = 0; i < 200000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t max = state >> (state >> 7) % 64;
        state = state * 6364136223846793005u + 1442695040888963407u;
        check(state >> (state >> 3) % 64, i % 2 ? max : UINT64_MAX);
    }
    static const char *const texts[] = {"18446744073709551615",
                                        "18446744073709551616",
                                        "18446744073709551620",
                                        "99999999999999999999",
                                        "184467440737095516150",
                                        "00000000000000000000000007",
                                        "000018446744073709551616",
                                        "",
                                        "x",
                                        "1x",
                                        "12345678901234567890 "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_text(texts[i]);
    puts("ok");
    return 0;
}
