/* What the name of a topic or channel says of it. It is said by the name, and not by who asks, since clients of any
 * protocol may be the first to publish to a topic, and all must make the same of it.
 */
#ifndef MQ_SHARDS_NAMES_H
#define MQ_SHARDS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* It does not outlive its last consumer. */
static inline bool name_is_ephemeral(const char *name, size_t bytes) {
    static const char end[] = "#ephemeral";
    return bytes > sizeof end - 1 && memcmp(name + bytes - (sizeof end - 1), end, sizeof end - 1) == 0;
}

static inline bool name_begins(const char *name, size_t bytes, const char *scheme) {
    const size_t scheme_bytes = strlen(scheme);
    return bytes > scheme_bytes && memcmp(name, scheme, scheme_bytes) == 0;
}

/* None of the topic's messages is stored. */
static inline bool name_is_non_persistent(const char *name, size_t bytes) {
    return name_begins(name, bytes, "non-persistent://");
}

/* It is that of a stored topic in a namespace: lists of those need not tell of other tubes. */
static inline bool name_is_in_namespace(const char *name, size_t bytes) {
    return name_begins(name, bytes, "persistent://");
}

#endif
