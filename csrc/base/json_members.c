#include "base/json_members.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

enum { KEY_MAX_BYTES = 64 };

struct reader {
    const uint8_t *at, *end;
    uint8_t *out;
    const uint8_t *names;
    size_t depth;
    bool is_first; /* no member was written */
    /* For each level that is open, whether it is an object. */
    uint8_t objects[JSON_MAX_DEPTH / 8 + 1];
};

static void skip_space(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool take(struct reader *r, uint8_t byte) {
    if (r->at == r->end || *r->at != byte) return false;
    r->at++;
    return true;
}

/* The value of a hexadecimal digit; 16: it is none. */
static uint32_t nibble(uint8_t digit) {
    if (digit >= '0' && digit <= '9') return digit - (uint32_t)'0';
    uint32_t lower = digit | 0x20u;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

static bool are_hex(const uint8_t at[4]) {
    for (size_t i = 0; i < 4; i++)
        if (nibble(at[i]) > 15) return false;
    return true;
}

/* From behind the first quote until behind the last. */
static bool skip_string(struct reader *r) {
    while (r->at < r->end) {
        uint8_t byte = *r->at++;
        if (byte == '"') return true;
        if (byte < ' ') return false;
        if (byte != '\\') continue;
        if (r->at == r->end) return false;
        byte = *r->at++;
        if (byte == 'u') {
            if (r->end - r->at < 4 || !are_hex(r->at)) return false;
            r->at += 4;
        } else if (byte == 0 || strchr("\"\\/bfnrt", byte) == NULL) {
            return false;
        }
    }
    return false;
}

static bool skip_digits(struct reader *r) {
    const uint8_t *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > begin;
}

static bool skip_number(struct reader *r) {
    (void)take(r, '-');
    if (!take(r, '0') && !skip_digits(r)) return false;
    if (take(r, '.') && !skip_digits(r)) return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) (void)take(r, '-');
        return skip_digits(r);
    }
    return true;
}

static bool skip_word(struct reader *r, const char *word) {
    size_t bytes = strlen(word);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0) return false;
    r->at += bytes;
    return true;
}

/* A value that is neither an array nor an object. */
static bool skip_scalar(struct reader *r) {
    if (r->at == r->end) return false;
    switch (*r->at) {
    case '"': r->at++; return skip_string(r);
    case 't': return skip_word(r, "true");
    case 'f': return skip_word(r, "false");
    case 'n': return skip_word(r, "null");
    default: return skip_number(r);
    }
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

static uint32_t folded(uint32_t character) {
    if (character >= 'A' && character <= 'Z') return character | 0x20;
    if (character == 0x212a) return 'k'; /* the sign of the kelvin */
    return character == 0x17f ? 's' : character;
}

/* Decodes a character of a key, whose escapes are valid. */
static uint32_t next_character(const uint8_t **at, const uint8_t *end) {
    const uint8_t *p = *at;
    uint32_t character = *p;
    size_t used = 1;
    if (*p == '\\' && p[1] == 'u') {
        character = 0;
        for (size_t i = 2; i < 6; i++) character = character << 4 | nibble(p[i]);
        used = 6;
    } else if (*p == '\\') {
        character = 0; /* no name has one of these */
        used = 2;
    } else if (*p >= 0x80 && !utf8_decode(p, (size_t)(end - p), &character, &used)) {
        character = 0;
        used = 1;
    }
    *at = p + used;
    return character;
}

static bool is_known(const uint8_t *names, const uint8_t *key, const uint8_t *end) {
    uint8_t plain[KEY_MAX_BYTES];
    size_t bytes = 0;
    while (key < end) {
        uint32_t character = folded(next_character(&key, end));
        if (character < ' ' || character >= 0x80 || bytes == KEY_MAX_BYTES) return false;
        plain[bytes++] = (uint8_t)character;
    }
    for (const uint8_t *name = names; *name != 0; name += 1 + *name)
        if (*name == bytes && memcmp(name + 1, plain, bytes) == 0) return true;
    return false;
}

/* --- levels ------------------------------------------------------------------------------------------------------- */

static void emit(struct reader *r, const void *text, size_t bytes) {
    memcpy(r->out, text, bytes);
    r->out += bytes;
}

static bool is_in_object(const struct reader *r) {
    return r->depth > 0 && r->objects[r->depth / 8] >> r->depth % 8 & 1;
}

static bool opens(struct reader *r, bool *is_object) {
    *is_object = take(r, '{');
    return *is_object || take(r, '[');
}

static bool go_down(struct reader *r, bool is_object) {
    if (r->depth == JSON_MAX_DEPTH) return false;
    r->depth++;
    uint8_t bit = (uint8_t)(1u << r->depth % 8);
    uint8_t *byte = &r->objects[r->depth / 8];
    *byte = (uint8_t)(is_object ? *byte | bit : *byte & ~bit);
    return true;
}

/* A key and its colon; *is_kept if it is a known one of the outermost object, and so its value is written too. */
static bool next_key(struct reader *r, bool *is_kept) {
    skip_space(r);
    const uint8_t *begin = r->at;
    if (!take(r, '"') || !skip_string(r)) return false;
    const uint8_t *end = r->at;
    skip_space(r);
    if (!take(r, ':')) return false;
    if (r->depth != 1 || !is_known(r->names, begin + 1, end - 1)) return true;
    *is_kept = true;
    if (!r->is_first) emit(r, ",", 1);
    r->is_first = false;
    emit(r, begin, (size_t)(end - begin));
    emit(r, ":", 1);
    return true;
}

/* Closes as many levels as end here, until another value follows or all have ended. */
static bool close_levels(struct reader *r) {
    while (r->depth > 0) {
        skip_space(r);
        if (take(r, ',')) return true;
        if (!take(r, is_in_object(r) ? '}' : ']')) return false;
        r->depth--;
    }
    return true;
}

/* One value, at whatever depth, or the beginning of one. */
static bool next_value(struct reader *r) {
    bool is_kept = false, is_object;
    if (is_in_object(r) && !next_key(r, &is_kept)) return false;
    skip_space(r);
    const uint8_t *value = r->at;
    if (opens(r, &is_object)) {
        if (is_kept) emit(r, is_object ? "{}" : "[]", 2);
        if (!go_down(r, is_object)) return false;
        skip_space(r);
        bool is_empty = r->at < r->end && *r->at == (is_object ? '}' : ']');
        return !is_empty || close_levels(r);
    }
    if (!skip_scalar(r)) return false;
    if (is_kept) emit(r, value, (size_t)(r->at - value));
    return close_levels(r);
}

size_t json_members(const void *text, size_t bytes, const uint8_t *names, void *out) {
    struct reader r = {.at = text, .end = (const uint8_t *)text + bytes, .out = out, .names = names, .is_first = true};
    skip_space(&r);
    const uint8_t *begin = r.at;
    bool is_object = r.at < r.end && *r.at == '{', is_array = r.at < r.end && *r.at == '[';
    if (is_object || is_array) emit(&r, is_object ? "{" : "[", 1);
    do {
        if (!next_value(&r)) return 0;
    } while (r.depth > 0);
    if (is_object || is_array)
        emit(&r, is_object ? "}" : "]", 1);
    else
        emit(&r, begin, (size_t)(r.at - begin));
    skip_space(&r);
    return r.at == r.end ? (size_t)(r.out - (uint8_t *)out) : 0;
}
