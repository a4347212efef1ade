#include "shards/attach.h"

#include <stdlib.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/producers.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"

static struct attached *at(const struct worker *w, uint32_t attached) {
    return arena_at(&w->attachments.arena, attached);
}

bool attachments_open(struct attachments *all, uint32_t limit) {
    *all = (struct attachments){0};
    return arena_open(&all->arena, sizeof(struct attached), limit);
}

void attachments_close(struct attachments *all) {
    for (uint32_t n = 1; all->arena.base && n < all->arena.end; n++)
        free(((struct attached *)arena_at(&all->arena, n))->name);
    map_free(&all->by_name);
    arena_close(&all->arena);
}

/* --- who is there ------------------------------------------------------------------------------------------------- */

/* An ATTACH, parsed. */
struct wish {
    struct attach attach;
    const char *name;
    size_t name_bytes;
    uint64_t place;
};

static uint64_t place_of(const struct worker *w, uint32_t topic, const char *name, size_t bytes) {
    struct siphash_key key = w->topics.key;
    key.words[0] ^= topic;
    return siphash(key, name, bytes);
}

static bool is_whole(const struct message *m, struct wish *out) {
    if (m->body_bytes <= sizeof out->attach || m->body_bytes - sizeof out->attach > ATTACH_NAME_MAX) return false;
    memcpy(&out->attach, m + 1, sizeof out->attach);
    out->name = (const char *)(m + 1) + sizeof out->attach;
    out->name_bytes = m->body_bytes - sizeof out->attach;
    return out->attach.access <= ACCESS_FENCE;
}

static uint32_t numbered(struct worker *w, uint32_t client, uint32_t number) {
    uint32_t n = client_at(&w->clients, client)->producer;
    for (; n && at(w, n)->number != number; worker_walk(w, 1)) n = at(w, n)->next_of_client;
    return n;
}

/* An attached producer of the topic that is not waiting; 0: none. */
static uint32_t somebody(struct worker *w, const struct topic *t) {
    uint32_t n = t->exclusive ? t->exclusive : t->producers;
    for (; n && at(w, n)->waits; worker_walk(w, 1)) n = at(w, n)->next;
    return n;
}

static uint32_t first_waiting(struct worker *w, const struct topic *t) {
    uint32_t first = 0;
    for (uint32_t n = t->producers; n; n = at(w, n)->next, worker_walk(w, 1))
        if (at(w, n)->waits && (!first || at(w, n)->arrival < at(w, first)->arrival)) first = n;
    return first;
}

/* Why the producer cannot attach, or 0; `in_the_way` is the one that prevents it. */
static uint32_t refusal(struct worker *w, uint32_t topic, const struct wish *wish, uint32_t *in_the_way) {
    const struct topic *t = topic_at(&w->topics, topic);
    const struct attach *a = &wish->attach;
    uint32_t waiting = first_waiting(w, t), there = somebody(w, t);
    *in_the_way = map_find(&w->attachments.by_name, wish->place);
    if (*in_the_way) return ATTACH_NAME_TAKEN;
    *in_the_way = t->exclusive ? t->exclusive : waiting;
    if (a->access == ACCESS_SHARED && *in_the_way) return ATTACH_EXCLUDED;
    if (!*in_the_way) *in_the_way = there;
    if (a->access == ACCESS_EXCLUSIVE && *in_the_way) return t->exclusive || waiting ? ATTACH_EXCLUDED : ATTACH_OTHERS;
    bool waits = a->access == ACCESS_WAIT && *in_the_way;
    *in_the_way = 0;
    bool outdated =
        !waits && a->access != ACCESS_SHARED && a->least != NO_PLACE && t->epochs > 0 && a->least < t->epochs - 1;
    return outdated ? ATTACH_OUTDATED : 0;
}

/* --- coming and going --------------------------------------------------------------------------------------------- */

