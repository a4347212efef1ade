/* Scripts of the shard protocol: messages straight into the rings of workers, as an acceptor sends them and as none
 * would; and workers that end and are read back from their segments.
 *
 * What is looked for, beside assertions and what the sanitizers see: each request of a connection is answered once, in
 * order; a consumer gets no more than its credit, and nothing before it is one or after it is dismissed; a catalog is
 * what message.h says; all counts of a worker are true at any time (audit.h); and what it held before it ended it
 * holds after, in the same state if no disk was full and no ephemeral channel was there.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"
#include "base/crc32c.h"
#include "catalog_check.h"
#include "ringbuf/channel.h"
#include "ringbuf/request_each.h"
#include "script.h"
#include "world.h"

enum {
    ACCEPTORS = 2,
    CONNECTIONS = 6, /* of each */
    TOPICS = 8,
    CHANNELS = 4,
    RECENT = 64,
    AWAITED = 64, /* of one connection and worker */
    MAX_BODY = 20000,
    MANY = 40,
    NAME_BYTES = 16,
    CONSUMERS = 3, /* of one connection and worker */
    TRANSACTIONS = 3,
    MANY_TURNS = 500,
    LEAST_PIECE = ACCEPTORS * CONNECTIONS + 1, /* each that goes on takes one step of it */
    LONG_HEADERS = HEADERS_MAX_BYTES + 1,
};

static const uint32_t consumer_numbers[CONSUMERS] = {0, 1, 3000000000u};

struct consuming {
    bool subscribed;
    uint64_t credit, highest_credit; /* the last that was sent; the highest that may be in force */
    uint32_t in_flight;              /* at least */
};

/* Of a connection, what concerns one worker. */
struct relation {
    struct {
        uint32_t slot, consumer;
        uint8_t kind;
    } awaited[AWAITED];
    uint32_t awaited_count;
    struct consuming as[CONSUMERS];
};

struct connection {
    uint32_t number;
    uint32_t next_slot;
    struct relation with[WORKERS];
};

static struct {
    struct channel *channels[ACCEPTORS][WORKERS];
    struct connection connections[ACCEPTORS][CONNECTIONS];
    uint64_t next_id;
    uint64_t recent[RECENT];
    uint32_t recent_count;
    bool ephemerals;
    bool unsure; /* what comes may have been sent before something that ended its flight */
} side;

/* --- names -------------------------------------------------------------------------------------------------------- */

static size_t topic_name(uint32_t topic, char *out) {
    bool ephemeral = side.ephemerals && topic >= TOPICS - 2;
    return (size_t)snprintf(out, NAME_BYTES, ephemeral ? "%u#ephemeral" : "t%u", topic);
}

static size_t channel_name(uint32_t channel, char *out) {
    bool ephemeral = side.ephemerals && channel == CHANNELS - 1;
    return (size_t)snprintf(out, NAME_BYTES, ephemeral ? "c#ephemeral" : "c%u", channel);
}

static uint32_t shard_of(uint32_t topic) {
    char name[NAME_BYTES];
    size_t bytes = topic_name(topic, name);
    return crc32c_extend(0, name, bytes) % SHARDS;
}

/* --- what comes back ---------------------------------------------------------------------------------------------- */

static struct connection *connection_of(uint32_t acceptor, uint32_t number) {
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        if (side.connections[acceptor][i].number == number) return &side.connections[acceptor][i];
    return NULL;
}

static struct consuming *consuming_of(struct relation *r, uint32_t number) {
    for (uint32_t i = 0; i < CONSUMERS; i++)
        if (consumer_numbers[i] == number) return &r->as[i];
    return NULL;
}

/* Headers are filled with 'h', bodies never. */
static void check_content(const struct message *m) {
    const uint8_t *body = (const uint8_t *)(m + 1);
    size_t bytes = 0, left = m->body_bytes;
    if (m->flags & MSG_PACKED) {
        body += sizeof(struct packed_run);
        left -= sizeof(struct packed_run);
    }
    if (m->flags & MSG_PARTS) {
        struct parts_head parts;
        memcpy(&parts, body, sizeof parts);
        assert(parts.words && parts.words <= PARTS_MAX_WORDS && "something is left of it");
        body += sizeof parts + parts.words * sizeof(uint64_t);
        left -= sizeof parts + parts.words * sizeof(uint64_t);
    }
    if (m->flags & MSG_HEADERS) {
        assert(headers_fit(body, left, &bytes) && "headers are whole");
        if (bytes > sizeof(struct headers)) assert(body[bytes - 1] == 'h');
    }
    assert(left - bytes <= MAX_BODY && (left == bytes || body[bytes] != 'h'));
}

/* How many messages a DELIVER is. */
static struct packed_run run_of(const struct message *m) {
    struct packed_run run = {.id = m->id, .count = 1};
    if (!(m->flags & MSG_PACKED)) return run;
    memcpy(&run, m + 1, sizeof run);
    assert(run.count > 0 && run.first + run.count <= PACKED_MAX_PARTS && (m->flags & MSG_HEADERS));
    return run;
}

