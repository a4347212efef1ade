/* What each message of the shard protocol asks for: those of the job queue here, those of subscriptions in consume.c, figures in
 * stats.c and catalog.c. */
#include "shards/requests.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/queue.h"

/* --- answers ------------------------------------------------------------------------------------------------------ */

static struct message answer_of(const struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status) {
    const struct client *c = client_at(&w->clients, client);
    return (struct message){.kind = kind,
                            .status = status,
                            .flags = (uint16_t)(c->inflight ? 0 : MSG_NONE_IN_FLIGHT),
                            .conn = c->conn,
                            .slot = slot};
}

static void send_answer(struct worker *w, uint32_t client, struct message *m, const void *body, size_t body_bytes) {
    struct channel *channel = w->peers[client_at(&w->clients, client)->acceptor].channel;
    if (!channel) return;
    m->body_bytes = (uint32_t)body_bytes;
    struct message *place = channel_reserve(channel, body_bytes);
    if (!place) {
        channel_send(channel, m, body, body_bytes);
        return;
    }
    *place = *m;
    if (body_bytes) memcpy(place + 1, body, body_bytes);
    channel_sent(channel);
}

void request_answer(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status, uint64_t id) {
    struct message m = answer_of(w, client, slot, kind, status);
    m.id = id;
    send_answer(w, client, &m, NULL, 0);
}

/* A message that is in another, with which one of those it is. */
static void send_packed(struct worker *w, uint32_t client, struct message *m, const struct record *r, uint32_t first) {
    const struct packed_run run = {.id = r->id, .first = first, .count = 1};
    struct channel *channel = w->peers[client_at(&w->clients, client)->acceptor].channel;
    if (!channel) return;
    const size_t body_bytes = sizeof run + record_body_bytes(r);
    m->flags |= MSG_PACKED | MSG_HEADERS;
    m->body_bytes = (uint32_t)body_bytes;
    struct message *place = channel_reserve(channel, body_bytes);
    uint8_t *large = place ? NULL : malloc(body_bytes);
    if (!place && !large) worker_die("out of memory");
    uint8_t *body = place ? (uint8_t *)(place + 1) : large;
    memcpy(body, &run, sizeof run);
    memcpy(body + sizeof run, record_body(r), record_body_bytes(r));
    if (place) {
        *place = *m;
        channel_sent(channel);
    } else {
        channel_send(channel, m, large, body_bytes);
        free(large);
    }
}

void request_deliver(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint32_t job) {
    const struct job *j = job_at(w, job);
    const struct record *r = job_record(w, j);
    struct message m = answer_of(w, client, slot, kind, STATUS_OK);
    size_t headers_bytes = message_headers_bytes(r);
    bool wants_headers = client_at(&w->clients, client)->wants_headers;
    size_t skipped = wants_headers ? 0 : headers_bytes;
    m.id = j->id;
    m.pri = j->pri;
    if (!wants_headers && message_packed(r)) {
        send_packed(w, client, &m, r, j->part ? (uint32_t)((j->id - r->id) / w->shards) - 1 : 0);
        return;
    }
    if (headers_bytes > skipped) m.flags |= MSG_HEADERS;
    send_answer(w, client, &m, (const uint8_t *)record_body(r) + skipped, record_body_bytes(r) - skipped);
}

static void answer(struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    request_answer(w, client, m->slot, m->kind, status, m->id);
}

struct message request_answer_of(const struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    return answer_of(w, client, m->slot, m->kind, status);
}

void request_send(struct worker *w, uint32_t client, struct message *a, const void *body, size_t body_bytes) {
    send_answer(w, client, a, body, body_bytes);
}

void request_done(struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    answer(w, client, m, status);
}

/* --- topics ------------------------------------------------------------------------------------------------------- */

static uint32_t resolve(const struct worker *w, uint32_t acceptor, const struct message *m) {
    const struct peer *p = &w->peers[acceptor];
    return m->topic < p->topics_capacity ? p->topics[m->topic].topic : 0;
}

static void hold_topic(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    t->held++;
    queue_settle(w, topic, was_seen);
}

static void let_go_topic(struct worker *w, uint32_t topic) {
    topic_at(&w->topics, topic)->held--;
    queue_settle(w, topic, true);
}

