/* Messages that lie in one: what a worker says to who does not know the headers of a message is taken apart here, by the codec
 * that wrote those (its `opens` and `next_packed`), and goes on as so many messages without headers.
 *
 * What is compressed Python opens: what is said of it waits until then, and the one that was opened last is kept, since
 * more of it is often asked for.
 */
#ifndef MQ_PACKED_H
#define MQ_PACKED_H

#include "acceptor/engine.h"

/* Whose codec wrote headers with this tag; NULL: nobody's opens anything. */
const struct codec *packed_codec(uint32_t tag, uint32_t *protocol);
/* Python is to open what lies there: packed_opened is called with this id. False: memory is short. */
bool packed_ask(struct acceptor *a, uint64_t id, const struct opening *opening, uint32_t protocol,
                struct codec_bytes body);
/* Said by a worker, with MSG_PACKED. */
void packed_said(struct acceptor *a, uint32_t worker, const struct message *message);
/* What Python made of the message with this id; no bytes: it cannot be opened, and is given as it is. */
void packed_opened(struct acceptor *a, uint64_t id, const uint8_t *bytes, size_t bytes_count);
/* What a worker that is gone has said, and waits, is not said any more. */
void packed_forget(struct acceptor *a, uint32_t worker);
void packed_free(struct acceptor *a);

#endif