static void pushed(struct relation *with, const struct message *m) {
    struct consuming *r = consuming_of(with, m->consumer);
    if (!r && m->kind == MSG_REFUSED) return; /* it named none */
    if (m->kind == MSG_ATTACHED) return;      /* a producer */
    assert(r);
    static const uint8_t tells[] = {MSG_FINISH, MSG_REQUEUE, MSG_EXTEND};
    switch (m->kind) {
    case MSG_DELIVER:
        assert(r->subscribed && "only a consumer gets messages");
        assert(m->attempts > 0 && m->attempts <= UINT16_MAX && m->topic > 0 && m->topic <= TOPICS);
        check_content(m);
        r->in_flight += run_of(m).count;
        if (!side.unsure) assert(r->in_flight <= r->highest_credit && "a consumer gets more than its credit");
        side.recent[side.recent_count++ % RECENT] = m->id;
        break;
    case MSG_ACTIVE:
        assert(m->active <= 1 && m->body_bytes == 0);
        r->in_flight = 0;
        break;
    case MSG_DISMISSED:
        assert(r->subscribed && m->body_bytes == 0);
        r->subscribed = false;
        r->in_flight = 0;
        break;
    case MSG_REFUSED:
        assert(memchr(tells, (int)m->pri, sizeof tells) && m->body_bytes == 0);
        assert(m->status == STATUS_NONE || m->status == STATUS_NOT_FOUND || m->status == STATUS_NO_SPACE ||
               m->status == STATUS_INVALID);
        break;
    default: assert(!"a worker says something unknown");
    }
}

static void replied(struct relation *r, const struct message *m) {
    assert(r->awaited_count && r->awaited[0].slot == m->slot && r->awaited[0].kind == m->kind &&
           "replies come in the order of the requests, one for each");
    struct consuming *as = consuming_of(r, r->awaited[0].consumer);
    memmove(r->awaited, r->awaited + 1, --r->awaited_count * sizeof *r->awaited);
    assert(m->status <= STATUS_TERMINATED);
    if (m->flags & MSG_HEADERS) check_content(m);
    if (m->kind == MSG_CATALOG && m->status == STATUS_OK) catalog_check((const uint8_t *)(m + 1), m->body_bytes);
    if (!as || m->status != STATUS_OK) return;
    if (m->kind == MSG_UNSUBSCRIBE) as->subscribed = false;
    if (m->kind != MSG_SUBSCRIBE) return;
    assert(!as->subscribed && "a consumer's number is one consumer's");
    as->subscribed = true;
    as->in_flight = 0;
}

/* The answer to several PUBLISHes, as those to each. */
static void replied_joined(struct relation *r, const struct message *m) {
    struct message one = *m;
    assert(m->kind == MSG_PUBLISH && m->status == STATUS_OK && m->body_bytes == 0);
    assert(m->count > 0 && m->count <= JOINED_MOST);
    for (uint32_t left = m->count; left > 0; left--, one.slot++, one.seq++) replied(r, &one);
}

static bool hear(uint32_t acceptor, uint32_t worker) {
    struct channel *channel = side.channels[acceptor][worker];
    const struct message *m;
    bool any = false;
    while ((m = channel_receive(channel)) != NULL) {
        any = true;
        trace("%u.%u.%u hears %u: status %u, id %llu, pri %u, %u bytes", acceptor, worker, m->conn, m->kind, m->status,
              (unsigned long long)m->id, m->pri, m->body_bytes);
        struct connection *c = connection_of(acceptor, m->conn);
        if (c && m->kind >= MSG_DELIVER) pushed(&c->with[worker], m);
        bool joined = m->kind < MSG_DELIVER && (m->flags & MSG_JOINED) != 0;
        if (c && joined) replied_joined(&c->with[worker], m);
        if (c && m->kind < MSG_DELIVER && !joined) replied(&c->with[worker], m);
    }
    assert(!channel_broken(channel));
    channel_release(channel);
    return any;
}

/* --- what is sent ------------------------------------------------------------------------------------------------- */

/* Who sends a consumer away hears that it was dismissed, if it was one. */
static bool has_reply(const struct message *m) {
    if (m->kind == MSG_UNSUBSCRIBE && m->flags & MSG_DISMISS) return false;
    return m->kind >= MSG_PUBLISH && m->kind < MSG_DELIVER;
}

/* Of no reply, so that the place of the slot is a consumer's number. */
static bool is_consumers(uint8_t kind) {
    return kind >= MSG_CREDIT && kind <= MSG_SENT;
}

/* What goes together, as an acceptor sends it. */
static struct {
    bool begun;
    uint32_t acceptor, worker;
    struct message head;
    struct request_each each[REQUESTS_MOST];
} gathered;

static void send_gathered(void) {
    struct channel *channel = side.channels[gathered.acceptor][gathered.worker];
    struct message *m = &gathered.head;
    if (m->several == 0) return;
    m->body_bytes = request_each_bytes(m->several);
    channel_send(channel, m, gathered.each, m->body_bytes);
    channel_publish(channel);
    m->several = 0;
}

