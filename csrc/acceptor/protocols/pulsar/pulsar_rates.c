/* How fast a topic's producers may publish and its consumers be sent messages: each rate is a number that Python has given,
 * of a topic, or of one subscription, for all of the acceptor's connections together.
 *
 * Who publishes too fast is not read from for a while. A consumer's permits are kept here, and its worker is lent as many as
 * may be sent now: so whatever is not to be sent yet is neither copied nor on its way.
 */
#include "acceptor/protocols/pulsar/pulsar.h"

#include <stdlib.h>

/* How seldom at most it is looked whether there is more to lend. */
#define LOOK_NS       ((uint64_t)5 * 1000000u)
#define UNKNOWN_BYTES 4096.0
#define LONGEST_NS    ((uint64_t)3600 * 1000000000u)

/* --- one rate ------------------------------------------------------------------------------------------------------ */

static struct pulsar_rate *rate_at(struct acceptor *a, const struct connection *c, uint32_t number) {
    struct pulsar_options *options = codec_state(a, c->protocol);
    return number > 0 && number < options->rate_count ? &options->rates[number] : NULL;
}

/* When what was taken will have been allowed: what nobody has used is kept for a period. */
static uint64_t taken(uint64_t until_ns, uint64_t now_ns, const struct pulsar_rate *rate, uint64_t most,
                      uint64_t count) {
    if (most == 0) return until_ns;
    if (until_ns + rate->period_ns < now_ns) until_ns = now_ns - rate->period_ns;
    double takes_ns = (double)count / (double)most * (double)rate->period_ns;
    return until_ns + (takes_ns < (double)LONGEST_NS ? (uint64_t)takes_ns : LONGEST_NS);
}

static void take(struct acceptor *a, struct pulsar_rate *rate, uint64_t messages, uint64_t bytes) {
    rate->messages_until = taken(rate->messages_until, a->now_ns, rate, rate->messages, messages);
    rate->bytes_until = taken(rate->bytes_until, a->now_ns, rate, rate->bytes, bytes);
}

static uint64_t allowed_from(const struct pulsar_rate *rate) {
    return rate->messages_until > rate->bytes_until ? rate->messages_until : rate->bytes_until;
}

/* What has come to be allowed of so many in a period. */
static double left(const struct acceptor *a, const struct pulsar_rate *rate, uint64_t until_ns, uint64_t most) {
    uint64_t since = a->now_ns - until_ns;
    if (since > rate->period_ns) since = rate->period_ns;
    return (double)since / (double)rate->period_ns * (double)most;
}

/* How many messages of this size may go now; INT64_MAX: any number. */
static int64_t allowed(const struct acceptor *a, const struct pulsar_rate *rate, double bytes) {
    if (allowed_from(rate) > a->now_ns) return 0;
    double most = (double)(INT64_MAX / 2);
    if (rate->messages > 0) most = left(a, rate, rate->messages_until, rate->messages);
    if (rate->bytes > 0) {
        double of_bytes = left(a, rate, rate->bytes_until, rate->bytes) / bytes;
        if (of_bytes < 1) of_bytes = 1; /* what goes beyond is waited for afterwards */
        if (of_bytes < most) most = of_bytes;
    }
    return most < (double)(INT64_MAX / 2) ? (int64_t)most : INT64_MAX;
}

/* It has come to allow a period's: more it never does. */
static bool is_full(const struct acceptor *a, const struct pulsar_rate *rate) {
    return (rate->messages == 0 || rate->messages_until + rate->period_ns <= a->now_ns) &&
           (rate->bytes == 0 || rate->bytes_until + rate->period_ns <= a->now_ns);
}

/* When one more than those may go, which are less than a period's. */
static uint64_t next_of(const struct acceptor *a, const struct pulsar_rate *rate, int64_t now) {
    if (allowed_from(rate) > a->now_ns) return allowed_from(rate);
    if (rate->messages == 0 || rate->bytes > 0) return a->now_ns + LOOK_NS;
    return rate->messages_until + (uint64_t)((double)(now + 1) / (double)rate->messages * (double)rate->period_ns);
}

