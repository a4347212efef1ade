#include "shards/client.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "ringbuf/request_each.h"

enum { FIRST_PARKED_BYTES = 1024 };

bool clients_open(struct clients *clients, uint32_t limit, uint32_t watch_limit) {
    *clients = (struct clients){0};
    if (!arena_open(&clients->arena, sizeof(struct client), limit)) return false;
    if (arena_open(&clients->watches, sizeof(struct watch), watch_limit)) {
        if (index_open(&clients->watched, watch_limit, 1)) return true;
        arena_close(&clients->watches);
    }
    arena_close(&clients->arena);
    return false;
}

void clients_close(struct clients *clients) {
    for (uint32_t n = 1; n < clients->arena.end; n++) {
        struct parked *parked = &client_at(clients, n)->parked;
        while (parked->head != parked->tail) parked_drop_first(parked);
        free(parked->bytes);
    }
    map_free(&clients->by_conn);
    arena_close(&clients->arena);
    arena_close(&clients->watches);
    index_close(&clients->watched);
}

static uint64_t key_of(uint32_t acceptor, uint32_t conn) {
    return (uint64_t)acceptor << 32 | conn;
}

uint32_t clients_find(const struct clients *clients, uint32_t acceptor, uint32_t conn) {
    return map_find(&clients->by_conn, key_of(acceptor, conn));
}

static uint32_t add(struct clients *clients, uint32_t acceptor, uint32_t conn) {
    uint32_t number = arena_take(&clients->arena);
    if (!number) return 0;
    if (!map_insert(&clients->by_conn, key_of(acceptor, conn), number)) {
        arena_give(&clients->arena, number);
        return 0;
    }
    *client_at(clients, number) = (struct client){.acceptor = acceptor, .conn = conn, .wait_place = HEAP_NOWHERE};
    return number;
}

uint32_t clients_get(struct clients *clients, uint32_t acceptor, uint32_t conn) {
    uint64_t key = key_of(acceptor, conn);
    if (clients->last && clients->last_key == key) return clients->last;
    uint32_t number = map_find(&clients->by_conn, key);
    if (!number) number = add(clients, acceptor, conn);
    clients->last = number;
    clients->last_key = key;
    return number;
}

void clients_unname(struct clients *clients, uint32_t client) {
    const struct client *c = client_at(clients, client);
    clients->last = 0;
    map_remove(&clients->by_conn, key_of(c->acceptor, c->conn));
}

void clients_remove(struct clients *clients, uint32_t client) {
    struct client *c = client_at(clients, client);
    assert(!c->waiting && !c->inflight && !c->watches && !c->used && !c->consumer);
    free(c->parked.bytes);
    c->parked = (struct parked){0};
    arena_give(&clients->arena, client);
}

static uint64_t watch_key(uint32_t client, uint32_t topic) {
    return (uint64_t)client << 32 | topic;
}

uint32_t client_watch(const struct clients *clients, uint32_t client, uint32_t topic) {
    return index_find(&clients->watched, &clients->watches, watch_key(client, topic));
}

uint32_t client_add_watch(struct clients *clients, uint32_t client, uint32_t topic) {
    uint32_t number = arena_take(&clients->watches);
    if (!number) return 0;
    struct client *c = client_at(clients, client);
    *watch_at(clients, number) = (struct watch){.key = watch_key(client, topic), .next = c->watches};
    if (c->watches) watch_at(clients, c->watches)->previous = number;
    c->watches = number;
    index_insert(&clients->watched, &clients->watches, number);
    c->watch_count++;
    return number;
}

void client_remove_watch(struct clients *clients, uint32_t watch) {
    const struct watch *of = watch_at(clients, watch);
    struct client *c = client_at(clients, watch_client(of));
    *(of->previous ? &watch_at(clients, of->previous)->next : &c->watches) = of->next;
    if (of->next) watch_at(clients, of->next)->previous = of->previous;
    c->watch_count--;
    index_remove(&clients->watched, &clients->watches, watch);
    arena_give(&clients->watches, watch);
}

