/* Carries out requests to the job queue of a topic: jobs are reserved, released, deleted, buried, kicked, peeked at. */
#include "shards/tube.h"

#include "shards/answers.h"
#include "shards/give_up.h"
#include "shards/handover_state.h"
#include "shards/queue.h"
#include "shards/ready.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/topic_life.h"
#include "shards/unreadable.h"

/* Notes whether the client wants headers. It has one such request at a time: the next is handled after the reply. */
static void note_wish(struct worker *w, uint32_t client, const struct message *m) {
    client_at(&w->clients, client)->wants_headers = (m->flags & MSG_HEADERS) != 0;
}

/* Wants the tubes that a client watches. True while messages of one become jobs piece by piece. */
static bool want_watched(struct worker *w, uint32_t client) {
    bool more = false;
    worker_walk(w, 2 * (uint64_t)client_at(&w->clients, client)->watch_count); /* and what it waits for */
    for (uint32_t n = client_at(&w->clients, client)->watches; n; n = watch_at(&w->clients, n)->next) {
        uint32_t topic = watch_topic(watch_at(&w->clients, n));
        more |= topic_want_tube(w, topic) != DONE;
        more |= handover_goes_on(topic_at(&w->topics, topic));
    }
    return more;
}

/* As job_readable. READ_MORE also while it may not be sent. */
static enum readable deliverable(struct worker *w, uint32_t client, uint32_t job) {
    enum readable readable = job_readable(w, job);
    if (readable != READ_WHOLE) return readable;
    return request_may_send(w, client, record_body_bytes(job_record(w, job_at(w, job)))) ? READ_WHOLE : READ_MORE;
}

/* The most urgent job that a client may take, or 0; *more: the search goes on in the next turn. */
static uint32_t best_readable(struct worker *w, uint32_t client, bool *more) {
    uint32_t job;
    while ((job = queue_best(w, client)) && !unreadable_enough(w)) {
        enum readable readable = deliverable(w, client, job);
        if (readable == READ_WHOLE) return job;
        if (readable == READ_MORE) break;
    }
    *more |= job != 0;
    return 0;
}

/* Gives a job to the client that has asked for one. */
static void give(struct worker *w, uint32_t client, const struct message *m, uint32_t job) {
    queue_take(w, job);
    queue_make_reserved(w, job, client);
    request_deliver(w, client, m->slot, m->kind, job);
}

enum outcome tube_reserve(struct worker *w, uint32_t client, const struct message *m) {
    note_wish(w, client, m);
    bool more = want_watched(w, client), soon = queue_deadline_soon(w, client);
    uint32_t job = best_readable(w, client, &more);
    if (soon && !queue_any_ready(w, client)) {
        request_done(w, client, m, STATUS_DEADLINE_SOON);
    } else if (job) {
        give(w, client, m, job);
    } else if (more) {
        return MORE;
    } else if (m->wait_ns == 0) {
        request_done(w, client, m, soon ? STATUS_DEADLINE_SOON : STATUS_TIMED_OUT);
    } else {
        queue_wait(w, client, m->slot, m->wait_ns);
    }
    return DONE;
}

enum outcome tube_probe(struct worker *w, uint32_t client, const struct message *m) {
    bool more = want_watched(w, client);
    uint32_t job = best_readable(w, client, &more);
    if (!job && more) return MORE;
    uint8_t status = STATUS_OK;
    if (!job) status = queue_deadline_soon(w, client) ? STATUS_DEADLINE_SOON : STATUS_NONE;
    struct message a = request_answer_of(w, client, m, status);
    if (job) {
        a.id = job_at(w, job)->id;
        a.pri = job_at(w, job)->pri;
    }
    request_send(w, client, &a, NULL, 0);
    return DONE;
}

enum outcome tube_take(struct worker *w, uint32_t client, const struct message *m) {
    bool more = false;
    note_wish(w, client, m);
    uint32_t job = best_readable(w, client, &more);
    if (!job && more) return MORE;
    const struct job *j = job ? job_at(w, job) : NULL;
    if (!j || j->pri > m->pri || (j->pri == m->pri && j->id > m->id)) {
        request_done(w, client, m, STATUS_NONE);
        return DONE;
    }
    give(w, client, m, job);
    return DONE;
}

