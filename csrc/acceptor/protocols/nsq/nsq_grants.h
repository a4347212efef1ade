/* Python's decisions who may publish to which topic, and until when, so that it is asked once and not for each message
 * or connection.
 *
 * Of an acceptor, for all its connections: a table of one size, whoever comes and whatever they name. An entry is found
 * by 128 bits that nobody can choose without the keys; what finds no room takes the place of another, and that is asked
 * again.
 */
#ifndef MQ_NSQ_GRANTS_H
#define MQ_NSQ_GRANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

#define NSQ_GRANT_SETS 4096u
#define NSQ_GRANT_WAYS 4u
/* Room for the bytes that identify a client, followed by a topic. */
#define NSQ_GRANTED_BYTES ((size_t)1536)

struct nsq_grant {
    uint64_t words[2];
    uint64_t until_ns; /* 0: an empty place */
};

struct nsq_grants {
    struct siphash_key keys[2];
    struct nsq_grant *places; /* NULL: none yet */
    uint32_t next;            /* which entry of a full set is replaced next */
};

/* A client and a topic, hashed for the look-up. */
struct nsq_granted {
    uint64_t words[2];
};

void nsq_grants_open(struct nsq_grants *grants);
void nsq_grants_close(struct nsq_grants *grants);

/* Hashes bytes that are the same only for the same client and topic. */
struct nsq_granted nsq_granted_of(const struct nsq_grants *grants, const void *bytes, size_t bytes_count);
bool nsq_is_granted(const struct nsq_grants *grants, struct nsq_granted what, uint64_t now_ns);
/* Remembers a decision, unless memory is short. */
void nsq_grant(struct nsq_grants *grants, struct nsq_granted what, uint64_t until_ns);
void nsq_grants_forget(struct nsq_grants *grants);

#endif
