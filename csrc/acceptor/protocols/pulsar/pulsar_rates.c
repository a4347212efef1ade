/* Limits how fast a topic's producers may publish and its consumers be sent messages, over all acceptors together.
 * Python gives each rate a key (acceptor/protocols/pulsar/rates.py), by which all acceptors find the rate's bucket on
 * the board, where they note how much of it is used up.
 *
 * A connection that publishes too fast is not read from for a while. The permits of a consumer are kept here, and its
 * worker is lent only as many as may be used now, so that a message that must wait is neither copied nor sent.
 */
#include "acceptor/protocols/pulsar/pulsar_rates.h"

#include <stdlib.h>

#include "acceptor/protocols/pulsar/pulsar_asks.h"

/* The shortest time until a connection's rates are checked again. */
#define LOOK_NS ((uint64_t)5 * 1000000u)
/* The assumed size of messages of which none has been sent yet. */
#define UNKNOWN_BYTES 4096.0
#define LONGEST_NS    ((uint64_t)3600 * 1000000000u)

/* --- one rate ----------------------------------------------------------------------------------------------------- */

/* How many buckets of the board a rate may be in. */
enum { PROBES = 16 };

/* The buckets' time: so far on that one that says 0 has been left alone for the longest period, however short a time
 * ago the machine was started. */
static uint64_t rate_now(const struct acceptor *a) {
    return a->now_ns + LONGEST_NS;
}

/* Relaxed, here and below: the numbers do not depend on each other, and an acceptor that sees one late only lets a
 * little too much through, once. */
static uint64_t read_of(const _Atomic uint64_t *number) {
    return atomic_load_explicit(number, memory_order_relaxed);
}

static uint64_t allowed_from(const struct rate_bucket *bucket) {
    uint64_t messages = read_of(&bucket->messages_until), bytes = read_of(&bucket->bytes_until);
    return messages > bytes ? messages : bytes;
}

static bool is_free(const struct rate_bucket *bucket, uint64_t now_ns) {
    return read_of(&bucket->key) == 0 || allowed_from(bucket) + read_of(&bucket->period_ns) <= now_ns;
}

/* The bucket of a rate: the first of its places that has its key, or else a free one. If none is free, it shares the
 * bucket of another rate, and each waits for what both use up. */
static struct rate_bucket *bucket_of(const struct acceptor *a, const struct pulsar_rate *rate) {
    struct rate_bucket *all = a->board->rates, *found = NULL;
    for (uint64_t i = 0; i < PROBES; i++) {
        struct rate_bucket *at = &all[(rate->key + i) % BOARD_RATES];
        if (read_of(&at->key) == rate->key) return at;
        if (found == NULL && is_free(at, rate_now(a))) found = at;
    }
    if (found == NULL) return &all[rate->key % BOARD_RATES];
    /* A rate that takes it at the same moment shares it. Nothing of this one is used up; its old times are past by a
     * period of the one before, which may be shorter. */
    uint64_t there = read_of(&found->key);
    if (atomic_compare_exchange_strong_explicit(&found->key, &there, rate->key, memory_order_relaxed,
                                                memory_order_relaxed)) {
        atomic_store_explicit(&found->period_ns, rate->period_ns, memory_order_relaxed);
        atomic_store_explicit(&found->messages_until, 0, memory_order_relaxed);
        atomic_store_explicit(&found->bytes_until, 0, memory_order_relaxed);
    }
    return found;
}

/* Notes that `count` were used: moves on the time at which all that were used are allowed. What is not used is saved up
 * for a period at most. */
static void take_of(_Atomic uint64_t *until, uint64_t now_ns, uint64_t period_ns, uint64_t most, uint64_t count) {
    if (most == 0) return;
    double takes_ns = (double)count / (double)most * (double)period_ns;
    uint64_t more_ns = takes_ns < (double)LONGEST_NS ? (uint64_t)takes_ns : LONGEST_NS, from = read_of(until), to;
    do {
        to = (from + period_ns < now_ns ? now_ns - period_ns : from) + more_ns;
    } while (!atomic_compare_exchange_weak_explicit(until, &from, to, memory_order_relaxed, memory_order_relaxed));
}