enum outcome tube_reserve_id(struct worker *w, uint32_t client, const struct message *m) {
    note_wish(w, client, m);
    uint32_t job = job_named(w, m->id);
    bool free = job && job_at(w, job)->state != JOB_RESERVED;
    enum readable readable = free ? deliverable(w, client, job) : READ_FAILS;
    if (readable == READ_MORE) return MORE;
    if (readable == READ_FAILS) {
        request_done(w, client, m, STATUS_NOT_FOUND);
        return DONE;
    }
    give(w, client, m, job);
    return DONE;
}

static bool held_by(const struct worker *w, uint32_t job, uint32_t client) {
    return job && job_at(w, job)->state == JOB_RESERVED &&
           reservation_at(w, job_at(w, job)->reservation)->client == client;
}

void tube_give_back(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    if (!held_by(w, job, client)) return;
    uint32_t topic = job_at(w, job)->topic;
    reservation_at(w, job_at(w, job)->reservation)->reserves--;
    queue_take(w, job);
    queue_make_ready(w, job);
    queue_serve(w, topic);
}

/* A job reserved by another client cannot be deleted. A client restricted to MSG_ONLY_CONSUMED can only delete jobs in
 * tubes it watches. */
static bool may_delete(struct worker *w, uint32_t job, uint32_t client, const struct message *m) {
    if (job_at(w, job)->state == JOB_RESERVED) return held_by(w, job, client);
    if ((m->flags & MSG_ONLY_CONSUMED) == 0) return true;
    return client_watch(&w->clients, client, job_at(w, job)->topic) != 0;
}

enum outcome tube_delete(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    if (!job || !may_delete(w, job, client, m)) {
        request_done(w, client, m, STATUS_NOT_FOUND);
        return DONE;
    }
    struct job *j = job_at(w, job);
    struct shard *s = shard_of_job(w, j);
    uint32_t topic = j->topic;
    uint8_t status;
    if (room_reserve(w, s, 1, 0, false, &status) == LATER) return LATER;
    if (status == STATUS_OK) {
        uint64_t seq = job_seq(w, j);
        shard_log_delete(w, s, j, seq);
        topic_at(&w->topics, topic)->deletes++;
        job_done(w, job, seq);
    }
    request_done(w, client, m, status);
    if (status == STATUS_OK) queue_settle(w, topic, true);
    return DONE;
}

/* RELEASE, BURY, KICK_ID and each job of a KICK: the new state is decided, then written, then entered. */
static enum outcome reserve_state(struct worker *w, uint32_t job, uint8_t *status) {
    return room_reserve(w, shard_of_job(w, job_at(w, job)), 1, sizeof(struct state_attributes), false, status);
}

static void make(struct worker *w, uint32_t job, uint8_t state, uint64_t delay_ns) {
    struct job *j = job_at(w, job);
    if (state == JOB_BURIED)
        queue_make_buried(w, job);
    else if (delay_ns)
        queue_make_delayed(w, job, delay_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + delay_ns);
    else
        queue_make_ready(w, job);
    shard_log_state(w, shard_of_job(w, j), j);
}

enum outcome tube_release(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    uint8_t status = STATUS_NOT_FOUND;
    bool held = held_by(w, job, client);
    if (held && reserve_state(w, job, &status) == LATER) return LATER;
    if (held && status == STATUS_OK) {
        struct job *j = job_at(w, job);
        queue_take(w, job);
        j->pri = m->pri;
        reservation_at(w, j->reservation)->delay_ns = m->delay_ns;
        reservation_at(w, j->reservation)->releases++;
        topic_at(&w->topics, j->topic)->releases++;
        make(w, job, JOB_READY, m->delay_ns);
    } else if (status == STATUS_FAILED) {
        status = STATUS_NO_SPACE;
    }
    request_done(w, client, m, status);
    if (held && status == STATUS_OK && !m->delay_ns) queue_serve(w, job_at(w, job)->topic);
    return DONE;
}

