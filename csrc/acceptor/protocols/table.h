/* The wire protocols: what an acceptor is made with. Nothing of the engine and no codec includes this. */
#ifndef MQ_TABLE_H
#define MQ_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/codec.h"

/* All wire protocols. */
const struct codec_table *table_protocols(void);

/* The number of a wire protocol by the name of its codec, or 0. */
uint32_t table_protocol(const char *name);

/* The name of the codec of a wire protocol, or NULL if there is no protocol of that number. */
const char *table_name(uint32_t protocol);

/* Whether this is a valid topic name in that protocol. */
bool table_is_name(uint32_t protocol, const char *name, size_t name_bytes);

#endif