static void take(const struct acceptor *a, const struct pulsar_rate *rate, uint64_t messages, uint64_t bytes) {
    struct rate_bucket *bucket = bucket_of(a, rate);
    take_of(&bucket->messages_until, rate_now(a), rate->period_ns, rate->messages, messages);
    take_of(&bucket->bytes_until, rate_now(a), rate->period_ns, rate->bytes, bytes);
}

/* How many are allowed by now, at `most` in a period, since all that were used were allowed. */
static double left(const struct acceptor *a, const struct pulsar_rate *rate, uint64_t until_ns, uint64_t most) {
    uint64_t since = rate_now(a) > until_ns ? rate_now(a) - until_ns : 0;
    if (since > rate->period_ns) since = rate->period_ns;
    return (double)since / (double)rate->period_ns * (double)most;
}

/* How many messages of this size may be sent now; INT64_MAX: any number. */
static int64_t allowed(const struct acceptor *a, const struct pulsar_rate *rate, const struct rate_bucket *bucket,
                       double bytes) {
    if (allowed_from(bucket) > rate_now(a)) return 0;
    double most = (double)(INT64_MAX / 2);
    if (rate->messages > 0) most = left(a, rate, read_of(&bucket->messages_until), rate->messages);
    if (rate->bytes > 0) {
        double of_bytes = left(a, rate, read_of(&bucket->bytes_until), rate->bytes) / bytes;
        if (of_bytes < 1) of_bytes = 1; /* one may exceed the rate: the next ones wait for it */
        if (of_bytes < most) most = of_bytes;
    }
    return most < (double)(INT64_MAX / 2) ? (int64_t)most : INT64_MAX;
}

/* Whether a whole period is saved up, so that waiting longer allows no more. */
static bool is_full(const struct acceptor *a, const struct pulsar_rate *rate, const struct rate_bucket *bucket) {
    return (rate->messages == 0 || read_of(&bucket->messages_until) + rate->period_ns <= rate_now(a)) &&
           (rate->bytes == 0 || read_of(&bucket->bytes_until) + rate->period_ns <= rate_now(a));
}

/* When one more message than `now` may be sent, which must be fewer than a whole period's. */
static uint64_t next_of(const struct acceptor *a, const struct pulsar_rate *rate, const struct rate_bucket *bucket,
                        int64_t now) {
    uint64_t from = allowed_from(bucket);
    if (from > rate_now(a)) return from;
    if (rate->messages == 0 || rate->bytes > 0) return rate_now(a) + LOOK_NS;
    return read_of(&bucket->messages_until) +
           (uint64_t)((double)(now + 1) / (double)rate->messages * (double)rate->period_ns);
}

/* Sets the timer so that the connection's rates are checked again at that time. */
static void look_at(struct acceptor *a, struct connection *c, uint64_t rate_ns) {
    struct pulsar *p = pulsar_of(c);
    uint64_t due_ns = rate_ns > rate_now(a) + LOOK_NS ? rate_ns - LONGEST_NS : a->now_ns + LOOK_NS;
    if (p->rates_due_ns != 0 && p->rates_due_ns <= due_ns) return;
    p->rates_due_ns = due_ns;
    pulsar_set_timer(a, c);
}

/* --- producers ---------------------------------------------------------------------------------------------------- */

bool pulsar_may_publish(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer) {
    uint64_t from = 0;
    for (uint32_t i = 0; i < PULSAR_RATES_OF_PRODUCER; i++) {
        if (producer->rates[i].key == 0) continue;
        uint64_t until = allowed_from(bucket_of(a, &producer->rates[i]));
        if (until > from) from = until;
    }
    if (from <= rate_now(a)) return true;
    look_at(a, c, from);
    return stalled(c, STALL_OUTSTANDING);
}