static void tell(struct worker *w, uint32_t attached, bool active) {
    const struct attached *a = at(w, attached);
    const struct client *c = client_at(&w->clients, a->client);
    uint64_t epochs = topic_at(&w->topics, a->topic)->epochs;
    struct message m = {.kind = MSG_ATTACHED, .conn = c->conn, .consumer = a->number, .active = active};
    if (active) m.id = epochs - 1;
    request_send(w, a->client, &m, NULL, 0);
}

static void leave(struct worker *w, uint32_t attached) {
    struct attached *a = at(w, attached);
    struct topic *t = topic_at(&w->topics, a->topic);
    uint32_t *link = &client_at(&w->clients, a->client)->producer;
    for (; *link != attached; worker_walk(w, 1)) link = &at(w, *link)->next_of_client;
    *link = a->next_of_client;
    *(a->previous ? &at(w, a->previous)->next : &t->producers) = a->next;
    if (a->next) at(w, a->next)->previous = a->previous;
    if (t->exclusive == attached) t->exclusive = 0;
    map_remove(&w->attachments.by_name, a->place);
    free(a->name);
    uint32_t topic = a->topic;
    bool was_seen = topic_seen(t);
    *a = (struct attached){0};
    arena_give(&w->attachments.arena, attached);
    t->open--;
    queue_settle(w, topic, was_seen);
}

/* If the log has no room for this, an epoch may be given a second time after a crash. */
static void become_exclusive(struct worker *w, uint32_t attached, bool may_log) {
    uint32_t topic = at(w, attached)->topic;
    struct topic *t = topic_at(&w->topics, topic);
    at(w, attached)->waits = false;
    t->exclusive = attached;
    t->fenced_before = at(w, attached)->arrival;
    t->epochs++;
    if (may_log) shard_log_topic(w, shard_of_topic(w, t), topic);
}

static void next_one(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t first = somebody(w, t) ? 0 : first_waiting(w, t);
    if (!first) return;
    bool may_log = shard_reserve(w, shard_of_topic(w, t), 2, shard_topic_bytes(t), false) == LOG_OK;
    become_exclusive(w, first, may_log);
    tell(w, first, true);
}

static void end(struct worker *w, uint32_t attached) {
    uint32_t topic = at(w, attached)->topic;
    /* The topic has to stay as long as a producer is to be told. */
    topic_at(&w->topics, topic)->open++;
    leave(w, attached);
    next_one(w, topic);
    bool was_seen = topic_seen(topic_at(&w->topics, topic));
    topic_at(&w->topics, topic)->open--;
    queue_settle(w, topic, was_seen);
}

bool producer_leave_client(struct worker *w, uint32_t client) {
    uint32_t attached = client_at(&w->clients, client)->producer;
    if (attached) end(w, attached);
    return attached != 0;
}

void attach_end(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t attached = numbered(w, client, m->producer_number);
    if (attached) end(w, attached);
    request_done(w, client, m, attached ? STATUS_OK : STATUS_NOT_FOUND);
}

static void throw_out(struct worker *w, uint32_t attached) {
    tell(w, attached, false);
    leave(w, attached);
}

/* Throws out whoever is attached to the topic, a piece a turn. False: there are more. The topic stays, as prepare() has
 * made it retain. */
static bool throw_all_out(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    t->open++;
    for (; t->producers && worker_spare(w); worker_step(w)) throw_out(w, t->producers);
    t->open--;
    return !t->producers;
}

/* Adds a producer; 0 when a limit is reached or memory is short. */
static uint32_t join(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                     const struct wish *wish) {
    struct topic *t = topic_at(&w->topics, topic);
    char *name = malloc(wish->name_bytes);
    uint32_t attached = name ? arena_take(&w->attachments.arena) : 0;
    if (!attached || !map_insert(&w->attachments.by_name, wish->place, attached)) {
        if (attached) arena_give(&w->attachments.arena, attached);
        free(name);
        return 0;
    }
    memcpy(name, wish->name, wish->name_bytes);
    *at(w, attached) = (struct attached){.client = client,
                                         .number = m->producer_number,
                                         .next_of_client = client_at(&w->clients, client)->producer,
                                         .topic = topic,
                                         .next = t->producers,
                                         .access = (uint8_t)wish->attach.access,
                                         .arrival = ++w->attachments.arrivals,
                                         .place = wish->place,
                                         .name_bytes = wish->name_bytes,
                                         .name = name};
    client_at(&w->clients, client)->producer = attached;
    if (t->producers) at(w, t->producers)->previous = attached;
    t->producers = attached;
    t->open++;
    return attached;
}

