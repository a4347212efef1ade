#include "acceptor/protocols/beanstalk/beanstalk_reserve.h"

#include "acceptor/protocols/beanstalk/beanstalk_replies.h"

/* The workers concerned: those of the watched tubes, and those with jobs in flight, which know when a deadline is near.
 * */
static uint64_t concerned(const struct connection *c) {
    const struct beanstalk *b = beanstalk_of(c);
    return b->watched_workers | b->holding_workers;
}

static uint64_t timeout_of(const struct connection *c) {
    return connection_slot(c, c->head_slot)->value;
}

/* Sends a request to some workers. Only requests that are answered at once count as expected. */
static void ask(struct acceptor *a, struct connection *c, uint32_t worker) {
    const struct gather *g = &beanstalk_of(c)->gather;
    struct message request = {.conn = c->number, .slot = c->head_slot};
    switch (g->phase) {
    case GATHER_PROBING: request.kind = MSG_PROBE; break;
    case GATHER_TAKING:
        request.kind = MSG_TAKE;
        request.pri = g->next_pri;
        request.id = g->next_id;
        break;
    default:
        request.kind = MSG_RESERVE;
        request.delay_ns = timeout_of(c);
        a->reserved = true;
    }
    c->touched_workers |= bit_of(worker);
    peer_send(a, worker, &request, NULL);
}

static void ask_all(struct acceptor *a, struct connection *c, uint64_t workers, enum gather_phase phase) {
    struct gather *g = &beanstalk_of(c)->gather;
    assert(g->asked == 0 && workers != 0);
    g->phase = (uint8_t)phase;
    g->asked = workers;
    if (phase != GATHER_WAITING) a->expected += (uint32_t)__builtin_popcountll(workers);
    for (uint64_t rest = workers; rest != 0; rest &= rest - 1) ask(a, c, first_of(rest));
}

static void probe(struct acceptor *a, struct connection *c) {
    struct gather *g = &beanstalk_of(c)->gather;
    g->ready = g->soon = false;
    g->next_pri = UINT32_MAX;
    g->next_id = UINT64_MAX;
    ask_all(a, c, concerned(c), GATHER_PROBING);
}

void gather_begin(struct acceptor *a, struct connection *c, uint64_t timeout_ns) {
    assert(c->slot_count == 0 && beanstalk_of(c)->gather.phase == GATHER_NONE);
    struct slot *slot = connection_push_slot(c, &a->blocks, SLOT_CODEC);
    if (slot == NULL) {
        engine_oom(a, c);
        return;
    }
    slot->value = timeout_ns;
    beanstalk_of(c)->gather = (struct gather){0};
    c->stall = STALL_IDLE;
    beanstalk_set_waiting(a, c, true);
    probe(a, c);
}

static void deliver(struct acceptor *a, struct connection *c, uint32_t worker, uint8_t status,
                    const struct message *reply) {
    beanstalk_of(c)->gather.delivered = true;
    beanstalk_set_waiting(a, c, false);
    if (status == STATUS_OK) {
        beanstalk_of(c)->holding_workers |= bit_of(worker);
        beanstalk_answer(a, c,
                         &(struct codec_answer){.kind = MSG_RESERVE,
                                                .status = status,
                                                .id = reply->id,
                                                .body = (const uint8_t *)(reply + 1),
                                                .body_bytes = reply->body_bytes});
    } else {
        beanstalk_answer_failure(a, c, status);
    }
}

static void finish(struct acceptor *a, struct connection *c) {
    assert(beanstalk_of(c)->gather.asked == 0 && beanstalk_of(c)->gather.delivered && c->slot_count == 1);
    beanstalk_of(c)->gather.phase = GATHER_NONE;
    connection_pop_slot(c, &a->blocks);
    slots_changed(a, c);
}

/* No worker had a job, or the wait is over. */
static void finish_empty(struct acceptor *a, struct connection *c) {
    deliver(a, c, 0, beanstalk_of(c)->gather.soon ? STATUS_DEADLINE_SOON : STATUS_TIMED_OUT, NULL);
    if (!c->closed) finish(a, c);
}