void pulsar_take_published(struct acceptor *a, const struct pulsar_producer *producer, uint64_t messages,
                           uint64_t bytes) {
    for (uint32_t i = 0; i < PULSAR_RATES_OF_PRODUCER; i++)
        if (producer->rates[i].key != 0) take(a, &producer->rates[i], messages, bytes);
}

/* Replaces the rates of a producer or consumer; having none takes no memory. False when memory is short. */
static bool replace(struct acceptor *a, struct connection *c, struct pulsar_rate **there, const struct pulsar_rate *by,
                    uint32_t count) {
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        assert(by[i].key == 0 || (by[i].period_ns > 0 && by[i].period_ns <= LONGEST_NS));
        any |= by[i].key != 0;
    }
    struct pulsar_rate *rates = any ? malloc(count * sizeof *rates) : NULL;
    if (any && rates == NULL) {
        engine_oom(a, c);
        return false;
    }
    if (any) memcpy(rates, by, count * sizeof *rates);
    free(*there);
    *there = rates;
    return true;
}

bool pulsar_limit_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                           const struct pulsar_rate *rates) {
    if (!replace(a, c, &producer->rates, rates, PULSAR_RATES_OF_PRODUCER)) return false;
    /* It may be waiting for the former rate: check again. */
    pulsar_wake(a, c);
    return true;
}

/* --- consumers ---------------------------------------------------------------------------------------------------- */

void pulsar_lend(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer) {
    int64_t most = consumer->permits;
    uint64_t due_ns = 0;
    /* The size of the next messages is guessed from those sent before. */
    const struct pulsar_counts *sent = consumer->counts;
    double bytes = sent->messages > 0 ? (double)sent->bytes / (double)sent->messages + 1 : UNKNOWN_BYTES;
    for (uint32_t i = 0; consumer->rates != NULL && i < PULSAR_RATES_OF_CONSUMER; i++) {
        const struct pulsar_rate *rate = &consumer->rates[i];
        if (rate->key == 0) continue;
        const struct rate_bucket *bucket = bucket_of(a, rate);
        int64_t now = allowed(a, rate, bucket, bytes);
        if (now >= most) continue;
        most = now;
        if (!is_full(a, rate, bucket)) due_ns = next_of(a, rate, bucket, now);
    }
    int64_t more = most - consumer->lent;
    if (more > 0) {
        consumer->lent += more;
        pulsar_tell_permits(a, c, consumer, (uint64_t)more);
    }
    if (due_ns != 0 && consumer->lent < consumer->permits) look_at(a, c, due_ns);
}

void pulsar_take_delivered(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           uint64_t messages, uint64_t bytes) {
    for (uint32_t i = 0; i < PULSAR_RATES_OF_CONSUMER; i++)
        if (consumer->rates[i].key != 0) take(a, &consumer->rates[i], messages, bytes);
    consumer->lent -= (int64_t)messages;
    pulsar_lend(a, c, consumer);
}

/* A consumer without rates has lent all its permits to its worker, and none are taken back by giving it rates. */
bool pulsar_limit_consumer(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           const struct pulsar_rate *rates) {
    if (consumer->rates == NULL) consumer->lent = consumer->permits;
    if (!replace(a, c, &consumer->rates, rates, PULSAR_RATES_OF_CONSUMER)) return false;
    pulsar_lend(a, c, consumer);
    return true;
}

/* --- producers and consumers -------------------------------------------------------------------------------------- */

void pulsar_rates_due(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    if (p->rates_due_ns == 0 || p->rates_due_ns > a->now_ns) return;
    p->rates_due_ns = 0;
    pulsar_wake(a, c);
    for (uint32_t i = 0; i < p->consumers.capacity; i++) {
        struct pulsar_consumer *consumer = p->consumers.items[i];
        if (consumer != NULL && consumer->rates != NULL && consumer->open) pulsar_lend(a, c, consumer);
    }
}