/* False: it goes by itself, behind those. */
static bool gather(uint32_t acceptor, uint32_t worker, const struct message *m) {
    struct request_each each;
    bool may = gathered.begun && request_each_has(m->kind) && request_each_of(&each, m);
    if (!may || worker != gathered.worker || gathered.head.several == REQUESTS_MOST) send_gathered();
    if (!may) return false;
    gathered.acceptor = acceptor;
    gathered.worker = worker;
    gathered.head.kind = MSG_REQUEST_EACH;
    gathered.head.conn = m->conn;
    gathered.each[gathered.head.several++] = each;
    return true;
}

static void tell(uint32_t acceptor, uint32_t worker, struct message m, const void *body, size_t body_bytes) {
    struct channel *channel = side.channels[acceptor][worker];
    if (channel_backlogged(channel)) return; /* an acceptor would wait */
    m.body_bytes = (uint32_t)body_bytes;
    trace("%u.%u.%u says %u: topic %u, id %llu, pri %u, delay %lld, flags %u, %zu bytes: %.*s", acceptor, worker,
          m.conn, m.kind, m.topic, (unsigned long long)m.id, m.pri, (long long)m.delay_ns, m.flags, body_bytes,
          (int)(body_bytes < 24 ? body_bytes : 0), (const char *)body);
    if (gather(acceptor, worker, &m)) return;
    channel_send(channel, &m, body, body_bytes);
    channel_publish(channel);
}

static void ask(uint32_t acceptor, struct connection *c, uint32_t worker, struct message m, const void *body,
                size_t body_bytes) {
    struct relation *r = &c->with[worker];
    if (channel_backlogged(side.channels[acceptor][worker]) || r->awaited_count == AWAITED) return;
    m.conn = c->number;
    if (!is_consumers(m.kind)) m.slot = c->next_slot++;
    if (!pick(24)) m.flags |= (uint16_t)(1u << pick(16));
    if (has_reply(&m)) {
        bool of_consumer = m.kind == MSG_SUBSCRIBE || m.kind == MSG_UNSUBSCRIBE;
        r->awaited[r->awaited_count].slot = m.slot;
        r->awaited[r->awaited_count].consumer = of_consumer ? m.consumer_number : UINT32_MAX;
        r->awaited[r->awaited_count++].kind = m.kind;
    }
    tell(acceptor, worker, m, body, body_bytes);
}

static void open_topics(uint32_t acceptor, uint32_t worker) {
    for (uint32_t topic = 0; topic < TOPICS; topic++) {
        char name[NAME_BYTES];
        size_t bytes = topic_name(topic, name);
        struct message open = {.kind = MSG_OPEN, .topic = topic + 1, .id = shard_of(topic)};
        if (shard_of(topic) % WORKERS == worker) tell(acceptor, worker, open, name, bytes);
    }
}

static void join(uint32_t acceptor, uint32_t worker) {
    int there, back;
    rings_make(&there, &back);
    if (side.channels[acceptor][worker]) channel_close(side.channels[acceptor][worker]);
    side.channels[acceptor][worker] = channel_open(there, back, -1, 1 << 30);
    bool joined = side.channels[acceptor][worker] && worker_peer(world.workers[worker], acceptor, back, there, -1);
    assert(joined);
    close(there);
    close(back);
    for (uint32_t i = 0; i < CONNECTIONS; i++) side.connections[acceptor][i].with[worker] = (struct relation){0};
    open_topics(acceptor, worker);
    side.unsure = true;
}

static uint64_t some_id(void) {
    if (pick(4) && side.recent_count)
        return side.recent[(side.recent_count - 1 - pick(side.recent_count < 12 ? side.recent_count : 12)) % RECENT];
    return (uint64_t)(1 + pick(64)) * SHARDS + pick(SHARDS);
}

static uint64_t some_time(void) {
    static const uint64_t times[] = {0, 1, SECOND / 1000, SECOND / 2, SECOND, 3 * SECOND, UINT64_MAX};
    return times[pick(7)];
}

static uint64_t new_ids(uint32_t topic, uint32_t count) {
    uint64_t first = side.next_id * SHARDS + shard_of(topic);
    side.next_id += count;
    return first;
}

static uint32_t some_size(void) {
    static const uint32_t sizes[] = {0, 1, 5, 40, 200, 1500, 5000, MAX_BODY};
    return sizes[pick(8)];
}

static uint8_t scratch[MANY * (4 + 2200) + LONG_HEADERS + MAX_BODY + DESCRIPTION_MAX_BYTES + 64];

/* Now and then too long. Returns how many bytes they are, with the struct before them; fewer than `most`. */
static size_t put_headers(uint8_t *out, bool many, uint16_t parts) {
    static const uint32_t sizes[] = {0, 1, 30, 600, HEADERS_MAX_BYTES, LONG_HEADERS};
    struct headers h = {
        .bytes = sizes[pick(many ? 4 : 6)], .tag = (uint16_t)pick(5), .key_hash = pick(4), .parts = parts};
    if (parts > 0) h.packed_bytes = pick(3) * 1000;
    memcpy(out, &h, sizeof h);
    memset(out + sizeof h, 'h', h.bytes);
    return sizeof h + h.bytes;
}

