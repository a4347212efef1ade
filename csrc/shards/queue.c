/* How jobs pass between the states of a job queue, and what happens to them in time. Nothing of it is logged here. */
#include "shards/queue.h"

#include <assert.h>
#include <stddef.h>

#include "shards/answers.h"
#include "shards/ready.h"
#include "shards/sleeping.h"
#include "shards/unreadable.h"

static struct heap_places job_places(const struct worker *w) {
    return (struct heap_places){w->jobs.base + offsetof(struct job, place), sizeof(struct job)};
}
static struct timers reservation_timers(const struct worker *w) {
    return (struct timers){w->reservations.base + offsetof(struct reservation, timer), sizeof(struct reservation)};
}
static struct heap_places delay_places(const struct worker *w) {
    return (struct heap_places){w->topics.arena.base + offsetof(struct topic, delay_place), sizeof(struct topic)};
}
static struct heap_places pause_places(const struct worker *w) {
    return (struct heap_places){w->topics.arena.base + offsetof(struct topic, pause_place), sizeof(struct topic)};
}
static struct heap_places wait_places(const struct worker *w) {
    return (struct heap_places){w->clients.arena.base + offsetof(struct client, wait_place), sizeof(struct client)};
}

static void push(struct heap *heap, struct heap_places places, struct heap_entry entry) {
    if (!heap_push(heap, places, entry)) process_die("out of memory");
}

uint32_t queue_add(struct worker *w, uint32_t topic, uint64_t id, uint32_t pri, log_position position) {
    uint32_t number = arena_take(&w->jobs);
    if (!number) return 0;
    *job_at(w, number) =
        (struct job){.id = id, .position = position, .topic = topic, .pri = pri, .place = HEAP_NOWHERE};
    index_insert(&w->ids, &w->jobs, number);
    return number;
}

void queue_forget(struct worker *w, uint32_t job) {
    if (job_at(w, job)->state) queue_take(w, job);
    queue_free(w, job);
}

void queue_free(struct worker *w, uint32_t job) {
    struct job *j = job_at(w, job);
    index_remove(&w->ids, &w->jobs, job);
    if (j->reservation) arena_give(&w->reservations, j->reservation);
    j->state = 0;
    arena_give(&w->jobs, job);
    /* When a backlog has been worked off its memory is given back, in the next turns. */
    if (w->jobs.live == 0 && w->jobs.end > 1 << 16) {
        arena_reset(&w->jobs);
        arena_reset(&w->reservations);
        index_reset(&w->ids);
        w->jobs_stale = true;
    }
}

/* The most that is given back in a turn of each table of jobs. */
enum { GIVEN_BACK_BYTES = 512 << 10 };

bool queue_give_back(struct worker *w) {
    if (!w->jobs_stale) return false;
    w->jobs_stale = arena_give_back(&w->jobs, GIVEN_BACK_BYTES);
    w->jobs_stale |= arena_give_back(&w->reservations, GIVEN_BACK_BYTES);
    w->jobs_stale |= index_give_back(&w->ids, GIVEN_BACK_BYTES);
    return w->jobs_stale;
}

static struct reservation *make_reservation(struct worker *w, uint32_t job, uint64_t delay_ns) {
    struct job *j = job_at(w, job);
    j->reservation = arena_take(&w->reservations) & RESERVATION_MASK;
    if (!j->reservation) process_die("reservations are as many as jobs");
    struct reservation *reservation = reservation_at(w, j->reservation);
    *reservation = (struct reservation){.delay_ns = delay_ns, .timer = {.previous = TIMER_OFF, .of = job}};
    return reservation;
}

struct reservation *queue_reservation(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    if (j->reservation) return reservation_at(w, j->reservation);
    return make_reservation(w, job, job_attributes(w, j).delay_ns);
}

static bool urgent(const struct job *j) {
    return j->pri < URGENT_BELOW;
}