/* The connection is looked at again then. */
static void look_at(struct acceptor *a, struct connection *c, uint64_t due_ns) {
    struct pulsar *p = pulsar_of(c);
    if (due_ns < a->now_ns + LOOK_NS) due_ns = a->now_ns + LOOK_NS;
    if (p->rates_due_ns != 0 && p->rates_due_ns <= due_ns) return;
    p->rates_due_ns = due_ns;
    pulsar_set_timer(a, c);
}

/* --- producers ------------------------------------------------------------------------------------------------------- */

bool pulsar_may_publish(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer) {
    struct pulsar_rate *rate = rate_at(a, c, producer->rate);
    if (rate == NULL || allowed_from(rate) <= a->now_ns) return true;
    rate->times++;
    look_at(a, c, allowed_from(rate));
    return stalled(c, STALL_OUTSTANDING);
}

void pulsar_take_published(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer,
                           uint64_t messages, uint64_t bytes) {
    struct pulsar_rate *rate = rate_at(a, c, producer->rate);
    if (rate != NULL) take(a, rate, messages, bytes);
}

/* --- consumers ------------------------------------------------------------------------------------------------------- */

void pulsar_lend(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer) {
    int64_t most = consumer->permits;
    uint64_t due_ns = 0;
    /* How large messages are shows when some have gone. */
    const struct pulsar_counts *sent = consumer->counts;
    double bytes = sent->messages > 0 ? (double)sent->bytes / (double)sent->messages + 1 : UNKNOWN_BYTES;
    for (uint32_t i = 0; i < PULSAR_RATES_OF_CONSUMER; i++) {
        const struct pulsar_rate *rate = rate_at(a, c, consumer->rates[i]);
        if (rate == NULL) continue;
        int64_t now = allowed(a, rate, bytes);
        if (now >= most) continue;
        most = now;
        if (!is_full(a, rate)) due_ns = next_of(a, rate, now);
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
    for (uint32_t i = 0; i < PULSAR_RATES_OF_CONSUMER; i++) {
        struct pulsar_rate *rate = rate_at(a, c, consumer->rates[i]);
        if (rate != NULL) take(a, rate, messages, bytes);
    }
    consumer->lent -= (int64_t)messages;
    pulsar_lend(a, c, consumer);
}

/* What it has asked for already comes at once, should it have no rate yet: nothing is taken back from its worker. */
void pulsar_limit_consumer(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           const uint32_t *rates) {
    bool limits = false;
    for (uint32_t i = 0; i < PULSAR_RATES_OF_CONSUMER; i++) {
        consumer->rates[i] = rates[i];
        limits |= rates[i] != 0;
    }
    if (!consumer->limited) consumer->lent = consumer->permits;
    consumer->limited = limits;
    pulsar_lend(a, c, consumer);
}

/* --- all of them ------------------------------------------------------------------------------------------------------ */

void pulsar_rates_due(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    if (p->rates_due_ns == 0 || p->rates_due_ns > a->now_ns) return;
    p->rates_due_ns = 0;
    pulsar_wake(a, c);
    for (uint32_t i = 0; i < p->consumers.capacity; i++) {
        struct pulsar_consumer *consumer = p->consumers.items[i];
        if (consumer != NULL && consumer->limited && consumer->open) pulsar_lend(a, c, consumer);
    }
}

struct rate_wish {
    uint64_t messages, bytes, period_ns;
};

int64_t pulsar_set_rate(struct pulsar_options *options, uint64_t number, const uint8_t *bytes, size_t bytes_count) {
    struct rate_wish wish;
    if (number == 0 || number >= PULSAR_MAX_RATES || bytes_count != sizeof wish) return CALL_REFUSED;
    memcpy(&wish, bytes, sizeof wish);
    if (wish.period_ns == 0 || wish.period_ns > LONGEST_NS) return CALL_REFUSED;
    if (number >= options->rate_count) {
        struct pulsar_rate *larger = realloc(options->rates, (number + 1) * sizeof *larger);
        if (larger == NULL) return CALL_CLOSED;
        memset(larger + options->rate_count, 0, (number + 1 - options->rate_count) * sizeof *larger);
        options->rates = larger;
        options->rate_count = (uint32_t)number + 1;
    }
    options->rates[number] =
        (struct pulsar_rate){.messages = wish.messages, .bytes = wish.bytes, .period_ns = wish.period_ns};
    return CALL_DONE;
}