/* A body that is `bytes` long may come out a little different. */
static size_t spoilt(size_t bytes) {
    if (pick(12)) return bytes;
    size_t place = bytes ? pick((uint32_t)bytes) : 0;
    scratch[place] = byte();
    return pick(3) ? bytes : place;
}

static void publish(uint32_t acceptor, struct connection *c) {
    static const uint16_t some_parts[] = {0, 0, 0, 1, 2, 3, 70, PACKED_MAX_PARTS, PACKED_MAX_PARTS + 1};
    uint32_t topic = pick(TOPICS), bytes = some_size(), worker = shard_of(topic) % WORKERS;
    uint16_t parts = some_parts[pick(9)];
    struct message m = {.kind = MSG_PUBLISH,
                        .flags = (pick(4) ? MSG_DURABLE : 0) | (pick(2) ? MSG_JOINED : 0),
                        .topic = topic + 1,
                        .id = new_ids(topic, parts + 1u),
                        .pri = 1024 - pick(2),
                        .ttr_ns = SECOND};
    if (!pick(4)) m.delay_ns = some_time();
    if (!pick(64)) m.id++;
    size_t before = 0;
    if (!pick(8)) {
        struct producer_part part = {.writer = pick(4), .batch = pick(8), .part = !pick(32), .more = pick(3)};
        m.flags |= MSG_IDEMPOTENT;
        memcpy(scratch, &part, sizeof part);
        before = sizeof part;
    }
    if (!pick(4)) {
        m.flags |= MSG_HEADERS;
        before += put_headers(scratch + before, false, parts);
    }
    memset(scratch + before, 'm', bytes);
    ask(acceptor, c, worker, m, scratch, before + bytes);
}

/* Several, of which now and then something is wrong; whatever it is, each is answered, or one for all is that it is INVALID. */
static void publish_each(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS, count = 1 + pick(pick(4) ? 6 : EACH_MOST);
    struct relation *r = &c->with[worker];
    if (channel_backlogged(side.channels[acceptor][worker]) || r->awaited_count + count > AWAITED) return;
    struct message m = {.kind = MSG_PUBLISH_EACH,
                        .several = (uint8_t)count,
                        .flags = pick(4) ? MSG_DURABLE : 0,
                        .conn = c->number,
                        .slot = c->next_slot,
                        .topic = topic + 1,
                        .pri = 1024 - pick(2),
                        .ttr_ns = SECOND};
    if (!pick(4)) m.delay_ns = some_time();
    if (!pick(8)) m.flags |= (uint16_t)(1u << pick(16));
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct publish_each each = {.id = new_ids(topic, 1),
                                    .bytes = pick(8) ? pick(60) : some_size() % EACH_BODY_BYTES};
        if (i == 0) m.id = each.id;
        if (!pick(200)) each.id += pick(4) - 1;
        if (bytes + publish_each_bytes(each.bytes) > sizeof scratch - EACH_MOST * sizeof each) each.bytes = 0;
        memset(scratch + bytes, 0, publish_each_bytes(each.bytes));
        memcpy(scratch + bytes, &each, sizeof each);
        memset(scratch + bytes + sizeof each, 'm', each.bytes);
        bytes += publish_each_bytes(each.bytes);
    }
    c->next_slot += count;
    uint32_t answers = count;
    if (!pick(16)) { /* one more, or fewer, than there are: none is whole */
        m.several += pick(2) ? 1 : -1;
        if (pick(2)) bytes -= 1 + pick(12);
        answers = 0;
    }
    for (uint32_t i = 0; i < (answers ? answers : 1); i++) {
        r->awaited[r->awaited_count].slot = m.slot + i;
        r->awaited[r->awaited_count].consumer = UINT32_MAX;
        r->awaited[r->awaited_count++].kind = answers ? MSG_PUBLISH : MSG_PUBLISH_EACH;
    }
    tell(acceptor, worker, m, scratch, bytes);
}

/* Few names, so that they are often taken. */
static void attach(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS;
    struct attach a = {.access = pick(16) ? pick(4) : pick(6), .epoch = pick(3), .least = pick(3) ? NO_PLACE : pick(3)};
    static const uint32_t lengths[] = {0, ATTACH_NAME_MAX, ATTACH_NAME_MAX + 1};
    size_t name_bytes = pick(8) ? 1 : lengths[pick(3)];
    memcpy(scratch, &a, sizeof a);
    memset(scratch + sizeof a, 'a' + (int)pick(3), name_bytes);
    struct message m = {.kind = MSG_ATTACH, .topic = topic + 1, .producer_number = pick(3)};
    ask(acceptor, c, worker, m, scratch, spoilt(sizeof a + name_bytes));
}