void queue_make_ready(struct worker *w, uint32_t job) {
    struct job *j = job_at(w, job);
    struct topic *t = topic_at(&w->topics, j->topic);
    assert(!j->state);
    j->state = JOB_READY;
    if (!ready_add(&t->ready, &w->jobs, job)) process_die("out of memory");
    w->count->ready++;
    if (urgent(j)) t->urgent++, w->count->urgent++;
}

/* Moves a topic to its place among those with delayed jobs, by the deadline of its first one. */
static void delayed_changed(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    const struct heap_entry *first = heap_top(&t->delayed);
    if (t->delay_place != HEAP_NOWHERE) {
        if (first && w->delays.entries[t->delay_place].high == first->high) return;
        heap_remove(&w->delays, delay_places(w), t->delay_place);
    }
    if (first) push(&w->delays, delay_places(w), heap_key(first->high, 0, topic));
}

void queue_make_delayed(struct worker *w, uint32_t job, uint64_t deadline_ns) {
    struct job *j = job_at(w, job);
    struct topic *t = topic_at(&w->topics, j->topic);
    assert(!j->state);
    queue_reservation(w, job)->deadline_ns = deadline_ns;
    j->state = JOB_DELAYED;
    push(&t->delayed, job_places(w), heap_key(deadline_ns, (uint32_t)j->id, job));
    delayed_changed(w, j->topic);
    w->count->delayed++;
}

/* Jobs are in a list by their reservations: those of a client, and the buried ones of a topic. */
static void join_list(struct worker *w, uint32_t *first, uint32_t *last, uint32_t job,
                      struct reservation *reservation) {
    reservation->previous = *last;
    reservation->next = 0;
    *(*last ? &reservation_at(w, job_at(w, *last)->reservation)->next : first) = job;
    *last = job;
}

static void leave_list(struct worker *w, uint32_t *first, uint32_t *last, const struct reservation *reservation) {
    const uint32_t previous = reservation->previous, next = reservation->next;
    *(previous ? &reservation_at(w, job_at(w, previous)->reservation)->next : first) = next;
    *(next ? &reservation_at(w, job_at(w, next)->reservation)->previous : last) = previous;
}

void queue_make_buried(struct worker *w, uint32_t job) {
    struct job *j = job_at(w, job);
    struct topic *t = topic_at(&w->topics, j->topic);
    struct reservation *reservation = queue_reservation(w, job);
    assert(!j->state);
    j->state = JOB_BURIED;
    join_list(w, &t->buried_first, &t->buried_last, job, reservation);
    t->buried++;
    w->count->buried++;
}

static void leave_inflight(struct worker *w, struct client *c, const struct reservation *reservation) {
    leave_list(w, &c->inflight_first, &c->inflight_last, reservation);
    c->inflight--;
}

/* Sets the timer of a reserved job: first for the beginning of its last second, from when on its client may not wait,
 * then for its deadline. So nobody has to know which deadline of a client is the first. */
static void expect(struct worker *w, const struct job *j, const struct reservation *reservation) {
    uint64_t at_ns = reservation->deadline_ns - (reservation->soon ? 0 : SAFETY_MARGIN_NS);
    if (!wheel_add(&w->inflight, reservation_timers(w), j->reservation, at_ns, (uint32_t)j->id))
        process_die("out of memory");
}

static void set_deadline(struct worker *w, const struct job *j, struct reservation *reservation, uint64_t ttr_ns) {
    struct client *c = client_at(&w->clients, reservation->client);
    reservation->deadline_ns = ttr_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + ttr_ns;
    reservation->soon = ttr_ns <= SAFETY_MARGIN_NS;
    c->soon += reservation->soon;
    expect(w, j, reservation);
}

