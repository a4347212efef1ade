/* A piece of text that lies in somebody else's buffer. */
#ifndef MQ_TEXT_H
#define MQ_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text {
    const uint8_t *at;
    size_t bytes;
};

#endif