static void detach(uint32_t acceptor, struct connection *c) {
    uint32_t worker = pick(WORKERS);
    ask(acceptor, c, worker, (struct message){.kind = MSG_DETACH, .producer_number = pick(3)}, NULL, 0);
}

static void publish_many(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), count = pick(MANY) + 1, worker = shard_of(topic) % WORKERS;
    struct message m = {
        .kind = MSG_PUBLISH_MANY, .topic = topic + 1, .id = new_ids(topic, count), .pri = count, .ttr_ns = SECOND};
    if (!pick(6)) m.delay_ns = some_time();
    size_t bytes = 0;
    if (!pick(3)) {
        /* Now in turn, now again, now too early, of a few producers or of one of many that push each other out. */
        struct producer_part part = {
            .writer = pick(5) ? pick(4) : pick(3 * SHARD_WRITERS), .batch = pick(4), .part = pick(4)};
        m.flags |= MSG_IDEMPOTENT;
        memcpy(scratch, &part, sizeof part);
        bytes = sizeof part;
    }
    uint32_t size = some_size() % 1501;
    if (!pick(4)) m.flags |= MSG_HEADERS;
    for (uint32_t i = 0; i < count; i++) {
        size_t before = m.flags & MSG_HEADERS ? put_headers(scratch + bytes + 4, true, 0) : 0;
        const uint8_t head[] = {0, 0, (uint8_t)((before + size) >> 8), (uint8_t)(before + size)};
        memcpy(scratch + bytes, head, sizeof head);
        memset(scratch + bytes + 4 + before, 'n', size);
        bytes += 4 + before + size;
    }
    if (!pick(16)) m.pri += pick(3) - 1;
    ask(acceptor, c, worker, m, scratch, spoilt(bytes));
}

static uint32_t some_consumer(void) {
    return consumer_numbers[pick(CONSUMERS)];
}

static void subscribe(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS, channel = pick(CHANNELS);
    static const uint32_t lengths[] = {0, 3, 300, DESCRIPTION_MAX_BYTES, DESCRIPTION_MAX_BYTES + 1};
    /* A time of 0 is over before any has passed. */
    uint64_t timeout_ns = some_time(), timeout_max_ns = some_time();
    struct subscribe s = {.timeout_ns = timeout_ns ? timeout_ns : 1,
                          .timeout_max_ns = timeout_max_ns ? timeout_max_ns : 1,
                          .description_bytes = lengths[pick(5)]};
    if (!pick(4)) s.sample_percent = pick(128);
    if (!pick(4)) s.max_consumers = pick(3);
    s.name_bytes = (uint16_t)channel_name(channel, (char *)scratch + sizeof s);
    if (scratch[sizeof s + 1] == '#') s.flags = SUBSCRIBE_EPHEMERAL;
    if (!pick(3)) s.flags |= SUBSCRIBE_HEADERS;
    if (!pick(8)) s.flags |= (uint16_t)(2u << pick(15));
    memset(scratch + sizeof s + s.name_bytes, 'd', s.description_bytes);
    size_t bytes = sizeof s + s.name_bytes + s.description_bytes;
    s.flags &= (uint16_t)~SUBSCRIBE_POLICY;
    if (!pick(3)) {
        struct subscribe_policy policy = {.policy = (uint16_t)(pick(20) ? channel % 4 : pick(6)),
                                          .name_bytes = (uint16_t)pick(3),
                                          .priority = pick(3),
                                          .ranges = pick(4) ? 0 : pick(3),
                                          .most_in_flight = pick(4) ? 0 : pick(4)};
        s.flags |= SUBSCRIBE_POLICY;
        memcpy(scratch + bytes, &policy, sizeof policy);
        bytes += sizeof policy;
        for (uint32_t i = 0; i < policy.name_bytes + 4 * policy.ranges; i++) scratch[bytes++] = byte();
    }
    memcpy(scratch, &s, sizeof s);
    if (side.ephemerals && !pick(8)) bytes = spoilt(bytes);
    ask(acceptor, c, worker,
        (struct message){.kind = MSG_SUBSCRIBE, .topic = topic + 1, .consumer_number = some_consumer()}, scratch,
        bytes);
}

static void unsubscribe(uint32_t acceptor, struct connection *c) {
    ask(acceptor, c, pick(WORKERS), (struct message){.kind = MSG_UNSUBSCRIBE, .consumer_number = some_consumer()}, NULL,
        0);
    side.unsure = true;
}

static void change(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS;
    size_t bytes = topic_name(topic, (char *)scratch);
    if (pick(4)) {
        scratch[bytes++] = '\n';
        bytes += channel_name(pick(CHANNELS), (char *)scratch + bytes);
    }
    struct message m = {.kind = MSG_CHANGE, .id = shard_of(topic), .pri = pick(8)};
    if (!pick(32)) m.id = some_id();
    ask(acceptor, c, worker, m, scratch, spoilt(bytes));
    side.unsure = true;
}

