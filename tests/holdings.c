/* What an engine holds, as lines of a name and a count: items of its arenas, entries of its maps. For
 * sitecustomize.py. */
#include <stdio.h>

#include "acceptor/acceptor_state.h"
#include "shards/worker_state.h"

struct text {
    char *at;
    size_t room;
};

static void say(struct text *text, const char *name, uint64_t count) {
    int bytes = snprintf(text->at, text->room, "%s %llu\n", name, (unsigned long long)count);
    if (bytes < 0 || (size_t)bytes >= text->room) return;
    text->at += bytes;
    text->room -= (size_t)bytes;
}

void worker_holdings(const struct worker *w, char *out, size_t room) {
    struct text text = {out, room};
    const struct subscriptions *s = &w->subscriptions;
    say(&text, "jobs", w->jobs.live);
    say(&text, "reservations", w->reservations.live);
    say(&text, "ids", w->ids.count);
    say(&text, "delays", w->delays.count);
    say(&text, "pauses", w->pauses.count);
    say(&text, "waits", w->waits.count);
    say(&text, "clients", w->clients.arena.live);
    say(&text, "clients by number", w->clients.by_conn.count);
    say(&text, "watches", w->clients.watches.live);
    say(&text, "watched", w->clients.watched.count);
    say(&text, "topics", w->topics.arena.live);
    say(&text, "topics by name", w->topics.names.count);
    say(&text, "subscriptions", s->arena.live);
    say(&text, "consumers", s->consumers.live);
    say(&text, "consumers by number", s->numbers.count);
    say(&text, "deliveries", s->deliveries.live);
    say(&text, "deliveries by id", s->index.count);
    say(&text, "slots", s->slots.live);
    say(&text, "slot uses", s->slot_uses.count);
    say(&text, "parts", s->parts.live + (uint64_t)s->many_parts.live);
    say(&text, "parts of deliveries", s->parts_of.count);
    say(&text, "flights", s->flights.count);
    say(&text, "deadlines", s->deadlines.count);
    say(&text, "producers", w->attachments.arena.live);
    say(&text, "producers by name", w->attachments.by_name.count);
    say(&text, "transactions", w->transactions.arena.live);
    say(&text, "transactions by number", w->transactions.by_number.count);
    say(&text, "transactions' acknowledgements", w->transactions.acknowledgements.live);
    say(&text, "transactions' messages", w->transactions.by_message.count);
    for (uint32_t n = 0; n < w->shards; n++) {
        const struct shard *one = w->own[n];
        if (one == NULL) continue;
        say(&text, "topic numbers", one->numbers.count);
        say(&text, "kept names", one->keep.count);
        say(&text, "subscription numbers", one->subscriptions.count);
    }
}

void acceptor_holdings(const struct acceptor *a, char *out, size_t room) {
    struct text text = {out, room};
    uint64_t connections = 0;
    for (uint32_t i = 0; i < a->highest_index; i++) connections += a->table[i] != NULL;
    say(&text, "connections", connections);
    say(&text, "timers", a->timers.count);
    say(&text, "taken bytes", a->blocks.taken_bytes);
    say(&text, "names in use", a->bindings.bound - a->bindings.idle);
}
