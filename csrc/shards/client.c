#include "shards/client.h"

#include <assert.h>

#include "base/heap.h"

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
    for (uint32_t n = 1; n < clients->arena.end; n++) parked_free(&client_at(clients, n)->parked);
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
    parked_free(&c->parked);
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

void client_line_up(struct clients *clients, enum client_line line, uint32_t client) {
    struct client *c = client_at(clients, client);
    struct client_line_ends *ends = &clients->lines[line];
    assert(!client_is_in(c, line));
    c->lines |= (uint8_t)(1u << line);
    *client_place_in(c, line) = (struct client_place){.previous = ends->last};
    *(ends->last ? &client_place_in(client_at(clients, ends->last), line)->next : &ends->first) = client;
    ends->last = client;
}

void client_leave_line(struct clients *clients, enum client_line line, uint32_t client) {
    struct client *c = client_at(clients, client);
    struct client_line_ends *ends = &clients->lines[line];
    const struct client_place place = *client_place_in(c, line);
    if (!client_is_in(c, line)) return;
    c->lines &= (uint8_t)~(1u << line);
    *(place.previous ? &client_place_in(client_at(clients, place.previous), line)->next : &ends->first) = place.next;
    *(place.next ? &client_place_in(client_at(clients, place.next), line)->previous : &ends->last) = place.previous;
}