/* What is in flight may end without a word. */
static void forget_flights(void) {
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            for (uint32_t w = 0; w < WORKERS; w++)
                for (uint32_t n = 0; n < CONSUMERS; n++) side.connections[a][i].with[w].as[n].in_flight = 0;
    side.unsure = true;
}

static void consume(uint32_t acceptor, struct connection *c) {
    static const uint8_t kinds[] = {MSG_FINISH, MSG_FINISH, MSG_FINISH, MSG_REQUEUE, MSG_EXTEND};
    uint32_t worker = 0, consumer = pick(CONSUMERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (c->with[i].as[consumer].subscribed) worker = i;
    struct consuming *r = &c->with[worker].as[consumer];
    struct message m = {.kind = kinds[pick(5)], .consumer = consumer_numbers[consumer], .id = some_id()};
    if (!pick(32)) m.consumer = byte();
    size_t bytes = 0;
    if (m.kind == MSG_FINISH && !pick(4)) {
        m.flags |= MSG_PARTS;
        bytes = pick(8) ? sizeof(uint64_t) * (1 + pick(2)) : pick(160);
        for (size_t i = 0; i < bytes; i++) scratch[i] = byte() & byte();
    }
    if (m.kind == MSG_FINISH && !pick(12)) {
        m.flags |= MSG_UPTO;
        m.seq = pick(100);
        forget_flights();
    }
    if (m.kind == MSG_REQUEUE && pick(2)) m.delay_ns = some_time();
    /* It may have been in flight. */
    if (m.kind != MSG_EXTEND && r->in_flight) r->in_flight--;
    ask(acceptor, c, worker, m, scratch, bytes);
}

static void credit(uint32_t acceptor, struct connection *c) {
    static const uint64_t credits[] = {0, 1, 2, 5, 30, 1000, UINT64_MAX};
    uint64_t count = credits[pick(7)];
    uint32_t consumer = pick(CONSUMERS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (channel_backlogged(side.channels[acceptor][i])) continue;
        struct consuming *r = &c->with[i].as[consumer];
        r->credit = count;
        if (count > r->highest_credit) r->highest_credit = count;
        struct message m = {.kind = MSG_CREDIT, .consumer = consumer_numbers[consumer], .credit = count};
        ask(acceptor, c, i, m, NULL, 0);
    }
}

static void sent(uint32_t acceptor, struct connection *c) {
    static const uint64_t counts[] = {0, 1, 3000, WINDOW_BYTES / 4, WINDOW_BYTES, UINT64_MAX};
    struct message m = {.kind = MSG_SENT, .consumer = some_consumer(), .sent_bytes = counts[pick(6)]};
    ask(acceptor, c, pick(WORKERS), m, NULL, 0);
}

static void ask_catalog(uint32_t acceptor, struct connection *c) {
    size_t bytes = pick(2) ? topic_name(pick(TOPICS), (char *)scratch) : 0;
    ask(acceptor, c, pick(WORKERS), (struct message){.kind = MSG_CATALOG, .pri = pick(2)}, scratch, bytes);
}

/* A message of a transaction. */
static void stage(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), bytes = some_size();
    struct message m = {.kind = MSG_PUBLISH,
                        .flags = MSG_TXN | MSG_DURABLE | (pick(16) ? MSG_RETAIN : 0),
                        .topic = topic + 1,
                        .id = new_ids(topic, 1),
                        .txn = pick(TRANSACTIONS)};
    memset(scratch, 'm', bytes);
    ask(acceptor, c, shard_of(topic) % WORKERS, m, scratch, bytes);
}

/* What is finished if a transaction is committed: a message of late, or parts of it. */
static void acknowledge(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = MSG_TXN_ACK, .topic = topic + 1, .id = pick(TRANSACTIONS), .seq = pick(100)};
    size_t bytes = 0;
    m.consumer_number = some_consumer();
    if (!pick(4)) m.flags |= MSG_UPTO;
    if (!pick(4)) bytes = sizeof(uint64_t) * (1 + pick(2));
    for (size_t i = 0; i < bytes; i++) scratch[i] = byte() & byte();
    ask(acceptor, c, shard_of(topic) % WORKERS, m, scratch, bytes);
    forget_flights();
}

static void end_transaction(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = MSG_TXN_END, .topic = topic + 1, .id = pick(TRANSACTIONS), .commit = pick(3) != 0};
    ask(acceptor, c, shard_of(topic) % WORKERS, m, NULL, 0);
    forget_flights();
}