void queue_make_reserved(struct worker *w, uint32_t job, uint32_t client) {
    struct job *j = job_at(w, job);
    const struct publish_attributes said = job_attributes(w, j);
    struct reservation *reservation =
        j->reservation ? reservation_at(w, j->reservation) : make_reservation(w, job, said.delay_ns);
    assert(!j->state);
    j->state = JOB_RESERVED;
    reservation->client = client & CLIENT_MASK;
    reservation->reserves++;
    struct client *c = client_at(&w->clients, client);
    join_list(w, &c->inflight_first, &c->inflight_last, job, reservation);
    c->inflight++;
    set_deadline(w, j, reservation, said.ttr_ns);
    struct topic *t = topic_at(&w->topics, j->topic);
    t->reserved++;
    t->reserves++;
    w->count->reserved++;
}

static void clear_deadline(struct worker *w, const struct job *j, struct reservation *reservation) {
    wheel_remove(&w->inflight, reservation_timers(w), j->reservation);
    client_at(&w->clients, reservation->client)->soon -= reservation->soon;
    reservation->soon = 0;
}

void queue_touch(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    struct reservation *reservation = reservation_at(w, j->reservation);
    assert(j->state == JOB_RESERVED);
    clear_deadline(w, j, reservation);
    set_deadline(w, j, reservation, job_attributes(w, j).ttr_ns);
}

static void take_buried(struct worker *w, const struct job *j) {
    struct topic *t = topic_at(&w->topics, j->topic);
    leave_list(w, &t->buried_first, &t->buried_last, reservation_at(w, j->reservation));
    t->buried--;
    w->count->buried--;
}

void queue_take(struct worker *w, uint32_t job) {
    struct job *j = job_at(w, job);
    struct topic *t = topic_at(&w->topics, j->topic);
    worker_step(w);
    switch (j->state) {
    case JOB_READY:
        ready_remove(&t->ready, &w->jobs, job);
        w->count->ready--;
        if (urgent(j)) t->urgent--, w->count->urgent--;
        break;
    case JOB_DELAYED:
        heap_remove(&t->delayed, job_places(w), j->place);
        delayed_changed(w, j->topic);
        w->count->delayed--;
        break;
    case JOB_BURIED: take_buried(w, j); break;
    case JOB_RESERVED:
        clear_deadline(w, j, reservation_at(w, j->reservation));
        leave_inflight(w, client_at(&w->clients, reservation_at(w, j->reservation)->client),
                       reservation_at(w, j->reservation));
        t->reserved--;
        w->count->reserved--;
        break;
    default: assert(!"a job in no state cannot be taken out of it");
    }
    j->state = 0;
}

/* --- the end of a topic ------------------------------------------------------------------------------------------- */

void queue_bury(struct worker *w, uint32_t topic, struct buried_jobs *out) {
    struct topic *t = topic_at(&w->topics, topic);
    *out = (struct buried_jobs){t->ready, t->delayed, t->buried_first, t->reserved};
    w->count->ready -= ready_count(&t->ready);
    w->count->delayed -= t->delayed.count;
    w->count->buried -= t->buried;
    w->count->reserved -= t->reserved;
    w->count->urgent -= t->urgent;
    t->ready = (struct ready){0};
    t->delayed = (struct heap){0};
    t->buried_first = t->buried_last = 0;
    t->buried = t->reserved = t->urgent = 0;
    delayed_changed(w, topic);
}

uint32_t queue_exhume(struct worker *w, struct buried_jobs *b) {
    uint32_t job = b->buried;
    if (b->delayed.count) return heap_item(b->delayed.entries[--b->delayed.count]);
    if (!job) return ready_exhume(&b->ready);
    b->buried = reservation_at(w, job_at(w, job)->reservation)->next;
    return job;
}

void buried_jobs_free(struct buried_jobs *b) {
    ready_free(&b->ready);
    heap_free(&b->delayed);
}

void queue_unreserve(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    struct reservation *reservation = reservation_at(w, j->reservation);
    if (!reservation->client) return;
    clear_deadline(w, j, reservation);
    leave_inflight(w, client_at(&w->clients, reservation->client), reservation);
    reservation->client = 0;
}

