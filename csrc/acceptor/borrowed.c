/* Bodies that are sent from where a worker has put them, without a copy in the output: from its ring, or from the
 * memory in which the fragments of a message were assembled. A ring with such a body is given back to the worker only
 * after the turn's output has been sent. What a socket has not taken by then is copied. */
#include "acceptor/borrowed.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/socket.h"

static bool said(struct acceptor *a, struct connection *c, bool added) {
    if (added)
        socket_dirty(a, c);
    else
        engine_oom(a, c);
    return added;
}

static bool say_taken(struct acceptor *a, struct connection *c, void *memory, const void *bytes, size_t count) {
    const bool taken = output_take(&a->blocks, &c->out, memory, bytes, count);
    if (!taken) free(memory);
    return said(a, c, taken);
}

static bool say_borrowed(struct acceptor *a, struct connection *c, const void *bytes, size_t count) {
    a->hearing->lends = a->borrows = true;
    if (!c->borrows) connection_list_add(&a->borrowers, c->number);
    c->borrows = true;
    return said(a, c, output_borrow(&a->blocks, &c->out, bytes, count));
}

bool socket_say(struct acceptor *a, struct connection *c, const void *bytes, size_t count) {
    if (count >= BORROWED_BYTES && a->hearing != NULL) {
        void *memory = channel_take(a->hearing->channel, bytes);
        if (memory != NULL) return say_taken(a, c, memory, bytes, count);
        /* A socket that takes nothing now will have taken nothing at the end of the turn. */
        if (!c->choked && channel_keeps(a->hearing->channel, bytes)) return say_borrowed(a, c, bytes, count);
    }
    uint8_t *room = socket_room(a, c, count);
    if (room == NULL) return false;
    if (count > 0) memcpy(room, bytes, count);
    socket_written(a, c, room + count);
    return true;
}

void borrowed_give_back(struct acceptor *a) {
    if (!a->borrows) return;
    a->borrows = false;
    for (size_t i = 0; i < a->borrowers.count; i++) {
        struct connection *c = connection_find(a, a->borrowers.items[i]);
        if (c == NULL) continue;
        c->borrows = false;
        if (!output_settle(&a->blocks, &c->out)) engine_oom(a, c);
    }
    a->borrowers.count = 0;
    for (uint32_t w = 0; w < a->workers; w++) {
        struct worker_link *link = &a->links[w];
        if (link->lends) channel_release(link->channel);
        link->lends = false;
    }
}