/* The number of an acceptor's stands for nothing any more. */
void requests_close_topic(struct worker *w, struct opened *opened) {
    uint32_t topic = opened->topic;
    bool listed = opened->listed;
    *opened = (struct opened){0};
    if (!topic) return;
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    t->open--;
    if (listed) t->held--;
    queue_settle(w, topic, was_seen);
}

static void open_topic(struct worker *w, uint32_t acceptor, const struct message *m) {
    struct peer *p = &w->peers[acceptor];
    uint32_t shard = (uint32_t)m->shard;
    if (!m->topic || m->topic >= WORKER_MAX_OPEN_TOPICS || !m->body_bytes || m->body_bytes > TOPIC_NAME_MAX) return;
    if (m->shard >= w->shards || !w->own[shard]) return;
    if (m->topic >= p->topics_capacity) {
        uint32_t capacity = p->topics_capacity ? p->topics_capacity : 64;
        while (capacity <= m->topic) capacity *= 2;
        struct opened *topics = realloc(p->topics, sizeof *topics * capacity);
        if (!topics) return;
        memset(topics + p->topics_capacity, 0, sizeof *topics * (capacity - p->topics_capacity));
        p->topics = topics;
        p->topics_capacity = capacity;
    }
    struct opened *opened = &p->topics[m->topic];
    requests_close_topic(w, opened);
    const char *name = (const char *)(m + 1);
    uint32_t topic = topics_find(&w->topics, name, m->body_bytes);
    if (!topic) topic = topics_add(&w->topics, name, m->body_bytes, shard, w->own[shard]->floor);
    if (!topic) return;
    *opened = (struct opened){topic, (m->flags & MSG_LISTED) != 0};
    topic_at(&w->topics, topic)->open++;
    shard_settle_topic(w, topic);
    if (opened->listed) hold_topic(w, topic);
}

static void close_topic(struct worker *w, uint32_t acceptor, const struct message *m) {
    const struct peer *p = &w->peers[acceptor];
    if (m->topic < p->topics_capacity) requests_close_topic(w, &p->topics[m->topic]);
}

/* A client holds open what it uses and watches: its acceptor may close the number before the client hears of it. */
static void use(struct worker *w, uint32_t client, uint32_t topic, bool asked_for) {
    if (topic && asked_for) topic_want_tube(w, topic);
    struct client *c = client_at(&w->clients, client);
    uint32_t before = c->used;
    c->used = topic;
    if (topic) {
        topic_at(&w->topics, topic)->using++;
        hold_topic(w, topic);
    }
    if (before) {
        topic_at(&w->topics, before)->using--;
        let_go_topic(w, before);
    }
}

static void watch(struct worker *w, uint32_t client, uint32_t topic, bool asked_for) {
    if (topic && asked_for) topic_want_tube(w, topic);
    if (!topic || client_watch(&w->clients, client, topic)) return;
    if (!client_add_watch(&w->clients, client, topic)) return;
    topic_at(&w->topics, topic)->watching++;
    hold_topic(w, topic);
}

static void ignore(struct worker *w, uint32_t client, uint32_t topic) {
    if (!topic || !client_watch(&w->clients, client, topic)) return;
    client_remove_watch(&w->clients, client, topic);
    topic_at(&w->topics, topic)->watching--;
    let_go_topic(w, topic);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static enum outcome reserved(struct worker *w, struct shard *s, enum log_result result, bool publish, uint8_t *status) {
    *status = STATUS_OK;
    if (result == LOG_OK) return DONE;
    if (result == LOG_NO_SPACE && log_wants_segment(s->log) && !s->refused) {
        w->wanting = s;
        return LATER;
    }
    w->no_space = true;
    *status = publish ? STATUS_NO_SPACE : STATUS_FAILED;
    return DONE;
}

enum outcome requests_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish,
                              uint8_t *status) {
    return reserved(w, s, shard_reserve(w, s, records, bytes, publish), publish, status);
}

enum outcome requests_reserve_named(struct worker *w, uint32_t topic, uint32_t records, uint64_t bytes,
                                    uint8_t *status) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    return reserved(w, s, shard_reserve_named(w, s, topic, records, bytes), true, status);
}

/* A reply with a message, or a waiting reserve's, comes before the next request is looked at. */
static void note_wish(struct worker *w, uint32_t client, const struct message *m) {
    client_at(&w->clients, client)->wants_headers = (m->flags & MSG_HEADERS) != 0;
}