/* --- serving ------------------------------------------------------------------------------------------------------ */

static bool can_be_read(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    enum readable readable = record_readable(w, shard_of_job(w, j), job_record(w, j));
    w->unreadable_in_turn += readable == READ_FAILS;
    return readable == READ_WHOLE;
}

void queue_serve(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct heap_entry first;
    while (t->waiting_first && !queue_paused(w, t) && ready_first(&t->ready, &w->jobs, &first)) {
        uint32_t job = heap_item(first);
        if (unreadable_enough(w) || !can_be_read(w, job)) {
            unreadable_serve_later(w, topic);
            return;
        }
        uint32_t client = watch_client(watch_at(&w->clients, t->waiting_first));
        uint32_t slot = client_at(&w->clients, client)->wait_slot;
        queue_stop_waiting(w, client);
        queue_take(w, job);
        queue_make_reserved(w, job, client);
        request_deliver(w, client, slot, MSG_RESERVE, job);
    }
}

bool queue_serve_at_once(struct worker *w, uint32_t job) {
    const struct topic *t = topic_at(&w->topics, job_at(w, job)->topic);
    if (!t->waiting_first || ready_count(&t->ready) || queue_paused(w, t)) return false;
    uint32_t client = watch_client(watch_at(&w->clients, t->waiting_first));
    uint32_t slot = client_at(&w->clients, client)->wait_slot;
    worker_step(w);
    queue_stop_waiting(w, client);
    queue_make_reserved(w, job, client);
    request_deliver(w, client, slot, MSG_RESERVE, job);
    return true;
}

uint32_t queue_best(struct worker *w, uint32_t client) {
    worker_walk(w, client_at(&w->clients, client)->watch_count);
    bool found = false;
    struct heap_entry best = {0}, first;
    for (uint32_t n = client_at(&w->clients, client)->watches; n; n = watch_at(&w->clients, n)->next) {
        const struct topic *t = topic_at(&w->topics, watch_topic(watch_at(&w->clients, n)));
        if (queue_paused(w, t) || !ready_first(&t->ready, &w->jobs, &first)) continue;
        if (!found || heap_less(first, best)) best = first;
        found = true;
    }
    return found ? heap_item(best) : 0;
}

bool queue_any_ready(const struct worker *w, uint32_t client) {
    for (uint32_t n = client_at(&w->clients, client)->watches; n; n = watch_at(&w->clients, n)->next)
        if (ready_count(&topic_at(&w->topics, watch_topic(watch_at(&w->clients, n)))->ready)) return true;
    return false;
}

bool queue_deadline_soon(const struct worker *w, uint32_t client) {
    return client_at(&w->clients, client)->soon > 0;
}

/* When a client's wait ends without a job; UINT64_MAX: it has no end. */
static uint64_t wait_end(const struct worker *w, const struct client *c) {
    return c->soon ? w->now_ns : c->wait_until_ns;
}

void queue_wait(struct worker *w, uint32_t client, uint32_t slot, uint64_t timeout_ns) {
    struct client *c = client_at(&w->clients, client);
    assert(!c->waiting);
    c->waiting = true;
    c->wait_slot = slot;
    c->wait_until_ns = timeout_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + timeout_ns;
    uint64_t end = wait_end(w, c);
    if (end != UINT64_MAX) push(&w->waits, wait_places(w), heap_key(end, 0, client));
    for (uint32_t n = c->watches; n; n = watch_at(&w->clients, n)->next) {
        struct watch *watch = watch_at(&w->clients, n);
        struct topic *t = topic_at(&w->topics, watch_topic(watch));
        watch->next_waiting = 0;
        watch->previous_waiting = t->waiting_last;
        if (t->waiting_last)
            watch_at(&w->clients, t->waiting_last)->next_waiting = n;
        else
            t->waiting_first = n;
        t->waiting_last = n;
        t->waiting++;
    }
}

