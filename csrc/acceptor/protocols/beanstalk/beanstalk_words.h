/* The words of a command line, and what beanstalkd takes as a number and as a name. */
#ifndef MQ_BEANSTALK_WORDS_H
#define MQ_BEANSTALK_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/decimal.h"
#include "base/time_units.h"

#define BEANSTALK_NAME_BYTES 200u /* of a tube, as in beanstalkd */

/* The rest of a line, still to be parsed. The carriage return that ends the line can be read too. */
struct words {
    const uint8_t *at, *end;
};

static inline bool at_end(const struct words *w) {
    return w->at == w->end;
}

static inline size_t words_bytes(const struct words *w) {
    return (size_t)(w->end - w->at);
}

static inline bool begins(struct words *w, const char *prefix, size_t bytes) {
    if (words_bytes(w) < bytes || memcmp(w->at, prefix, bytes) != 0) return false;
    w->at += bytes;
    return true;
}

#define BEGINS(w, prefix) begins(w, prefix, sizeof(prefix) - 1)

static inline void skip_spaces(struct words *w) {
    while (w->at < w->end && *w->at == ' ') w->at++;
}

/* Reads digits after any number of spaces. Inlined, because it is used several times a command and a call would double
 * its cost. */
__attribute__((always_inline)) static inline bool get_number(struct words *w, uint64_t max, uint64_t *number) {
    const uint8_t *at = w->at;
    while (*at == ' ') at++;
    if (!decimal_get_ended(&at, max, number)) return false;
    w->at = at;
    return true;
}

static inline bool get_id(struct words *w, uint64_t *id) {
    return get_number(w, UINT64_MAX, id);
}

static inline bool get_u32(struct words *w, uint32_t *number) {
    uint64_t value;
    if (!get_number(w, UINT32_MAX, &value)) return false;
    *number = (uint32_t)value;
    return true;
}

static inline bool get_seconds(struct words *w, uint64_t *ns) {
    uint64_t seconds;
    if (!get_number(w, UINT32_MAX, &seconds)) return false;
    *ns = seconds * SECOND_NS;
    return true;
}

/* What strtoul takes, the low 32 bits of it: white space and a sign may precede the digits. */
static inline bool get_loose_u32(struct words *w, uint32_t *number) {
    while (!at_end(w) && (*w->at == ' ' || (*w->at >= '\t' && *w->at <= '\r'))) w->at++;
    bool minus = !at_end(w) && *w->at == '-';
    if (!at_end(w) && (*w->at == '-' || *w->at == '+')) w->at++;
    uint64_t value;
    if (!decimal_get(&w->at, w->end, UINT64_MAX, &value)) return false;
    *number = (uint32_t)(minus ? 0 - value : value);
    return true;
}

/* Whether the name of a tube is valid. */
bool beanstalk_is_name(const uint8_t *name, size_t bytes);
/* Takes all the bytes at the front that may stand in a name, which need not be valid. False: there are none. */
bool beanstalk_get_name(struct words *w, struct words *name);

#endif