/* True while some of that becomes jobs piece by piece. */
static bool want_watched(struct worker *w, uint32_t client) {
    bool more = false;
    for (uint32_t n = client_at(&w->clients, client)->watches; n; n = watch_at(&w->clients, n)->next) {
        topic_want_tube(w, watch_at(&w->clients, n)->topic);
        more |= handover_goes_on(topic_at(&w->topics, watch_at(&w->clients, n)->topic));
    }
    return more;
}

static enum outcome reserve(struct worker *w, uint32_t client, const struct message *m) {
    note_wish(w, client, m);
    bool more = want_watched(w, client), soon = queue_deadline_soon(w, client);
    uint32_t job = queue_best(w, client);
    if (soon && !queue_any_ready(w, client)) {
        answer(w, client, m, STATUS_DEADLINE_SOON);
    } else if (job) {
        queue_take(w, job);
        queue_make_reserved(w, job, client);
        request_deliver(w, client, m->slot, m->kind, job);
    } else if (more) {
        return MORE;
    } else if (m->wait_ns == 0) {
        answer(w, client, m, soon ? STATUS_DEADLINE_SOON : STATUS_TIMED_OUT);
    } else {
        queue_wait(w, client, m->slot, m->wait_ns);
    }
    return DONE;
}

static enum outcome probe(struct worker *w, uint32_t client, const struct message *m) {
    bool more = want_watched(w, client);
    uint32_t job = queue_best(w, client);
    if (!job && more) return MORE;
    uint8_t status = STATUS_OK;
    if (!job) status = queue_deadline_soon(w, client) ? STATUS_DEADLINE_SOON : STATUS_NONE;
    struct message a = answer_of(w, client, m->slot, m->kind, status);
    if (job) {
        a.id = job_at(w, job)->id;
        a.pri = job_at(w, job)->pri;
    }
    send_answer(w, client, &a, NULL, 0);
    return DONE;
}

static void take(struct worker *w, uint32_t client, const struct message *m) {
    note_wish(w, client, m);
    uint32_t job = queue_best(w, client);
    const struct job *j = job ? job_at(w, job) : NULL;
    if (!j || j->pri > m->pri || (j->pri == m->pri && j->id > m->id)) {
        answer(w, client, m, STATUS_NONE);
        return;
    }
    queue_take(w, job);
    queue_make_reserved(w, job, client);
    request_deliver(w, client, m->slot, m->kind, job);
}

static void reserve_id(struct worker *w, uint32_t client, const struct message *m) {
    note_wish(w, client, m);
    uint32_t job = job_named(w, m->id);
    if (!job || job_at(w, job)->state == JOB_RESERVED) {
        answer(w, client, m, STATUS_NOT_FOUND);
        return;
    }
    queue_take(w, job);
    queue_make_reserved(w, job, client);
    request_deliver(w, client, m->slot, m->kind, job);
}

static bool held_by(const struct worker *w, uint32_t job, uint32_t client) {
    return job && job_at(w, job)->state == JOB_RESERVED &&
           reservation_at(w, job_at(w, job)->reservation)->client == client;
}

static void give_back(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    if (!held_by(w, job, client)) return;
    uint32_t topic = job_at(w, job)->topic;
    reservation_at(w, job_at(w, job)->reservation)->reserves--;
    queue_take(w, job);
    queue_make_ready(w, job);
    queue_serve(w, topic);
}

static enum outcome delete(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    bool others = job && job_at(w, job)->state != JOB_RESERVED && (m->flags & MSG_ONLY_OWN) != 0;
    if (!job || others || (job_at(w, job)->state == JOB_RESERVED && !held_by(w, job, client))) {
        answer(w, client, m, STATUS_NOT_FOUND);
        return DONE;
    }
    struct job *j = job_at(w, job);
    struct shard *s = shard_of_job(w, j);
    uint32_t topic = j->topic;
    uint8_t status;
    if (requests_reserve(w, s, 1, 0, false, &status) == LATER) return LATER;
    if (status == STATUS_OK) {
        uint64_t seq = job_record(w, j)->seq;
        shard_log_delete(w, s, j);
        topic_at(&w->topics, topic)->deletes++;
        job_done(w, job, seq);
    }
    answer(w, client, m, status);
    if (status == STATUS_OK) queue_settle(w, topic, true);
    return DONE;
}