void queue_stop_waiting(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    assert(c->waiting);
    c->waiting = false;
    if (c->wait_place != HEAP_NOWHERE) heap_remove(&w->waits, wait_places(w), c->wait_place);
    for (uint32_t n = c->watches; n; n = watch_at(&w->clients, n)->next) {
        const struct watch *watch = watch_at(&w->clients, n);
        struct topic *t = topic_at(&w->topics, watch_topic(watch));
        if (watch->previous_waiting)
            watch_at(&w->clients, watch->previous_waiting)->next_waiting = watch->next_waiting;
        else
            t->waiting_first = watch->next_waiting;
        if (watch->next_waiting)
            watch_at(&w->clients, watch->next_waiting)->previous_waiting = watch->previous_waiting;
        else
            t->waiting_last = watch->previous_waiting;
        t->waiting--;
    }
    if (parked_any(&c->parked) && !client_is_in(c, LINE_RUNNABLE)) client_line_up(&w->clients, LINE_RUNNABLE, client);
}

static void end_pause(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (t->pause_place != HEAP_NOWHERE) heap_remove(&w->pauses, pause_places(w), t->pause_place);
    t->pause_ns = t->unpause_ns = 0;
}

void queue_pause(struct worker *w, uint32_t topic, uint64_t pause_ns) {
    struct topic *t = topic_at(&w->topics, topic);
    end_pause(w, topic);
    t->pauses++;
    /* A pause of zero length is over for the next request, though its end is an event, too. */
    t->pause_ns = pause_ns ? pause_ns : 1;
    t->unpause_ns = w->now_ns + pause_ns;
    push(&w->pauses, pause_places(w), heap_key(t->unpause_ns, 0, topic));
}

void queue_note_listed(struct worker *w, struct topic *t) {
    if (topic_listed(t) == t->listed) return;
    t->listed = !t->listed;
    /* Relaxed, as in catalog_changed. */
    __atomic_store_n(&w->count->names_version, w->count->names_version + 1, __ATOMIC_RELAXED);
}

void queue_settle(struct worker *w, uint32_t topic, bool was_seen) {
    struct topic *t = topic_at(&w->topics, topic);
    bool seen = topic_seen(t);
    queue_note_listed(w, t);
    if (seen && !was_seen) w->count->topics++;
    if (!seen && was_seen) {
        w->count->topics--;
        end_pause(w, topic);
        /* Who used it has gone, and the log does not know of it: nobody wants the tube any more, as after a restart. */
        if (!t->number) t->tube = false;
        t->total = t->reserves = t->deletes = t->releases = t->timeouts = t->pauses = 0;
    }
    if (!seen || t->asleep) shard_settle_topic(w, topic);
}

static void delays_due(struct worker *w, uint64_t most) {
    const struct heap_entry *first;
    while ((first = heap_top(&w->delays)) && first->high <= w->now_ns && w->steps < most) {
        uint32_t topic = heap_item(*first);
        uint32_t job = heap_item(*heap_top(&topic_at(&w->topics, topic)->delayed));
        queue_take(w, job);
        queue_make_ready(w, job);
        queue_serve(w, topic);
    }
}

static void pauses_due(struct worker *w, uint64_t most) {
    const struct heap_entry *first;
    while ((first = heap_top(&w->pauses)) && first->high <= w->now_ns && w->steps < most) {
        uint32_t topic = heap_item(*first);
        worker_step(w);
        end_pause(w, topic);
        queue_serve(w, topic);
    }
}

static void wait_over(struct worker *w, uint32_t client);