static void probed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    struct gather *g = &beanstalk_of(c)->gather;
    if (reply->status == STATUS_DEADLINE_SOON) g->soon = true;
    if (reply->status == STATUS_OK) {
        bool better = !g->ready || reply->pri < g->best_pri || (reply->pri == g->best_pri && reply->id < g->best_id);
        bool next = !better && (reply->pri < g->next_pri || (reply->pri == g->next_pri && reply->id < g->next_id));
        if (better && g->ready) {
            g->next_pri = g->best_pri;
            g->next_id = g->best_id;
        } else if (next) {
            g->next_pri = reply->pri;
            g->next_id = reply->id;
        }
        if (better) {
            g->best_pri = reply->pri;
            g->best_id = reply->id;
            g->best_worker = (uint8_t)worker;
        }
        g->ready = true;
    }
    if (g->asked != 0) return;
    if (g->ready)
        ask_all(a, c, bit_of(g->best_worker), GATHER_TAKING);
    else if (g->soon || timeout_of(c) == 0 || c->half_closed)
        finish_empty(a, c);
    else
        ask_all(a, c, concerned(c), GATHER_WAITING);
}

static void taken(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    if (reply->status != STATUS_OK) {
        probe(a, c);
        return;
    }
    deliver(a, c, worker, STATUS_OK, reply);
    if (!c->closed) finish(a, c);
}

/* Cancels the other workers' reserves; a worker that is gone has none. */
static void cancel_rest(struct acceptor *a, struct connection *c) {
    struct gather *g = &beanstalk_of(c)->gather;
    if (g->cancelling) return;
    g->cancelling = true;
    for (uint64_t rest = g->asked; rest != 0; rest &= rest - 1) {
        uint32_t worker = first_of(rest);
        if (a->links[worker].channel == NULL) {
            g->asked &= ~bit_of(worker);
            continue;
        }
        struct message cancel = {.kind = MSG_CANCEL, .conn = c->number, .slot = c->head_slot};
        peer_send(a, worker, &cancel, NULL);
    }
}

static void finish_waiting(struct acceptor *a, struct connection *c) {
    if (beanstalk_of(c)->gather.asked != 0) return;
    if (beanstalk_of(c)->gather.delivered)
        finish(a, c);
    else
        finish_empty(a, c);
}

static void waited(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    struct gather *g = &beanstalk_of(c)->gather;
    if (reply->status == STATUS_OK && g->delivered) {
        struct message back = {.kind = MSG_RETURN, .conn = c->number, .slot = c->head_slot, .id = reply->id};
        peer_send(a, worker, &back, NULL);
    } else if (reply->status == STATUS_OK) {
        deliver(a, c, worker, STATUS_OK, reply);
        if (c->closed) return;
    }
    if (reply->status == STATUS_DEADLINE_SOON) g->soon = true;
    cancel_rest(a, c);
    finish_waiting(a, c);
}

void gather_hear(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    static const uint8_t kinds[] = {
        [GATHER_PROBING] = MSG_PROBE, [GATHER_TAKING] = MSG_TAKE, [GATHER_WAITING] = MSG_RESERVE};
    struct gather *g = &beanstalk_of(c)->gather;
    assert(g->phase != GATHER_NONE);
    if ((g->asked & bit_of(worker)) == 0 || reply->kind != kinds[g->phase]) return;
    g->asked &= ~bit_of(worker);
    if (g->phase != GATHER_WAITING) a->expected--;
    switch (g->phase) {
    case GATHER_PROBING: probed(a, c, worker, reply); break;
    case GATHER_TAKING: taken(a, c, worker, reply); break;
    default: waited(a, c, worker, reply);
    }
}

void gather_forget(struct acceptor *a, struct connection *c) {
    const struct gather *g = &beanstalk_of(c)->gather;
    if (g->phase == GATHER_PROBING || g->phase == GATHER_TAKING)
        a->expected -= (uint32_t)__builtin_popcountll(g->asked);
}

void gather_cancel(struct acceptor *a, struct connection *c) {
    if (beanstalk_of(c)->gather.phase != GATHER_WAITING) return; /* the reserve ends without waiting */
    cancel_rest(a, c);
    finish_waiting(a, c);
}

void gather_lost(struct acceptor *a, struct connection *c, uint32_t worker) {
    struct gather *g = &beanstalk_of(c)->gather;
    if ((g->asked & bit_of(worker)) == 0) return;
    if (g->phase == GATHER_TAKING) {
        /* If the job was taken, it is ready again when the worker is back. */
        g->asked = 0;
        a->expected--;
        probe(a, c);
    } else if (g->phase == GATHER_WAITING && g->cancelling) {
        g->asked &= ~bit_of(worker);
        finish_waiting(a, c);
    }
    /* Otherwise the worker is asked the same again when it is back. */
}

void gather_again(struct acceptor *a, struct connection *c, uint32_t worker) {
    if ((beanstalk_of(c)->gather.asked & bit_of(worker)) != 0) ask(a, c, worker);
}
