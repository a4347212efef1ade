/* What the headers of a message say, as names and values: entries of Spark's `attributes`, a Pulsar consumer's properties. They lie where they were written;
 * nothing is copied, nothing allocated, nothing believed.
 */
#ifndef MQ_ENTRIES_H
#define MQ_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decimal.h"
#include "base/pulsar_entry.h"
#include "base/text.h"

/* Beyond, they are given as one attribute, as are those that cannot be told apart or are no text. */
enum { HEADERS_MOST = 64 };

struct entry {
    struct text name, value;
    bool prefixed; /* it has the name of one of ours: ENTRY_PREFIX stands before it */
};
#define ENTRY_PREFIX "property."

struct entries {
    struct entry all[HEADERS_MOST];
    uint32_t count;
    size_t name_bytes, value_bytes;    /* of all */
    uint8_t number[DECIMAL_MAX_BYTES]; /* a value that is none of theirs */
};

/* What is in headers with that tag. False: not all of it can be an attribute; what can is there. */
bool entries_of_nats(const uint8_t *at, size_t bytes, struct entries *out);
bool entries_of_spark(const uint8_t *at, size_t bytes, struct entries *out);

/* Whose metadata it is: of a Pulsar entry, or of one message of its batch. */
enum pulsar_level { PULSAR_ENTRY, PULSAR_SINGLE };
/* Properties, and as `key`, `key_encoding`, `ordering_key`, `event_time_ms` and `null_value` what has a field of its own. */
bool entries_of_pulsar(struct pulsar_bytes metadata, enum pulsar_level level, struct entries *out);

#endif
