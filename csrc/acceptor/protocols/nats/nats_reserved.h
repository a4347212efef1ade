/* Subjects that servers reserve for themselves. */
#ifndef MQ_NATS_RESERVED_H
#define MQ_NATS_RESERVED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"

static inline bool nats_begins_with(struct text text, const char *prefix) {
    size_t bytes = strlen(prefix);
    return text.bytes >= bytes && memcmp(text.at, prefix, bytes) == 0;
}

/* Whether a subject may be one of those that servers reserve for themselves. */
static inline bool nats_is_reserved(struct text name) {
    return (name.at[0] == '_' && name.bytes > 1 && name.at[1] != 'I') || name.at[0] == '$';
}

/* Whether a reply subject is reserved for servers. */
static inline bool nats_is_reserved_reply(struct text reply) {
    return nats_begins_with(reply, "_R_.") || nats_begins_with(reply, "$JS.ACK.") || nats_begins_with(reply, "_GR_.") ||
           nats_begins_with(reply, "$GR.");
}

/* Whether no client may publish to a subject. */
static inline bool nats_is_reserved_subject(struct text subject) {
    return nats_begins_with(subject, "_GR_.") || nats_begins_with(subject, "$GR.") ||
           nats_begins_with(subject, "$NRG.");
}

#endif
