/* Lists in which connections wait for their turn, by their numbers. */
#include "acceptor/lists.h"

#include <stdlib.h>

enum { FIRST_NUMBERS = 64 };

/* Without memory for a few numbers the process cannot go on; the supervisor starts another acceptor. */
void connection_list_add(struct connection_list *list, uint32_t number) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? 2 * list->capacity : FIRST_NUMBERS;
        uint32_t *larger = realloc(list->items, capacity * sizeof *larger);
        if (larger == NULL) abort();
        list->items = larger;
        list->capacity = capacity;
    }
    list->items[list->count++] = number;
}

void socket_schedule(struct acceptor *a, struct connection *c) {
    if (c->runnable) return;
    c->runnable = true;
    connection_list_add(&a->runnable, c->number);
}

void socket_wake(struct acceptor *a, struct connection *c) {
    c->stall = STALL_NONE;
    socket_schedule(a, c);
}

void connection_list_wake(struct acceptor *a, struct connection_list *list, enum stall why) {
    for (size_t i = 0; i < list->count; i++) {
        struct connection *c = connection_find(a, list->items[i]);
        if (c != NULL && c->stall == why) socket_wake(a, c);
    }
    list->count = 0;
}
