/* TOPIC records of releases in which a topic's name said to the worker what it is. Acceptors say it since, and the
 * record does (TOPIC_SAID). */
#ifndef MQ_SHARDS_OLDER_TOPICS_H
#define MQ_SHARDS_OLDER_TOPICS_H

#include <string.h>

#include "log/records.h"

/* Whether the record is one of a topic that is not persistent. */
static inline bool older_topic_non_persistent(const struct record *r) {
    static const char scheme[] = "non-persistent://";
    return record_body_bytes(r) >= sizeof scheme && memcmp(record_body(r), scheme, sizeof scheme - 1) == 0;
}

#endif
