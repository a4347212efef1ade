/* What the slots of a connection hold of the workers is given back, when it is closed or need not wait any longer. */
#include "acceptor/slots.h"

#include <string.h>

#include "acceptor/lists.h"
#include "acceptor/requests.h"
#include "acceptor/topics.h"

/* The request in a slot has been answered, or nobody waits for the answer: its large body no longer counts. */
void slot_settle_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t slot) {
    if (c->large_bytes == 0 || c->large_slot != slot) return;
    struct worker_link *link = &a->links[worker];
    link->large_bytes -= c->large_bytes;
    c->large_bytes = 0;
    connection_list_wake(a, &link->larges, STALL_WORKER);
}

/* A request of Python's that waits for its worker holds a reference to its topic. */
void slot_forget_unsent(struct acceptor *a, struct connection *c, struct slot *slot) {
    struct message request;
    memcpy(&request, slot->body, sizeof request);
    if (request.topic != 0) topic_unbind(a, request.topic);
    connection_drop_body(c, &a->blocks, slot);
    slot->unsent = false;
}

void slots_forget(struct acceptor *a, struct connection *c) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct slot *slot = connection_slot(c, c->head_slot + i);
        if (!slot->answered && slot->kind >= MSG_PUBLISH && slot->kind != MSG_RESERVE) a->expected--;
        slot_settle_large(a, c, slot->worker, c->head_slot + i);
        if (slot->unsent) slot_forget_unsent(a, c, slot);
    }
}

/* Only the first reserve waits; those behind it have not begun to. */
void peer_cancel_reserves(struct acceptor *a, struct connection *c) {
    if (c->reserves == 0) return;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        const struct slot *slot = connection_slot(c, c->head_slot + i);
        if (slot->kind != MSG_RESERVE || slot->answered) continue;
        struct message cancel = {.kind = MSG_CANCEL, .conn = c->number, .slot = c->head_slot + i};
        peer_send(a, slot->worker, &cancel, NULL);
        return;
    }
}
