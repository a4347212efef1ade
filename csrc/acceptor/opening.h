/* Who opens a packed message: the codec that knows its headers, and Python, if it is compressed. */
#ifndef MQ_OPENING_H
#define MQ_OPENING_H

#include "acceptor/acceptor_state.h"

/* First byte of an UPCALL_COMMAND without a connection: Python is to decompress the body that follows the struct.
 * packed_opened answers it. */
enum { PACKED_ASKS = 'u' };
struct packed_asks {
    uint64_t id; /* of the message */
    uint32_t compression;
    uint32_t bytes; /* the decompressed size */
};

/* The codec that writes headers with this tag; NULL: there is none that opens messages. */
const struct codec *packed_codec(const struct codec_table *codecs, uint32_t tag, uint32_t *protocol);
/* Asks Python to decompress a body, which it answers with packed_opened and this id. False: memory is short. */
bool packed_ask(struct acceptor *a, uint64_t id, const struct opening *opening, uint32_t protocol,
                struct codec_bytes body);

#endif
