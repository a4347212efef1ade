/* A connection that is compressed. */
#ifndef MQ_COMPRESSION_H
#define MQ_COMPRESSION_H

#include "acceptor/acceptor_state.h"

/* Decompresses input, as much as this turn may, and gives it to the codec. */
void compression_go_on(struct acceptor *a, struct connection *c);
/* Compresses output, as far as it can leave soon. */
void compression_pass(struct acceptor *a, struct connection *c);
/* Whether compressing has to wait for the next turn, because all connections together had their share of this one. */
bool compression_waits(const struct acceptor *a, const struct connection *c);
/* What was wrong with the compressed input; NULL: nothing. */
const char *compression_damage(const struct connection *c);

#endif
