/* A message's headers as names and values: entries of Spark's `attributes`, a Pulsar consumer's properties. Names and
 * values point into the headers as they were received. Nothing is copied or allocated, and no size in them is believed
 * unchecked.
 */
#ifndef MQ_ENTRIES_H
#define MQ_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decimal.h"
#include "base/text.h"
#include "formats/pulsar_entry.h"

/* More headers than this become a single attribute, as do headers that cannot be parsed or are not text. */
enum { HEADERS_MOST = 64 };

struct entry {
    struct text name, value;
    bool prefixed; /* its name is one that we use ourselves, so ENTRY_PREFIX is put before it */
};
#define ENTRY_PREFIX "property."

struct entries {
    struct entry all[HEADERS_MOST];
    uint32_t count;
    size_t name_bytes, value_bytes;    /* of all */
    uint8_t number[DECIMAL_MAX_BYTES]; /* room for a value that is made here, not found in the headers */
};

/* What is in headers with that tag. False: not all of it can be an attribute; what can is there. */
bool entries_of_nats(const uint8_t *at, size_t bytes, struct entries *out);
bool entries_of_spark(const uint8_t *at, size_t bytes, struct entries *out);

/* Whether metadata belongs to a whole Pulsar entry or to one message of its batch. */
enum pulsar_level { PULSAR_ENTRY, PULSAR_SINGLE };
/* Properties, and as `key`, `key_encoding`, `ordering_key`, `event_time_ms` and `null_value` what has a field of its
 * own. */
bool entries_of_pulsar(struct pulsar_bytes metadata, enum pulsar_level level, struct entries *out);

#endif
