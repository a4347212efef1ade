/* The catalog: the figures of topics, their subscriptions, consumers and transactions, as message.h lays them out. */
#include "shards/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/queue.h"
#include "shards/subscription.h"
#include "shards/transactions.h"

struct sheet {
    uint8_t *bytes;
    size_t count, capacity;
    bool short_of_memory;
};

static void put(struct sheet *sheet, const void *data, size_t bytes) {
    if (sheet->capacity - sheet->count < bytes) {
        size_t capacity = sheet->capacity ? sheet->capacity : 4096;
        while (capacity - sheet->count < bytes) capacity *= 2;
        uint8_t *larger = realloc(sheet->bytes, capacity);
        sheet->short_of_memory |= !larger;
        if (!larger) return;
        sheet->bytes = larger;
        sheet->capacity = capacity;
    }
    if (bytes) memcpy(sheet->bytes + sheet->count, data, bytes);
    sheet->count += bytes;
}

static void put_consumer(const struct worker *w, struct sheet *sheet, const struct consumer *c) {
    const struct client *client = client_at(&w->clients, c->client);
    struct consumer_figures figures = {.acceptor = client->acceptor,
                                       .conn = client->conn,
                                       .credit = c->credit,
                                       .in_flight = (uint32_t)c->inflight_parts,
                                       .messages = c->messages,
                                       .finishes = c->finishes,
                                       .requeues = c->requeues,
                                       .description_bytes = c->description_bytes,
                                       .sample_percent = (uint16_t)c->sample_percent,
                                       .is_leaving = c->leaving,
                                       .number = c->number,
                                       .is_blocked = c->blocked};
    put(sheet, &figures, sizeof figures);
    put(sheet, c->description, c->description_bytes);
}

/* Messages that the topic keeps are not the channel's yet. */
static uint64_t channel_messages(const struct topic *t, const struct subscription *s) {
    uint64_t count = t->messages - s->joined, held = t->kept_messages + t->kept_delayed;
    return count > held ? count - held : 0;
}

static void put_channel(const struct worker *w, struct sheet *sheet, const struct subscription *s, bool consumers) {
    const struct topic *t = subscription_topic(w, s);
    struct channel_figures figures = {
        .name_bytes = s->name_bytes,
        .flags = (s->paused ? FIGURES_PAUSED : 0u) | (s->number ? 0u : FIGURES_EPHEMERAL) |
                 (s->blocked ? FIGURES_BLOCKED : 0u) | (s->admitted ? FIGURES_POLICY * (1u + s->policy) : 0u),
        .consumers = s->consumers,
        .consumers_listed = consumers ? s->consumers : 0,
        .depth = subscription_depth(w, s),
        .in_flight = s->inflight,
        .deferred = s->deferred,
        .messages = channel_messages(t, s),
        .requeues = s->requeues,
        .timeouts = s->timeouts,
        .read_back = s->read_back,
        .delivered = s->delivered,
        .finished = s->finished,
        .in_flight_parts = s->inflight_parts,
    };
    put(sheet, &figures, sizeof figures);
    put(sheet, s->name, s->name_bytes);
    for (uint32_t n = consumers ? s->consumer_first : 0; n; n = worker_consumer(w, n)->next)
        put_consumer(w, sheet, worker_consumer(w, n));
}

/* Messages that no subscription has been given yet. */
static uint64_t depth(const struct topic *t) {
    uint64_t kept = t->kept_messages + t->kept_delayed, jobs = t->tube ? topic_jobs(t) : 0;
    if (t->subscription_count) return kept;
    /* Messages kept beside a tube are, or were, jobs too. */
    return t->waiting_messages + t->waiting_delayed + (jobs > kept ? jobs : kept);
}

static void put_topic(const struct worker *w, struct sheet *sheet, const struct topic *t, bool consumers) {
    struct topic_figures figures = {
        .name_bytes = t->name_bytes,
        .flags = (t->stopped ? FIGURES_PAUSED : 0u) | (t->ephemeral ? FIGURES_EPHEMERAL : 0u) |
                 (t->durable ? FIGURES_DURABLE : 0u),
        .channels = t->subscription_count + t->reader_count,
        .shard = t->shard,
        .depth = depth(t),
        .messages = t->messages,
        .message_bytes = t->message_bytes,
        .jobs = topic_jobs(t),
        .read_back = t->read_back,
        .read_back_bytes = t->read_back_bytes,
        .reserves = t->reserves,
        .deletes = t->deletes,
        .reserved = t->reserved,
        .delayed = t->delayed.count,
        .buried = t->buried,
        .releases = t->releases,
        .timeouts = t->timeouts,
        .header_bytes = t->header_bytes,
        .more_parts = t->more_parts,
    };
    put(sheet, &figures, sizeof figures);
    put(sheet, t->name, t->name_bytes);
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        put_channel(w, sheet, worker_subscription(w, n), consumers);
}

/* What a request about all topics has gathered in earlier turns. */
static struct sheet *sheet_of(struct client *c) {
    if (!c->sheet) c->sheet = calloc(1, sizeof *c->sheet);
    return c->sheet;
}

void sheet_free(struct client *c) {
    if (c->sheet) free(c->sheet->bytes);
    free(c->sheet);
    c->sheet = NULL;
}