/* RELEASE, BURY, KICK_ID and each job of a KICK: the new state is decided, then written, then entered. */
static enum outcome reserve_state(struct worker *w, uint32_t job, uint8_t *status) {
    return requests_reserve(w, shard_of_job(w, job_at(w, job)), 1, sizeof(struct state_attributes), false, status);
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

static enum outcome release(struct worker *w, uint32_t client, const struct message *m) {
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
        make(w, job, JOB_READY, m->delay_ns);
    } else if (status == STATUS_FAILED) {
        status = STATUS_NO_SPACE;
    }
    answer(w, client, m, status);
    if (held && status == STATUS_OK && !m->delay_ns) queue_serve(w, job_at(w, job)->topic);
    return DONE;
}

static enum outcome bury(struct worker *w, uint32_t client, const struct message *m) {
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
    answer(w, client, m, status);
    return DONE;
}

static void touch(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    bool held = held_by(w, job, client);
    if (held) queue_touch(w, job);
    answer(w, client, m, held ? STATUS_OK : STATUS_NOT_FOUND);
}

static void kick_one(struct worker *w, uint32_t job) {
    queue_reservation(w, job)->kicks++;
    queue_take(w, job);
    make(w, job, JOB_READY, 0);
    queue_serve(w, job_at(w, job)->topic);
}

static enum outcome kick_id(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    uint8_t status = STATUS_NOT_FOUND;
    if (job && (job_at(w, job)->state == JOB_BURIED || job_at(w, job)->state == JOB_DELAYED)) {
        if (reserve_state(w, job, &status) == LATER) return LATER;
        if (status == STATUS_OK)
            kick_one(w, job);
        else
            status = STATUS_NO_SPACE;
    }
    answer(w, client, m, status);
    return DONE;
}

static uint32_t kickable(const struct topic *t, uint8_t state) {
    if (state == JOB_BURIED) return t->buried_first;
    return t->delayed.count ? heap_item(*heap_top(&t->delayed)) : 0;
}

/* Of those of one kind, as it was when the request was begun. */
enum { KICK_IN_TURN = 1024 };
#define KICKS_DELAYED ((uint64_t)1 << 63)

static enum outcome kick(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
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
        if (requests_reserve(w, shard_of_topic(w, t), (uint32_t)wanted, bytes, false, &status) == LATER) return LATER;
    }
    /* Without room the rest stay as they are; the answer says how many do not. */
    for (; wanted && status == STATUS_OK; wanted--, kicked++, c->done++) kick_one(w, kickable(t, state));
    if (t && status == STATUS_OK && kicked < m->most && kickable(t, state)) return MORE;
    c->done = 0;
    request_answer(w, client, m->slot, m->kind, STATUS_OK, kicked);
    return DONE;
}

static void peek(struct worker *w, uint32_t client, uint32_t job, const struct message *m) {
    note_wish(w, client, m);
    if (job)
        request_deliver(w, client, m->slot, m->kind, job);
    else
        answer(w, client, m, STATUS_NOT_FOUND);
}

static uint32_t peeked(const struct worker *w, uint32_t topic, uint8_t kind) {
    if (!topic) return 0;
    const struct topic *t = topic_at(&w->topics, topic);
    struct heap_entry first;
    if (kind == MSG_PEEK_READY) return ready_first(&t->ready, &w->jobs, &first) ? heap_item(first) : 0;
    return kickable(t, kind == MSG_PEEK_BURIED ? JOB_BURIED : JOB_DELAYED);
}

/* --- dispatch ----------------------------------------------------------------------------------------------------- */