enum outcome tube_bury(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    uint8_t status = STATUS_NOT_FOUND;
    if (held_by(w, job, client)) {
        if (reserve_state(w, job, &status) == LATER) return LATER;
        if (status == STATUS_OK) {
            queue_take(w, job);
            job_at(w, job)->pri = m->pri;
            reservation_at(w, job_at(w, job)->reservation)->buries++;
            make(w, job, JOB_BURIED, 0);
        }
    }
    request_done(w, client, m, status);
    return DONE;
}

void tube_touch(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    bool held = held_by(w, job, client);
    /* If its time to run cannot be read any more, the deadline stays. */
    if (held && job_head(w, job_at(w, job))) queue_touch(w, job);
    request_done(w, client, m, held ? STATUS_OK : STATUS_NOT_FOUND);
}

static void kick_one(struct worker *w, uint32_t job) {
    queue_reservation(w, job)->kicks++;
    queue_take(w, job);
    make(w, job, JOB_READY, 0);
    queue_serve(w, job_at(w, job)->topic);
}

enum outcome tube_kick_id(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    uint8_t status = STATUS_NOT_FOUND;
    if (job && (job_at(w, job)->state == JOB_BURIED || job_at(w, job)->state == JOB_DELAYED)) {
        if (reserve_state(w, job, &status) == LATER) return LATER;
        if (status == STATUS_OK)
            kick_one(w, job);
        else
            status = STATUS_NO_SPACE;
    }
    request_done(w, client, m, status);
    return DONE;
}

static uint32_t kickable(const struct topic *t, uint8_t state) {
    if (state == JOB_BURIED) return t->buried_first;
    return t->delayed.count ? heap_item(*heap_top(&t->delayed)) : 0;
}

/* Most jobs kicked in a turn: buried ones, or delayed ones if there was none buried when the request began. */
enum { KICK_IN_TURN = 1024 };
#define KICKS_DELAYED ((uint64_t)1 << 63)

enum outcome tube_kick(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    const struct topic *t = topic ? topic_at(&w->topics, topic) : NULL;
    if (t && !c->done && !t->buried_first) c->done = KICKS_DELAYED;
    uint8_t state = c->done & KICKS_DELAYED ? JOB_DELAYED : JOB_BURIED, status = STATUS_OK;
    uint64_t kicked = c->done & ~KICKS_DELAYED, wanted = 0;
    if (t && kicked < m->most && kickable(t, state)) {
        uint64_t there = state == JOB_BURIED ? t->buried : t->delayed.count;
        wanted = m->most - kicked < there ? m->most - kicked : there;
        if (wanted > KICK_IN_TURN) wanted = KICK_IN_TURN;
        uint64_t bytes = wanted * sizeof(struct state_attributes);
        if (room_reserve(w, shard_of_topic(w, t), (uint32_t)wanted, bytes, false, &status) == LATER) return LATER;
    }
    /* Without room in the log the rest stay as they are; the answer says how many were kicked. */
    for (; wanted && status == STATUS_OK; wanted--, kicked++, c->done++) kick_one(w, kickable(t, state));
    if (t && status == STATUS_OK && kicked < m->most && kickable(t, state)) return MORE;
    c->done = 0;
    request_answer(w, client, m->slot, m->kind, STATUS_OK, kicked);
    return DONE;
}

static enum outcome peek(struct worker *w, uint32_t client, uint32_t job, const struct message *m) {
    note_wish(w, client, m);
    enum readable readable = job ? deliverable(w, client, job) : READ_FAILS;
    if (readable == READ_MORE) return MORE;
    if (readable == READ_WHOLE)
        request_deliver(w, client, m->slot, m->kind, job);
    else
        request_done(w, client, m, STATUS_NOT_FOUND);
    return DONE;
}

static uint32_t peeked(const struct worker *w, uint32_t topic, uint8_t kind) {
    if (!topic) return 0;
    const struct topic *t = topic_at(&w->topics, topic);
    struct heap_entry first;
    if (kind == MSG_PEEK_READY) return ready_first(&t->ready, &w->jobs, &first) ? heap_item(first) : 0;
    return kickable(t, kind == MSG_PEEK_BURIED ? JOB_BURIED : JOB_DELAYED);
}

enum outcome tube_peek_id(struct worker *w, uint32_t client, const struct message *m) {
    return peek(w, client, job_named(w, m->id), m);
}

enum outcome tube_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    return peek(w, client, peeked(w, topic, m->kind), m);
}
