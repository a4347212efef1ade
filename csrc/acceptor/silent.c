#include "acceptor/silent.h"

#include <sys/socket.h>

#include "acceptor/upcalls.h"

void silent_enter(struct acceptor *a, struct connection *c) {
    struct silent_list *list = &a->silent;
    const uint32_t place = connection_index(c) + 1;
    c->silent = true;
    list->places[place - 1] =
        (struct silent_place){.since_ns = a->now_ns, .moved_bytes = c->moved_bytes, .before = list->last};
    *(list->last != 0 ? &list->places[list->last - 1].after : &list->first) = place;
    list->last = place;
}

void silent_leave(struct acceptor *a, struct connection *c) {
    if (!c->silent) return;
    c->silent = false;
    struct silent_list *list = &a->silent;
    const struct silent_place *its = &list->places[connection_index(c)];
    *(its->before != 0 ? &list->places[its->before - 1].after : &list->first) = its->after;
    *(its->after != 0 ? &list->places[its->after - 1].before : &list->last) = its->before;
}

/* It is sending a long first command, or has sent something that this process, which may have stood still, has not
 * received yet. */
static bool is_speaking(const struct acceptor *a, const struct connection *c) {
    uint8_t byte;
    if (c->moved_bytes - a->silent.places[connection_index(c)].moved_bytes >= SILENT_BYTES) return true;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

struct connection *silent_choose(struct acceptor *a) {
    for (int looks = 0; looks < SILENT_LOOKS && silent_is_due(a); looks++) {
        struct connection *c = a->table[a->silent.first - 1];
        if (!is_speaking(a, c)) return c;
        silent_leave(a, c);
        silent_enter(a, c);
    }
    return NULL;
}

void silent_count(struct acceptor *a) {
    board_add(&a->count->gave_way, 1);
    a->silent.closed++;
    if (a->silent.said_ns != 0 && a->now_ns - a->silent.said_ns < SILENT_SAID_NS) return;
    a->silent.said_ns = a->now_ns;
    upcall_push(a, UPCALL_GAVE_WAY, a->silent.closed, 0, NULL, NULL, 0);
    a->silent.closed = 0;
}