/* `topic`: the worker's own number. */
static enum outcome execute(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    switch (m->kind) {
    case MSG_USE: use(w, client, topic, !(m->flags & MSG_IMPLICIT)); break;
    case MSG_WATCH: watch(w, client, topic, !(m->flags & MSG_IMPLICIT)); break;
    case MSG_IGNORE: ignore(w, client, topic); break;
    case MSG_RETURN: give_back(w, client, m); break;
    case MSG_PUBLISH: return publish(w, client, topic, m);
    case MSG_RESERVE: return reserve(w, client, m);
    case MSG_PROBE: return probe(w, client, m);
    case MSG_TAKE: take(w, client, m); break;
    case MSG_RESERVE_ID: reserve_id(w, client, m); break;
    case MSG_DELETE: return delete(w, client, m);
    case MSG_RELEASE: return release(w, client, m);
    case MSG_BURY: return bury(w, client, m);
    case MSG_TOUCH: touch(w, client, m); break;
    case MSG_PEEK_ID: peek(w, client, job_named(w, m->id), m); break;
    case MSG_PEEK_READY:
    case MSG_PEEK_DELAYED:
    case MSG_PEEK_BURIED: peek(w, client, peeked(w, topic, m->kind), m); break;
    case MSG_KICK: return kick(w, client, topic, m);
    case MSG_KICK_ID: return kick_id(w, client, m);
    case MSG_PAUSE: tube_pause(w, client, m); break;
    case MSG_STATS_ID: stats_id(w, client, m); break;
    case MSG_STATS_TOPIC: stats_topic(w, client, m); break;
    case MSG_LIST: return list(w, client, m);
    case MSG_PUBLISH_MANY: return publish_many(w, client, topic, m);
    case MSG_SUBSCRIBE: return subscribe(w, client, topic, m);
    case MSG_UNSUBSCRIBE: consumer_close(w, client, m); break;
    case MSG_ATTACH: return attach(w, client, topic, m);
    case MSG_DETACH: detach(w, client, m); break;
    case MSG_SEEK: return seek(w, client, topic, m);
    case MSG_POSITION: return tell_position(w, client, topic, m);
    case MSG_PEEK_SEQ: peek_seq(w, client, topic, m); break;
    case MSG_SCAN: scan(w, client, topic, m); break;
    case MSG_COMPACT: return compact(w, client, topic, m);
    case MSG_TXN_ACK: return transaction_acknowledge(w, client, topic, m);
    case MSG_TXN_END: return transaction_end(w, client, topic, m);
    case MSG_TXN_LIST: return transactions_list(w, client, m);
    case MSG_CHANGE: return change(w, client, m);
    case MSG_CATALOG: return catalog(w, client, m);
    case MSG_BARRIER: answer(w, client, m, STATUS_OK); break;
    case MSG_CREDIT: consumer_credit(w, client, m); break;
    case MSG_SENT: consumer_sent(w, client, m); break;
    case MSG_FINISH: return consumer_finish(w, client, m);
    case MSG_REQUEUE: return consumer_requeue(w, client, m);
    case MSG_EXTEND: consumer_extend(w, client, m); break;
    default:
        /* Of a later version, if it is a request at all. */
        if (m->kind >= MSG_PUBLISH && m->kind < MSG_DELIVER) answer(w, client, m, STATUS_INVALID);
    }
    return DONE;
}

static void park(struct worker *w, uint32_t acceptor, uint32_t client, const struct message *m) {
    struct parked *parked = &client_at(&w->clients, client)->parked;
    uint32_t topic = resolve(w, acceptor, m);
    if (!parked_put(parked, topic, m)) worker_die("out of memory");
    if (topic) hold_topic(w, topic);
}

static void drop_parked(struct worker *w, struct parked *parked) {
    uint32_t topic = parked_first(parked)->topic;
    parked_drop_first(parked);
    if (topic) let_go_topic(w, topic);
}

static void cancel(struct worker *w, uint32_t client, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    if (c->waiting && c->wait_slot == m->slot) {
        queue_stop_waiting(w, client);
        request_answer(w, client, m->slot, MSG_RESERVE, STATUS_CANCELLED, 0);
        return;
    }
    /* Its turn has not come: when it comes it will not wait. */
    struct message *parked = parked_reserve(&c->parked, m->slot);
    if (parked) parked->wait_ns = 0;
}

static void remove_runnable(struct worker *w, uint32_t client) {
    uint32_t previous = 0, at = w->runnable_first;
    while (at != client) {
        previous = at;
        at = client_at(&w->clients, at)->next_runnable;
    }
    uint32_t next = client_at(&w->clients, client)->next_runnable;
    if (previous)
        client_at(&w->clients, previous)->next_runnable = next;
    else
        w->runnable_first = next;
    if (!next) w->runnable_last = previous;
}

/* Its request goes on in the next turn. */
static void put_off(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    c->unfinished = true;
    c->next_unfinished = w->unfinished;
    w->unfinished = client;
}

static void finished(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    c->unfinished = false;
    c->done = c->upto = 0;
    sheet_free(c);
}

static void forget_unfinished(struct worker *w, uint32_t client) {
    uint32_t *link = &w->unfinished;
    while (*link != client) link = &client_at(&w->clients, *link)->next_unfinished;
    *link = client_at(&w->clients, client)->next_unfinished;
    finished(w, client);
}

