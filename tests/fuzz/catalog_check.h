/* A catalog as csrc/ringbuf/message.h lays it out. */
#ifndef MQ_FUZZ_CATALOG_CHECK_H
#define MQ_FUZZ_CATALOG_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* It is one, and its figures can be. */
void catalog_check(const uint8_t *bytes, size_t count);

#endif
