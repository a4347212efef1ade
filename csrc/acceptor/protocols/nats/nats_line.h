/* Parses lines of clients and routes: the first word, and the arguments. As in nats-server, an unknown word is found
 * byte by byte, before its line is complete. */
#ifndef MQ_NATS_LINE_H
#define MQ_NATS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decimal.h"
#include "base/text.h"

/* Results below the numbers that a table gives its words. */
enum { NATS_WORD_PARTIAL, NATS_WORD_WRONG, NATS_FIRST_WORD };

struct nats_word {
    uint32_t verb;
    const char *name;
    size_t bytes;
    bool has_arguments; /* a blank must follow the word */
};

static inline bool nats_is_blank(uint8_t byte) {
    return byte == ' ' || byte == '\t';
}

/* Whether a byte is that capital letter, the small one, or that sign. */
static inline bool nats_is_letter(uint8_t byte, char wanted) {
    return byte == (uint8_t)wanted || (wanted >= 'A' && byte == ((uint8_t)wanted | 32));
}

/* What the input begins with, and how long the word is. */
static inline uint32_t nats_word_of(const struct nats_word *words, size_t count, const uint8_t *data, size_t bytes,
                                    size_t *word_bytes) {
    for (size_t w = 0; w < count; w++) {
        const struct nats_word *word = &words[w];
        size_t n = bytes < word->bytes ? bytes : word->bytes, i = 0;
        while (i < n && nats_is_letter(data[i], word->name[i])) i++;
        if (i < n) continue;
        if (bytes < word->bytes + (word->has_arguments ? 1u : 0u)) return NATS_WORD_PARTIAL;
        if (word->has_arguments && !nats_is_blank(data[word->bytes])) continue;
        *word_bytes = word->bytes;
        return word->verb;
    }
    return NATS_WORD_WRONG;
}

/* Except in publishes, a CR separates arguments like a blank. */
static inline bool nats_is_between(uint8_t byte, bool published) {
    return nats_is_blank(byte) || (byte == '\r' && !published);
}

/* Splits a line into arguments. Returns how many there are; only the first `limit` are stored. */
static inline size_t nats_split(const uint8_t *at, const uint8_t *end, struct text *items, size_t limit,
                                bool published) {
    size_t count = 0;
    while (at < end) {
        while (at < end && nats_is_between(*at, published)) at++;
        const uint8_t *begin = at;
        while (at < end && !nats_is_between(*at, published)) at++;
        if (at == begin) break;
        if (count < limit) items[count] = (struct text){begin, (size_t)(at - begin)};
        count++;
    }
    return count;
}

/* Reads a size as nats-server does: at most nine digits. */
static inline bool nats_get_size(struct text text, uint64_t *value) {
    const uint8_t *at = text.at;
    return text.bytes <= 9 && decimal_get(&at, text.at + text.bytes, UINT32_MAX, value) && at == text.at + text.bytes;
}

#endif