static size_t behind_bytes(const struct message *m, bool apart) {
    return apart ? sizeof m : m->body_bytes;
}

static uint32_t padded(const struct message *m, bool apart) {
    return (uint32_t)((sizeof(struct parked_request) + behind_bytes(m, apart) + 7) & ~(size_t)7);
}

struct parked_request *parked_put(struct parked *parked, uint32_t topic, const struct message *message, bool apart) {
    uint32_t bytes = padded(message, apart);
    if (parked->capacity - parked->tail < bytes && parked->head > 0) {
        memmove(parked->bytes, parked->bytes + parked->head, parked->tail - parked->head);
        parked->tail -= parked->head;
        parked->head = 0;
    }
    if (parked->capacity - parked->tail < bytes) {
        uint64_t capacity = parked->capacity ? parked->capacity : FIRST_PARKED_BYTES;
        while (capacity - parked->tail < bytes) capacity *= 2;
        if (capacity > UINT32_MAX) return NULL;
        uint8_t *larger = realloc(parked->bytes, capacity);
        if (!larger) return NULL;
        parked->bytes = larger;
        parked->capacity = (uint32_t)capacity;
    }
    struct parked_request *request = (struct parked_request *)(void *)(parked->bytes + parked->tail);
    *request = (struct parked_request){.topic = topic, .apart = apart, .message = *message};
    const void *behind = apart ? (const void *)&message : message + 1;
    if (apart || message->body_bytes > 0) memcpy(&request->message + 1, behind, behind_bytes(message, apart));
    parked->tail += bytes;
    return request;
}

const struct message *parked_message(const struct parked_request *request) {
    const struct message *message = &request->message;
    if (request->apart) memcpy(&message, &request->message + 1, sizeof message);
    return message;
}

struct message *parked_take_message(struct parked_request *request) {
    struct message *message;
    assert(request->apart);
    memcpy(&message, &request->message + 1, sizeof message);
    memset(&request->message + 1, 0, sizeof(void *)); /* which free() takes */
    return message;
}

struct parked_request *parked_first(const struct parked *parked) {
    return parked->head == parked->tail ? NULL : (struct parked_request *)(void *)(parked->bytes + parked->head);
}

void parked_drop_first(struct parked *parked) {
    struct parked_request *first = parked_first(parked);
    parked->head += padded(&first->message, first->apart);
    if (first->apart) free(parked_take_message(first));
    if (parked->head < parked->tail) return;
    parked->head = parked->tail = 0;
    /* An idle client keeps little. */
    if (parked->capacity > 8 * FIRST_PARKED_BYTES) {
        free(parked->bytes);
        *parked = (struct parked){0};
    }
}

/* The wait of a RESERVE among the requests of a REQUEST_EACH that are not done yet. */
static uint64_t *wait_of_each(struct parked_request *request, uint32_t slot) {
    if (request->apart || !request_each_is_whole(&request->message)) return NULL;
    struct request_each *each = (struct request_each *)(void *)(&request->message + 1);
    for (uint32_t n = request->done; n < request->message.several; n++)
        if (each[n].kind == MSG_RESERVE && each[n].slot == slot) return &each[n].value;
    return NULL;
}

uint64_t *parked_wait(const struct parked *parked, uint32_t slot) {
    for (uint32_t at = parked->head; at < parked->tail;) {
        struct parked_request *request = (struct parked_request *)(void *)(parked->bytes + at);
        struct message *m = &request->message;
        if (m->kind == MSG_RESERVE && m->slot == slot) return &m->wait_ns;
        uint64_t *wait_ns = m->kind == MSG_REQUEST_EACH ? wait_of_each(request, slot) : NULL;
        if (wait_ns) return wait_ns;
        at += padded(m, request->apart);
    }
    return NULL;
}
