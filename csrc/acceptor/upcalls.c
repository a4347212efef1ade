/* Upcalls: what Python is told after a turn. They wait in a ring buffer, each with a copy of its bytes. */
#include "acceptor/upcalls.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/lists.h"

enum { FIRST_UPCALLS = 16 };

static void grow_upcalls(struct acceptor *a) {
    size_t capacity = a->upcall_capacity > 0 ? 2 * a->upcall_capacity : FIRST_UPCALLS;
    struct pending_upcall *larger = malloc(capacity * sizeof *larger);
    if (larger == NULL) abort(); /* as for numbers */
    for (size_t i = 0; i < a->upcall_count; i++) larger[i] = a->upcalls[(a->upcall_head + i) % a->upcall_capacity];
    free(a->upcalls);
    a->upcalls = larger;
    a->upcall_head = 0;
    a->upcall_capacity = capacity;
}

void upcall_push(struct acceptor *a, uint32_t kind, uint32_t conn, uint32_t protocol, const struct message *answer,
                 const void *bytes, size_t bytes_count) {
    if (a->upcall_count == a->upcall_capacity) grow_upcalls(a);
    uint8_t *owned = malloc(bytes_count + 1);
    if (owned == NULL) abort();
    if (bytes_count > 0) memcpy(owned, bytes, bytes_count);
    bool is_first = kind == UPCALL_CONTROL || kind == UPCALL_POKED;
    if (is_first) a->upcall_head = (a->upcall_head + a->upcall_capacity - 1) % a->upcall_capacity;
    size_t at = a->upcall_head + (is_first ? 0 : a->upcall_count);
    a->upcall_count++;
    struct pending_upcall *p = &a->upcalls[at % a->upcall_capacity];
    *p = (struct pending_upcall){
        .upcall = {.kind = kind, .conn = conn, .protocol = protocol, .bytes = owned, .bytes_count = bytes_count},
        .owned = owned,
    };
    a->upcalls_bytes += bytes_count;
    if (kind == UPCALL_COMMAND) {
        a->commands++;
        a->command_bytes += bytes_count;
    }
    if (answer != NULL) p->upcall.answer = *answer;
}

bool upcall_has_room(const struct acceptor *a) {
    return a->commands < MANY_COMMANDS && a->command_bytes < MANY_COMMAND_BYTES;
}

bool upcall_may_push(struct acceptor *a, struct connection *c, size_t bytes) {
    bool is_large = bytes > LARGE_COMMAND_BYTES;
    bool may = a->shares ? a->share > 0 : upcall_has_room(a);
    if (may && !(is_large && a->handed_large)) {
        if (a->shares) a->share--;
        a->handed_large |= is_large;
        return true;
    }
    connection_list_add(&a->for_python, c->number);
    return stalled(c, STALL_TURN);
}

void reply_by_python(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes) {
    assert(c->slot_count == 0);
    c->stall = STALL_PYTHON;
    c->known = c->codec->python_keeps;
    upcall_push(a, UPCALL_COMMAND, c->number, c->protocol, NULL, line, bytes);
}

void upcalls_free(struct acceptor *a) {
    for (size_t i = 0; i < a->upcall_count; i++) free(a->upcalls[(a->upcall_head + i) % a->upcall_capacity].owned);
    free(a->upcalls);
    free(a->upcall_bytes);
}
