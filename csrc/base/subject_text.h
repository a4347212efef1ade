/* Tokens of subjects: the parts between dots. */
#ifndef MQ_SUBJECT_TEXT_H
#define MQ_SUBJECT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The end of the token that begins at `at`. */
static inline size_t token_end(const char *text, size_t at, size_t bytes) {
    const char *dot = memchr(text + at, '.', bytes - at);
    return dot ? (size_t)(dot - text) : bytes;
}

static inline bool is_any(const char *token, size_t bytes) {
    return bytes == 1 && token[0] == '*';
}

static inline bool is_all(const char *token, size_t bytes) {
    return bytes == 1 && token[0] == '>';
}

#endif
