/* PUB and HPUB, between the lines (nats.c) and those who are interested (nats_deliver.c). */
#ifndef MQ_NATS_PUBLISH_H
#define MQ_NATS_PUBLISH_H

#include "acceptor/protocols/nats/nats_line.h"

#define NATS_UNKNOWN_OPERATION "Unknown Protocol Operation"

enum { NATS_MAX_ARGUMENTS = 4 };

struct nats_arguments {
    struct text items[NATS_MAX_ARGUMENTS];
    size_t count; /* more than NATS_MAX_ARGUMENTS: so many that they were not all taken */
};

/* `line_bytes` of the line have come, and behind it what there is of the payload. Returns what was used: all or nothing. */
size_t nats_take_publish(struct acceptor *a, struct connection *c, const struct nats_arguments *k, bool headers,
                         const uint8_t *data, size_t line_bytes, size_t bytes);
/* nats_trace.c: its publisher wants to know of its way, and nobody is to have it. */
bool nats_is_only_traced(const struct nats_message *m);
/* Nobody was there for a request: its sender is told, if it wants to be and listens. */
void nats_say_no_responders(struct acceptor *a, struct connection *c, const struct nats_message *m);
/* It may be a name that servers make for themselves. */
static inline bool nats_is_reserved(struct text name) {
    return (name.at[0] == '_' && name.bytes > 1 && name.at[1] != 'I') || name.at[0] == '$';
}

/* --- nats_run.c --------------------------------------------------------------------------------------------------- */

/* So many bytes of whole PUBs that are plain; 0: the first command is none. */
size_t nats_take_run(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);

/* --- nats.c ------------------------------------------------------------------------------------------------------- */

void nats_say_ok(struct acceptor *a, struct connection *c);
/* -ERR 'Permissions Violation for WHAT "subject" using queue "queue"' */
void nats_say_violation(struct acceptor *a, struct connection *c, const char *what, struct text subject,
                        struct text queue);
/* It is closed when its output has left, or is not taken in time. */
void nats_hang_up(struct acceptor *a, struct connection *c, enum nats_reason reason);

#endif
