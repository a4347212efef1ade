/* What Python has found to be allowed: who may publish to which topic, until when. So it is asked once, and not for each
 * message or connection.
 *
 * Of an acceptor, for all its connections: a table of one size, whoever comes and whatever they name. An entry is found by
 * 128 bits that nobody can choose without the keys; what finds no room takes the place of another, and that is asked again.
 */
#ifndef MQ_NSQ_GRANTS_H
#define MQ_NSQ_GRANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

#define NSQ_GRANT_SETS 4096u
#define NSQ_GRANT_WAYS 4u
/* Who somebody is, as bytes, and a topic behind it. */
#define NSQ_GRANTED_BYTES ((size_t)1536)

struct nsq_grant {
    uint64_t words[2];
    uint64_t until_ns; /* 0: an empty place */
};

struct nsq_grants {
    struct siphash_key keys[2];
    struct nsq_grant *places; /* NULL: none yet */
    uint32_t next;            /* in which place of a full set the next comes */
};

/* Who and what, as it is looked for. */
struct nsq_granted {
    uint64_t words[2];
};

void nsq_grants_open(struct nsq_grants *grants);
void nsq_grants_close(struct nsq_grants *grants);

/* Of bytes that are the same for the same of both only. */
struct nsq_granted nsq_granted_of(const struct nsq_grants *grants, const void *bytes, size_t bytes_count);
bool nsq_is_granted(const struct nsq_grants *grants, struct nsq_granted what, uint64_t now_ns);
/* Not kept where memory is short. */
void nsq_grant(struct nsq_grants *grants, struct nsq_granted what, uint64_t until_ns);
void nsq_grants_forget(struct nsq_grants *grants);

#endif