/* Of the job queue. */
static void of_queue(uint32_t acceptor, struct connection *c) {
    static const uint8_t kinds[] = {
        MSG_USE,         MSG_WATCH, MSG_WATCH,   MSG_IGNORE,     MSG_RETURN,     MSG_RESERVE,
        MSG_RESERVE,     MSG_PROBE, MSG_TAKE,    MSG_RESERVE_ID, MSG_DELETE,     MSG_DELETE,
        MSG_RELEASE,     MSG_BURY,  MSG_TOUCH,   MSG_PEEK_ID,    MSG_PEEK_READY, MSG_PEEK_DELAYED,
        MSG_PEEK_BURIED, MSG_KICK,  MSG_KICK_ID, MSG_STATS_ID,   MSG_LIST,       MSG_BARRIER,
    };
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = kinds[pick(sizeof kinds)], .topic = topic + 1, .id = some_id(), .pri = 1024 - pick(2)};
    if (!pick(3)) m.delay_ns = some_time();
    if (m.kind == MSG_RESERVE && pick(4)) m.delay_ns = 0;
    if (!pick(8)) m.flags = MSG_IMPLICIT;
    bool by_id = m.kind == MSG_DELETE || m.kind == MSG_RESERVE_ID;
    ask(acceptor, c, by_id ? (uint32_t)(m.id % SHARDS % WORKERS) : shard_of(topic) % WORKERS, m, NULL, 0);
}

/* Whatever it is; but no messages of the same id, which an acceptor never gives. */
static void anything(uint32_t acceptor, struct connection *c) {
    struct message m = {.kind = byte(),
                        .flags = pick(8) ? 0 : (uint16_t)(byte() | byte() << 8),
                        .topic = pick(TOPICS + 3),
                        .id = some_id()};
    if (m.kind == MSG_PUBLISH || m.kind == MSG_PUBLISH_MANY || m.kind == MSG_OPEN || m.kind == MSG_GONE) return;
    m.pri = byte();
    m.delay_ns = some_time();
    if (!pick(4)) m.id = m.pri;
    size_t bytes = pick(40);
    for (size_t i = 0; i < bytes; i++) scratch[i] = byte();
    if (m.kind == MSG_CREDIT || m.kind > MSG_DELIVER) return;
    if (m.kind == MSG_SUBSCRIBE || m.kind == MSG_UNSUBSCRIBE) m.consumer_number = some_consumer();
    if (m.kind == MSG_UNSUBSCRIBE) side.unsure = true;
    if (m.kind == MSG_CHANGE) side.unsure = true;
    ask(acceptor, c, pick(WORKERS), m, scratch, bytes);
}

static void go(uint32_t acceptor, struct connection *c) {
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (channel_backlogged(side.channels[acceptor][i])) return;
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        tell(acceptor, i, (struct message){.kind = MSG_GONE, .conn = c->number}, NULL, 0);
    *c = (struct connection){.number = c->number + CONNECTIONS};
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static bool takes_turn(uint32_t worker) {
    trace("worker %u takes a turn", worker);
    bool alive = worker_takes_turn(worker);
    audit_worker(world.workers[worker]);
    return alive;
}

static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 2; turns++) {
        assert(turns < UNTIL_QUIET && "the workers are busy for ever");
        bool alive = false;
        for (uint32_t i = 0; i < WORKERS; i++) {
            alive |= takes_turn(i);
            for (uint32_t a = 0; a < ACCEPTORS; a++) {
                alive |= channel_backlogged(side.channels[a][i]);
                alive |= hear(a, i);
            }
        }
        quiet = alive ? 0 : quiet + 1;
    }
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            for (uint32_t w = 0; w < WORKERS; w++)
                for (uint32_t n = 0; n < CONSUMERS; n++) {
                    struct consuming *as = &side.connections[a][i].with[w].as[n];
                    as->highest_credit = as->credit;
                }
    side.unsure = false;
}

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 2, SECOND, 2 * SECOND, 5 * SECOND};
    world_pass_time(spans[pick(6)]);
    forget_flights();
}

#ifdef SPOIL
static bool spoil(uint32_t worker, struct holdings *held);
#endif

/* So that all that it held must be there again. */
static void end_what_goes_on(uint32_t worker) {
    for (int turns = 0; turns < MANY_TURNS && likeness_now(world.workers[worker]) != ALIKE; turns++) takes_turn(worker);
}

static void restart_worker(uint32_t worker) {
    takes_turn(worker);
    if (world.piece && pick(2)) end_what_goes_on(worker);
    enum likeness likeness = world.piece ? likeness_now(world.workers[worker]) : ALIKE;
    if (world.disk_was_full && likeness < NO_LESS) likeness = NO_LESS;
    if (side.ephemerals) likeness = NO_NAME_LESS;
    trace("worker %u ends and is back", worker);
    struct holdings before = holdings_of(world.workers[worker]);
#ifdef SPOIL
    /* Without either of the two places of a name nothing is promised but that all counts are true. */
    bool promised = spoil(worker, &before);
    worker_start(worker);
    audit_worker(world.workers[worker]);
    struct holdings after = holdings_of(world.workers[worker]);
    if (promised) holdings_survive(&before, &after, likeness == ALIKE ? NO_LESS : likeness);
#else
    worker_stop(worker);
    worker_start(worker);
    audit_worker(world.workers[worker]);
    struct holdings after = holdings_of(world.workers[worker]);
    holdings_survive(&before, &after, likeness);
#endif
    holdings_free(&before);
    holdings_free(&after);
    for (uint32_t a = 0; a < ACCEPTORS; a++) join(a, worker);
    forget_flights();
}

