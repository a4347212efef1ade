#include "acceptor/opening.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/upcalls.h"

const struct codec *packed_codec(const struct codec_table *codecs, uint32_t tag, uint32_t *protocol) {
    for (*protocol = 1; *protocol <= codecs->count; ++*protocol)
        if (codecs->items[*protocol - 1]->headers_tag == tag && tag != 0) return codecs->items[*protocol - 1];
    return NULL;
}

bool packed_ask(struct acceptor *a, uint64_t id, const struct opening *opening, uint32_t protocol,
                struct codec_bytes body) {
    const struct packed_asks what = {.id = id, .compression = opening->compression, .bytes = opening->bytes};
    const size_t bytes = 1 + sizeof what + body.bytes;
    uint8_t *asks = malloc(bytes);
    if (asks == NULL) return false;
    asks[0] = PACKED_ASKS;
    memcpy(asks + 1, &what, sizeof what);
    memcpy(asks + 1 + sizeof what, body.at, body.bytes);
    upcall_push(a, UPCALL_COMMAND, 0, protocol, NULL, asks, bytes);
    free(asks);
    return true;
}
