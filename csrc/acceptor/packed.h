/* Opens batches for consumers that do not know their headers. A worker's message with a batch is split here with the
 * help of the codec that wrote its headers (`opens` and `next_packed`), and passed on as several messages without
 * headers.
 *
 * Compressed batches are decompressed by Python; the worker's messages about such a batch wait until then. The batch
 * opened last is kept, because more of its messages often follow.
 */
#ifndef MQ_PACKED_H
#define MQ_PACKED_H

#include "acceptor/acceptor_state.h"

/* Handles a worker's message with MSG_PACKED. */
void packed_said(struct acceptor *a, uint32_t worker, const struct message *message);
/* Python has decompressed the message with this id. NULL: it could not, and the consumer gets the body as it is. */
void packed_opened(struct acceptor *a, uint64_t id, const uint8_t *bytes, size_t bytes_count);
/* Drops waiting messages of a worker that is gone. */
void packed_forget(struct acceptor *a, uint32_t worker);
void packed_free(struct acceptor *a);

#endif