static enum outcome answer(struct worker *w, uint32_t client, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    const struct sheet *sheet = c->sheet;
    bool failed = !sheet || sheet->short_of_memory;
    struct message a = request_answer_of(w, client, m, failed ? STATUS_NO_SPACE : STATUS_OK);
    request_send(w, client, &a, failed ? NULL : sheet->bytes, failed ? 0 : sheet->count);
    sheet_free(c);
    c->done = 0;
    return DONE;
}

/* Gathers from all items of one kind, from where the last turn stopped. */
static enum outcome gather(struct worker *w, uint32_t client, const struct message *m, const struct arena *all,
                           uint32_t (*put_one)(const struct worker *, struct sheet *, uint32_t, bool)) {
    struct client *c = client_at(&w->clients, client);
    struct sheet *sheet = sheet_of(c);
    for (uint64_t most = w->steps + w->piece; sheet && c->done + 1 < all->end;) {
        if (w->steps >= most) return MORE;
        worker_step(w);
        w->steps += put_one(w, sheet, (uint32_t)++c->done, m->with_consumers != 0);
    }
    return answer(w, client, m);
}

/* Adds a topic. Returns how many channels it has, because each of them counts as a step too. */
static uint32_t put_listed(const struct worker *w, struct sheet *sheet, uint32_t topic, bool consumers) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!t->name || !topic_listed(t)) return 0;
    put_topic(w, sheet, t, consumers);
    return t->subscription_count + t->reader_count;
}

enum outcome catalog(struct worker *w, uint32_t client, const struct message *m) {
    if (!m->body_bytes) return gather(w, client, m, &w->topics.arena, put_listed);
    struct sheet *sheet = sheet_of(client_at(&w->clients, client));
    uint32_t topic = topics_find(&w->topics, (const char *)(m + 1), m->body_bytes);
    if (sheet && topic) w->steps += put_listed(w, sheet, topic, m->with_consumers != 0);
    return answer(w, client, m);
}

static uint32_t put_transaction(const struct worker *w, struct sheet *sheet, uint32_t transaction, bool consumers) {
    const struct transaction *of = worker_transaction(w, transaction);
    (void)consumers;
    if (!transaction_is_there(w, of)) return 0;
    const struct topic *t = topic_at(&w->topics, of->topic);
    struct transaction_figures figures = {.number = of->number,
                                          .items = of->count + of->acknowledged,
                                          .first_seq = of->count > 0 ? of->staged[0].seq : NO_PLACE,
                                          .incarnation = t->incarnation,
                                          .state = of->state,
                                          .name_bytes = t->name_bytes};
    put(sheet, &figures, sizeof figures);
    put(sheet, t->name, t->name_bytes);
    return 0;
}

enum outcome transactions_list(struct worker *w, uint32_t client, const struct message *m) {
    return gather(w, client, m, &w->transactions.arena, put_transaction);
}

void catalog_rings(struct worker *w, uint32_t client, const struct message *m) {
    struct ring_figures found[BOARD_MAX_ACCEPTORS];
    size_t count = 0;
    const struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) {
        struct channel_counters c = channel_counters(p->channel);
        found[count++] = (struct ring_figures){.acceptor = (uint32_t)(p - w->peers),
                                               .in_bytes = c.in_bytes,
                                               .in_room = c.in_room,
                                               .out_bytes = c.out_bytes,
                                               .out_room = c.out_room,
                                               .overflow_bytes = c.overflow_bytes,
                                               .overflow_peak_bytes = c.overflow_peak_bytes};
    }
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    request_send(w, client, &a, found, count * sizeof *found);
}

void catalog_begins(struct worker *w) {
    for (uint32_t n = 1; n < w->topics.arena.end; n++) {
        struct topic *t = topic_at(&w->topics, n);
        if (t->name) queue_note_listed(w, t);
        t->read_back = t->messages;
        t->read_back_bytes = t->message_bytes;
        for (uint32_t s = t->name ? t->subscriptions : 0; s; s = worker_subscription(w, s)->next) {
            struct subscription *of = worker_subscription(w, s);
            of->read_back = channel_messages(t, of);
            of->delivered = of->finished = 0;
        }
    }
}

/* Answers with some names; the acceptor asks again for the rest, so that neither side handles much at once. A topic
 * keeps its number as long as it exists. */
void catalog_list(struct worker *w, uint32_t client, const struct message *m) {
    char names[LIST_BYTES + TOPIC_NAME_BYTES];
    size_t bytes = 0;
    uint64_t at = m->id < w->topics.arena.end ? m->id : w->topics.arena.end;
    for (uint32_t left = w->piece; left && bytes < LIST_BYTES && at + 1 < w->topics.arena.end; left--) {
        const struct topic *t = topic_at(&w->topics, (uint32_t)++at);
        worker_step(w);
        if (!t->name || !topic_seen(t)) continue;
        memcpy(names + bytes, t->name, t->name_bytes);
        bytes += t->name_bytes;
        names[bytes++] = '\n';
    }
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    a.id = at + 1 < w->topics.arena.end ? at : 0;
    request_send(w, client, &a, names, bytes);
}

void catalog_heard(struct worker *w, uint32_t topic) {
    queue_note_listed(w, topic_at(&w->topics, topic));
    catalog_changed(w);
}
