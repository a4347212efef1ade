/* What can be said of subjects and patterns from their text alone. */
#include "base/subject_text.h"

#include "base/subject.h"

bool subject_pattern_is_valid(const void *pattern, size_t bytes) {
    const char *text = pattern;
    if (bytes == 0 || bytes > SUBJECT_MAX_BYTES) return false;
    for (size_t at = 0;;) {
        size_t end = token_end(text, at, bytes);
        if (end == at) return false;
        if (end == bytes) return true;
        if (is_all(text + at, end - at)) return false;
        at = end + 1;
        if (at == bytes) return false;
    }
}

bool subject_has_wildcard(const void *pattern, size_t bytes) {
    const char *text = pattern;
    if (memchr(text, '*', bytes) == NULL && (bytes == 0 || text[bytes - 1] != '>')) return false;
    for (size_t at = 0; at < bytes;) {
        size_t end = token_end(text, at, bytes);
        if (is_any(text + at, end - at) || (is_all(text + at, end - at) && end == bytes)) return true;
        at = end + 1;
    }
    return false;
}

bool subject_covers(const void *outer, size_t outer_bytes, const void *inner, size_t inner_bytes) {
    const char *o = outer, *i = inner;
    size_t at_o = 0, at_i = 0;
    while (at_o < outer_bytes && at_i < inner_bytes) {
        size_t end_o = token_end(o, at_o, outer_bytes), end_i = token_end(i, at_i, inner_bytes);
        if (is_all(o + at_o, end_o - at_o)) return true;
        if (is_all(i + at_i, end_i - at_i)) return false;
        bool equal = end_o - at_o == end_i - at_i && memcmp(o + at_o, i + at_i, end_o - at_o) == 0;
        if (!equal && !is_any(o + at_o, end_o - at_o)) return false;
        at_o = end_o + 1;
        at_i = end_i + 1;
    }
    return at_o >= outer_bytes && at_i >= inner_bytes;
}

bool subject_overlaps(const void *one, size_t one_bytes, const void *other, size_t other_bytes) {
    const char *a = one, *b = other;
    size_t at_a = 0, at_b = 0;
    while (at_a < one_bytes && at_b < other_bytes) {
        size_t end_a = token_end(a, at_a, one_bytes), end_b = token_end(b, at_b, other_bytes);
        if (is_all(a + at_a, end_a - at_a) || is_all(b + at_b, end_b - at_b)) return true;
        bool equal = end_a - at_a == end_b - at_b && memcmp(a + at_a, b + at_b, end_a - at_a) == 0;
        if (!equal && !is_any(a + at_a, end_a - at_a) && !is_any(b + at_b, end_b - at_b)) return false;
        at_a = end_a + 1;
        at_b = end_b + 1;
    }
    return at_a >= one_bytes && at_b >= other_bytes;
}