static void see_to_segments(void) {
    uint32_t shard = pick(SHARDS);
    uint32_t what = pick(4);
    trace("shard %u %s", shard, what == 0 ? "rolls" : what == 1 ? "drops what is dead" : "moves what is live");
    switch (what) {
    case 0: worker_roll(world.workers[shard % WORKERS], shard); break;
    case 1: shard_drops_dead(shard); break;
    default: shard_moves_live(shard, 1 + pick(4) * 3000); break;
    }
}

/* What comes in runs; among it now and then something that does not. */
static void together(uint32_t acceptor, struct connection *c) {
    gathered.begun = true;
    for (uint32_t n = pick(16); n < 16; n++) {
        switch (pick(8)) {
        case 0: credit(acceptor, c); break;
        case 1: sent(acceptor, c); break;
        case 2:
        case 3: consume(acceptor, c); break;
        default: of_queue(acceptor, c);
        }
    }
    send_gathered();
    gathered.begun = false;
}

/* One answer is that it is none. */
static void damaged_requests(uint32_t acceptor, struct connection *c) {
    static const uint8_t kinds[] = {MSG_DELETE, MSG_RESERVE, MSG_FINISH, MSG_GONE, MSG_PUBLISH, MSG_REQUEST_EACH, 255};
    struct request_each each[24] = {0};
    uint32_t count = 1 + pick(16);
    for (uint32_t i = 0; i < count; i++) each[i] = (struct request_each){.kind = kinds[pick(7)], .value = some_id()};
    struct message m = {.kind = MSG_REQUEST_EACH, .several = (uint8_t)count};
    size_t bytes = request_each_bytes(count);
    if (pick(2))
        bytes -= 1 + pick((uint32_t)bytes);
    else if (pick(2))
        m.several = (uint8_t)(count + 8);
    else
        each[pick(count)].kind = kinds[3 + pick(4)];
    ask(acceptor, c, pick(WORKERS), m, each, bytes);
}

static void step(void) {
    uint32_t acceptor = pick(ACCEPTORS);
    struct connection *c = &side.connections[acceptor][pick(CONNECTIONS)];
    switch (pick(32)) {
    case 0: go(acceptor, c); break;
    case 1: restart_worker(pick(WORKERS)); break;
    case 2:
        if (!pick(4)) join(acceptor, pick(WORKERS));
        break;
    case 3:
    case 4: run_until_quiet(); break;
    case 5:
    case 6: (void)takes_turn(pick(WORKERS)); break;
    case 7: (void)hear(acceptor, pick(WORKERS)); break;
    case 8: pass_time(); break;
    case 9:
    case 10: see_to_segments(); break;
    case 11: disk_set_full(world.disk_was_full && pick(4) == 0); break;
    case 12: change(acceptor, c); break;
    case 13:
        for (uint32_t n = pick(4); n < 4; n++) change(acceptor, c);
        break;
    case 14: anything(acceptor, c); break;
    case 15:
        switch (pick(8)) {
        case 0:
        case 1: ask_catalog(acceptor, c); break;
        case 2:
        case 3: unsubscribe(acceptor, c); break;
        case 4: attach(acceptor, c); break;
        case 5: detach(acceptor, c); break;
        default: end_transaction(acceptor, c);
        }
        break;
    case 16: sent(acceptor, c); break;
    case 17: (pick(8) ? together : damaged_requests)(acceptor, c); break;
    case 18: of_queue(acceptor, c); break;
    case 19:
    case 20: credit(acceptor, c); break;
    case 21:
    case 22: subscribe(acceptor, c); break;
    case 23:
    case 24: publish_many(acceptor, c); break;
    case 25: publish_each(acceptor, c); break;
    case 26: publish(acceptor, c); break;
    case 27: (pick(3) ? publish : stage)(acceptor, c); break;
    case 28: (pick(2) ? consume : acknowledge)(acceptor, c); break;
    default:
        for (uint32_t n = pick(6); n < 6; n++) consume(acceptor, c);
        break;
    }
}

void run_script(void) {
    uint8_t kind = byte();
    world_begin((uint64_t)(8 + 8 * (kind & 7)) << 10);
    memset(&side, 0, sizeof side);
    side.next_id = 1;
    side.ephemerals = (kind & 0x18) == 0;
    world.disk_was_full = (kind & 0x60) == 0; /* or will be */
    /* What usually takes a turn takes several: publishes are groups, backlogs are handed over. */
    if (kind & 0x80) world.piece = LEAST_PIECE + pick(20);
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++) side.connections[a][i].number = 1 + i;
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        for (uint32_t a = 0; a < ACCEPTORS; a++) join(a, i);
    }
    while (script_goes_on()) step();
    disk_set_full(false);
    run_until_quiet();
    for (uint32_t i = 0; i < WORKERS; i++) restart_worker(i);
    run_until_quiet();
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t a = 0; a < ACCEPTORS; a++) channel_close(side.channels[a][i]);
        worker_stop(i);
    }
    world_end();
}