/* Some of the jobs it has are ready again. False: all are. */
static bool give_back_some(struct worker *w, uint32_t client) {
    const struct client *c = client_at(&w->clients, client);
    for (uint32_t left = w->piece; c->inflight_first && left; left--) {
        uint32_t job = c->inflight_first;
        if (job_is_gone(w, job_at(w, job))) {
            worker_step(w);
            queue_unreserve(w, job);
            continue;
        }
        queue_take(w, job);
        queue_make_ready(w, job);
        queue_serve(w, job_at(w, job)->topic);
    }
    return c->inflight_first != 0;
}

void client_gone(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    if (c->waiting) queue_stop_waiting(w, client);
    if (c->runnable) remove_runnable(w, client);
    if (c->unfinished) forget_unfinished(w, client);
    while (c->parked.head != c->parked.tail) drop_parked(w, &c->parked);
    while (c->watches) ignore(w, client, watch_at(&w->clients, c->watches)->topic);
    if (c->used) use(w, client, 0, false);
    consumers_gone(w, client);
    producers_gone(w, client);
    clients_unname(&w->clients, client);
    if (!give_back_some(w, client)) {
        clients_remove(&w->clients, client);
        return;
    }
    c->next_unfinished = w->leaving_clients;
    w->leaving_clients = client;
}

static bool clients_leave(struct worker *w) {
    for (uint32_t *link = &w->leaving_clients; *link;) {
        uint32_t client = *link;
        struct client *c = client_at(&w->clients, client);
        if (give_back_some(w, client)) {
            link = &c->next_unfinished;
            continue;
        }
        *link = c->next_unfinished;
        clients_remove(&w->clients, client);
    }
    return w->leaving_clients != 0;
}

/* True for what does not stand in line behind a waiting RESERVE. */
static bool out_of_line(uint8_t kind) {
    return kind == MSG_OPEN || kind == MSG_CLOSE || kind == MSG_CANCEL || kind == MSG_GONE || kind == MSG_RETURN;
}

bool request_handle(struct worker *w, uint32_t acceptor, const struct message *m) {
    if (m->kind == MSG_OPEN) {
        open_topic(w, acceptor, m);
        return true;
    }
    if (m->kind == MSG_CLOSE) {
        close_topic(w, acceptor, m);
        return true;
    }
    if (m->kind == MSG_GONE || m->kind == MSG_CANCEL) {
        uint32_t client = clients_find(&w->clients, acceptor, m->conn);
        if (client && m->kind == MSG_GONE) client_gone(w, client);
        if (client && m->kind == MSG_CANCEL) cancel(w, client, m);
        return true;
    }
    uint32_t client = clients_get(&w->clients, acceptor, m->conn);
    if (!client) worker_die("more connections than a worker can hold"); /* acceptors' limits make this impossible */
    const struct client *c = client_at(&w->clients, client);
    if ((c->waiting || c->parked.head != c->parked.tail) && !out_of_line(m->kind)) {
        park(w, acceptor, client, m);
        return true;
    }
    enum outcome outcome = execute(w, client, resolve(w, acceptor, m), m);
    if (outcome == MORE) {
        park(w, acceptor, client, m);
        put_off(w, client);
    }
    return outcome != LATER;
}

/* The parked requests of a client, until one has to wait. False: for a segment. */
static bool run_parked(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    while (!c->waiting && !c->unfinished && c->parked.head != c->parked.tail) {
        const struct parked_request *first = parked_first(&c->parked);
        enum outcome outcome = execute(w, client, first->topic, &first->message);
        if (outcome == LATER) return false;
        if (outcome == MORE) {
            put_off(w, client);
            return true;
        }
        finished(w, client);
        drop_parked(w, &c->parked);
    }
    return true;
}

bool requests_run_parked(struct worker *w) {
    while (w->runnable_first) {
        uint32_t client = w->runnable_first;
        struct client *c = client_at(&w->clients, client);
        if (!run_parked(w, client)) return false;
        w->runnable_first = c->next_runnable;
        if (!w->runnable_first) w->runnable_last = 0;
        c->runnable = false;
    }
    return true;
}

bool requests_resume(struct worker *w) {
    bool more = clients_leave(w);
    uint32_t client = w->unfinished;
    w->unfinished = 0;
    while (client) {
        struct client *c = client_at(&w->clients, client);
        uint32_t next = c->next_unfinished;
        more = true;
        c->unfinished = false;
        if (!run_parked(w, client)) put_off(w, client);
        client = next;
    }
    return more;
}