/* --- ATTACH ------------------------------------------------------------------------------------------------------- */

/* A producer's key: unique and permanent, because no two topics have the same incarnation. */
static uint64_t key_of(const struct topic *t, const struct wish *wish) {
    return siphash((struct siphash_key){{t->incarnation, 0}}, wish->name, wish->name_bytes);
}

/* `attached`: the producer; 0: it could not attach. */
static void answer(struct worker *w, uint32_t client, const struct message *m, uint8_t status, const struct topic *t,
                   const struct wish *wish, uint32_t attached) {
    struct message a = request_answer_of(w, client, m, status);
    if (attached) {
        a.id = key_of(t, wish);
        const struct producer_part *last = producers_last(&shard_of_topic(w, t)->named_producers, a.id, w->wall_ns);
        a.seq = last ? last->batch : NO_PLACE;
        a.epoch = (uint32_t)(t->epochs - 1);
        a.arrival = at(w, attached)->arrival;
    }
    request_send(w, client, &a, NULL, 0);
}

/* Refuses an ATTACH, naming the producer in the way and the last epoch. */
static void refuse(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, uint32_t why,
                   uint32_t in_the_way) {
    struct message a = request_answer_of(w, client, m, STATUS_FULL);
    const struct attached *other = in_the_way ? at(w, in_the_way) : NULL;
    const struct client *c = client_at(&w->clients, other ? other->client : client);
    a.id = (uint64_t)c->acceptor << 32 | c->conn;
    a.refusal = why;
    a.seq = topic_at(&w->topics, topic)->epochs - 1;
    request_send(w, client, &a, other ? other->name : NULL, other ? other->name_bytes : 0);
}

/* Makes the topic retain, and reserves room to log another epoch. */
static enum outcome prepare(struct worker *w, uint32_t topic, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    *status = STATUS_TERMINATED;
    if (t->terminated) return DONE;
    enum outcome outcome = topic_retain(w, topic, status);
    if (outcome != DONE || *status != STATUS_OK) return outcome;
    return room_reserve(w, shard_of_topic(w, t), 2, shard_topic_bytes(t), true, status);
}

enum outcome attach(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct wish wish;
    uint8_t status = STATUS_INVALID;
    uint32_t in_the_way = 0, attached = 0;
    if (!topic) status = STATUS_TOO_MANY;
    if (!topic || !is_whole(m, &wish) || numbered(w, client, m->producer_number)) {
        request_done(w, client, m, status);
        return DONE;
    }
    enum outcome outcome = prepare(w, topic, &status);
    if (outcome != DONE) return outcome;
    wish.place = place_of(w, topic, wish.name, wish.name_bytes);
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t why = status == STATUS_OK ? refusal(w, topic, &wish, &in_the_way) : 0;
    if (why && in_the_way && client_at(&w->clients, at(w, in_the_way)->client)->acceptor == NOBODY) return MORE;
    if (why) {
        refuse(w, client, topic, m, why, in_the_way);
        return DONE;
    }
    if (status == STATUS_OK && wish.attach.access == ACCESS_FENCE && !throw_all_out(w, topic)) return MORE;
    if (status == STATUS_OK && !(attached = join(w, client, topic, m, &wish))) status = STATUS_NO_SPACE;
    if (status == STATUS_OK && wish.attach.access == ACCESS_WAIT) {
        at(w, attached)->waits = true;
        if (somebody(w, t) || first_waiting(w, t) != attached) status = STATUS_NONE;
    }
    if (status == STATUS_OK && wish.attach.access != ACCESS_SHARED) become_exclusive(w, attached, true);
    answer(w, client, m, status, t, &wish, attached);
    return DONE;
}