static void time_to_run_over(struct worker *w, struct reservation *reservation) {
    uint32_t job = reservation->timer.of;
    const struct job *j = job_at(w, job);
    if (job_is_gone(w, j)) {
        worker_step(w);
        queue_unreserve(w, job);
        return;
    }
    if (!reservation->soon) {
        uint32_t client = reservation->client;
        wheel_remove(&w->inflight, reservation_timers(w), j->reservation);
        reservation->soon = 1;
        client_at(&w->clients, client)->soon++;
        expect(w, j, reservation);
        if (client_at(&w->clients, client)->waiting) wait_over(w, client);
        return;
    }
    queue_take(w, job);
    reservation->timeouts++;
    topic_at(&w->topics, j->topic)->timeouts++;
    w->count->timeouts++;
    queue_make_ready(w, job);
    queue_serve(w, j->topic);
}

static void wait_over(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    uint8_t status;
    if (queue_deadline_soon(w, client))
        status = STATUS_DEADLINE_SOON;
    else if (c->wait_until_ns <= w->now_ns)
        status = STATUS_TIMED_OUT;
    else { /* no job of the client is near its deadline any more */
        heap_remove(&w->waits, wait_places(w), c->wait_place);
        uint64_t end = wait_end(w, c);
        if (end != UINT64_MAX) push(&w->waits, wait_places(w), heap_key(end, 0, client));
        return;
    }
    worker_step(w);
    queue_stop_waiting(w, client);
    request_answer(w, client, c->wait_slot, MSG_RESERVE, status, 0);
}

bool queue_tick(struct worker *w) {
    if (queue_next_ns(w) > w->now_ns) return false;
    uint64_t most = w->steps + w->piece;
    delays_due(w, most);
    pauses_due(w, most);
    (void)wheel_advance(&w->inflight, reservation_timers(w), w->now_ns); /* the rest in the next turn */
    while (w->steps < most) {                                            /* the others stay due for the next turn */
        uint32_t due = wheel_due(&w->inflight, w->now_ns);
        struct reservation *reservation = reservation_at(w, due);
        const struct heap_entry *wait = heap_top(&w->waits);
        bool wait_due = wait && wait->high <= w->now_ns;
        if (due && (!wait_due || reservation->timer.due_ns <= wait->high))
            time_to_run_over(w, reservation);
        else if (wait_due)
            wait_over(w, heap_item(*wait));
        else
            break;
    }
    return true;
}

static uint64_t first_of(const struct heap *heap, uint64_t other) {
    const struct heap_entry *first = heap_top(heap);
    return first && first->high < other ? first->high : other;
}

uint64_t queue_next_ns(const struct worker *w) {
    return first_of(&w->delays, first_of(&w->pauses, first_of(&w->waits, wheel_next_ns(&w->inflight))));
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

void queue_replay_state(struct worker *w, uint32_t job, const struct state_attributes *a, uint64_t time_ns) {
    struct job *j = job_at(w, job);
    struct reservation *reservation = queue_reservation(w, job);
    j->pri = a->pri;
    bool apart = a->state == JOB_DELAYED || a->state == JOB_BURIED;
    j->state = (apart ? a->state : JOB_READY) & 7;
    reservation->reserves = a->reserves;
    reservation->timeouts = a->timeouts;
    reservation->releases = a->releases;
    reservation->buries = a->buries;
    reservation->kicks = a->kicks;
    reservation->delay_ns = a->delay_ns;
    /* Buried jobs are ordered by when they were buried. */
    reservation->deadline_ns = j->state == JOB_DELAYED ? worker_deadline(w, a->deadline_wall_ns, UINT64_MAX) : time_ns;
}

void replay_queue_job(struct worker *w, uint32_t job, uint64_t due_wall_ns) {
    struct job *j = job_at(w, job);
    topic_at(&w->topics, j->topic)->replayed_jobs++;
    j->state = JOB_READY;
    if (due_wall_ns <= w->wall_ns) return;
    struct publish_attributes a = job_attributes(w, j);
    struct state_attributes state = {.pri = a.pri, .state = JOB_DELAYED, .delay_ns = a.delay_ns};
    state.deadline_wall_ns = due_wall_ns;
    queue_replay_state(w, job, &state, 0);
}
