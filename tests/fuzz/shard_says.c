/* What acceptors say to workers: requests of all kinds, several together, right, wrong and nearly right. */
#include "base/crc32c.h"
#include "ringbuf/request_each.h"
#include "shard_play.h"

enum {
    MANY = 40,
    LONG_HEADERS = HEADERS_MAX_BYTES + 1,
};

const uint32_t consumer_numbers[CONSUMERS] = {0, 1, 3000000000u};
struct side side;
uint16_t flags_sent[256];

/* Flags that each message gets beside its own. */
static uint16_t more_flags;

/* --- names -------------------------------------------------------------------------------------------------------- */

static size_t topic_name(uint32_t topic, char *out) {
    bool ephemeral = side.ephemerals && topic >= TOPICS - 2;
    return (size_t)snprintf(out, NAME_BYTES, ephemeral ? "%u#ephemeral" : "t%u", topic);
}

static uint16_t said_of(uint32_t topic) {
    return side.ephemerals && topic >= TOPICS - 2 ? MSG_TOPIC_EPHEMERAL : 0;
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

/* --- how it is sent ----------------------------------------------------------------------------------------------- */

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

/* Of flags that do not belong to a message, those that it may get all the same. What is taken for an arrival is not
 * taken for headers: what is left of these would be a body. */
static uint16_t strange(const struct message *m, uint16_t flags) {
    bool has_headers = m->kind == MSG_PUBLISH && m->flags & MSG_HEADERS;
    return has_headers ? flags & (uint16_t)~MSG_OF_PRODUCER : flags;
}

static void tell(uint32_t acceptor, uint32_t worker, struct message m, const void *body, size_t body_bytes) {
    struct channel *channel = side.channels[acceptor][worker];
    if (channel_backlogged(channel)) return; /* an acceptor would wait */
    m.body_bytes = (uint32_t)body_bytes;
    m.flags |= strange(&m, more_flags);
    flags_sent[m.kind] |= m.flags;
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
    m.flags |= strange(&m, more_flags);
    if (!pick(24)) m.flags |= strange(&m, (uint16_t)(1u << pick(16)));
    /* Permits add up. */
    for (uint32_t i = 0; i < CONSUMERS && m.kind == MSG_CREDIT && m.flags & MSG_PERMITS; i++)
        if (consumer_numbers[i] == m.consumer) r->as[i].credit = r->as[i].highest_credit = UINT64_MAX;
    if (has_reply(&m)) {
        bool of_consumer = m.kind == MSG_SUBSCRIBE || m.kind == MSG_UNSUBSCRIBE;
        r->awaited[r->awaited_count].slot = m.slot;
        r->awaited[r->awaited_count].consumer = of_consumer ? m.consumer_number : UINT32_MAX;
        r->awaited[r->awaited_count++].kind = m.kind;
    }
    tell(acceptor, worker, m, body, body_bytes);
}

static void open_topic(uint32_t acceptor, uint32_t topic) {
    char name[NAME_BYTES];
    size_t bytes = topic_name(topic, name);
    struct message open = {.kind = MSG_OPEN, .flags = said_of(topic), .topic = topic + 1, .id = shard_of(topic)};
    tell(acceptor, shard_of(topic) % WORKERS, open, name, bytes);
}

void say_open(uint32_t acceptor, uint32_t worker) {
    for (uint32_t topic = 0; topic < TOPICS; topic++)
        if (shard_of(topic) % WORKERS == worker) open_topic(acceptor, topic);
}

/* --- what is sent ------------------------------------------------------------------------------------------------- */

static uint64_t some_id(void) {
    if (pick(4) && side.recent_count)
        return side.recent[(side.recent_count - 1 - pick(side.recent_count < 12 ? side.recent_count : 12)) % RECENT];
    return (uint64_t)(1 + pick(64)) * SHARDS + pick(SHARDS);
}

static uint64_t some_time(void) {
    static const uint64_t times[] = {0, 1, SECOND / 1000, SECOND / 2, SECOND, 3 * SECOND, UINT64_MAX};
    return times[pick(7)];
}

/* By the wall clock, in whole ms; now and then long ago. */
static uint64_t some_due(void) {
    return pick(8) ? (world.wall + some_time() % (100 * SECOND)) / MS_NS * MS_NS : pick(3) * MS_NS;
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

void say_publish(uint32_t acceptor, struct connection *c) {
    static const uint16_t some_parts[] = {0, 0, 0, 1, 2, 3, 70, 1100, PACKED_MAX_PARTS, PACKED_MAX_PARTS + 1};
    uint32_t topic = pick(TOPICS), bytes = some_size(), worker = shard_of(topic) % WORKERS;
    uint16_t parts = some_parts[pick(10)];
    struct message m = {.kind = MSG_PUBLISH,
                        .flags = (pick(4) ? MSG_DURABLE : 0) | (pick(2) ? MSG_JOINED : 0),
                        .topic = topic + 1,
                        .id = new_ids(topic, parts + 1u),
                        .pri = 1024 - pick(2),
                        .ttr_ns = SECOND};
    if (!pick(4)) m.delay_ns = some_time();
    if (!pick(8)) m.flags |= MSG_DUE, m.delay_ns = some_due();
    if (!pick(64)) m.id++;
    size_t before = 0;
    if (!pick(4)) {
        uint64_t arrival = pick(64);
        m.flags |= MSG_OF_PRODUCER;
        memcpy(scratch, &arrival, sizeof arrival);
        before = sizeof arrival;
    }
    if (!pick(8)) {
        struct producer_part part = {.key = pick(4), .batch = pick(8), .part = !pick(32), .more = pick(3)};
        m.flags |= MSG_IDEMPOTENT;
        memcpy(scratch + before, &part, sizeof part);
        before += sizeof part;
    }
    if (!pick(4)) {
        m.flags |= MSG_HEADERS;
        before += put_headers(scratch + before, false, parts);
    }
    memset(scratch + before, 'm', bytes);
    ask(acceptor, c, worker, m, scratch, before + bytes);
}

/* Several, of which now and then something is wrong; whatever it is, each is answered, or one for all is that it is
 * INVALID. */
void say_publish_each(uint32_t acceptor, struct connection *c) {
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
void say_attach(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS;
    struct attach a = {.access = pick(16) ? pick(4) : pick(6), .least = pick(3) ? NO_PLACE : pick(3)};
    static const uint32_t lengths[] = {0, ATTACH_NAME_MAX, ATTACH_NAME_MAX + 1};
    size_t name_bytes = pick(8) ? 1 : lengths[pick(3)];
    memcpy(scratch, &a, sizeof a);
    memset(scratch + sizeof a, 'a' + (int)pick(3), name_bytes);
    struct message m = {.kind = MSG_ATTACH, .topic = topic + 1, .producer_number = pick(3)};
    ask(acceptor, c, worker, m, scratch, spoilt(sizeof a + name_bytes));
}

void say_detach(uint32_t acceptor, struct connection *c) {
    uint32_t worker = pick(WORKERS);
    ask(acceptor, c, worker, (struct message){.kind = MSG_DETACH, .producer_number = pick(3)}, NULL, 0);
}

void say_publish_many(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), count = pick(MANY) + 1, worker = shard_of(topic) % WORKERS;
    struct message m = {
        .kind = MSG_PUBLISH_MANY, .topic = topic + 1, .id = new_ids(topic, count), .pri = count, .ttr_ns = SECOND};
    if (!pick(6)) m.delay_ns = some_time();
    size_t bytes = 0;
    if (!pick(3)) {
        /* Now in turn, now again, now too early, of a few producers or of one of many that push each other out. */
        struct producer_part part = {
            .key = pick(5) ? pick(4) : pick(3 * SHARD_BATCH_PRODUCERS), .batch = pick(4), .part = pick(4)};
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

void say_subscribe(uint32_t acceptor, struct connection *c) {
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
    if (!pick(2)) s.flags |= SUBSCRIBE_AGAIN_FIRST;
    if (!pick(8)) s.flags |= (uint16_t)(2u << pick(15));
    memset(scratch + sizeof s + s.name_bytes, 'd', s.description_bytes);
    size_t bytes = sizeof s + s.name_bytes + s.description_bytes;
    s.flags &= (uint16_t)~SUBSCRIBE_POLICY;
    if (!pick(3)) {
        struct subscribe_policy policy = {.policy = (uint16_t)(pick(20) ? channel % 4 : pick(6)),
                                          .name_bytes = (uint16_t)pick(3),
                                          .priority = pick(3),
                                          .ranges = pick(4) ? 0 : pick(3),
                                          .order = pick(20) ? 0 : pick(3),
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

void say_unsubscribe(uint32_t acceptor, struct connection *c) {
    ask(acceptor, c, pick(WORKERS), (struct message){.kind = MSG_UNSUBSCRIBE, .consumer_number = some_consumer()}, NULL,
        0);
    side.unsure = true;
}

void say_change(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), worker = shard_of(topic) % WORKERS;
    size_t bytes = topic_name(topic, (char *)scratch);
    struct message m = {.kind = MSG_CHANGE, .flags = said_of(topic), .id = shard_of(topic), .pri = pick(8)};
    if (pick(4)) {
        uint32_t channel = pick(CHANNELS);
        scratch[bytes++] = '\n';
        bytes += channel_name(channel, (char *)scratch + bytes);
        if (side.ephemerals && channel == CHANNELS - 1) m.flags |= MSG_CHANNEL_EPHEMERAL;
    }
    if (!pick(32)) m.id = some_id();
    ask(acceptor, c, worker, m, scratch, spoilt(bytes));
    side.unsure = true;
}

void forget_in_flight(void) {
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            for (uint32_t w = 0; w < WORKERS; w++)
                for (uint32_t n = 0; n < CONSUMERS; n++) side.connections[a][i].with[w].as[n].in_flight = 0;
    side.unsure = true;
}

static void consume(uint32_t acceptor, struct connection *c, uint8_t kind) {
    uint32_t worker = 0, consumer = pick(CONSUMERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (c->with[i].as[consumer].subscribed) worker = i;
    struct consuming *r = &c->with[worker].as[consumer];
    struct message m = {.kind = kind, .consumer = consumer_numbers[consumer], .id = some_id()};
    if (!pick(32)) m.consumer = byte();
    size_t bytes = 0;
    if (m.kind == MSG_FINISH && !pick(4)) {
        m.flags |= MSG_PARTS;
        bytes = pick(8) ? sizeof(uint64_t) * (1 + pick(pick(4) ? 2 : PARTS_MAX_WORDS + 1)) : pick(160);
        for (size_t i = 0; i < bytes; i++) scratch[i] = byte() & byte();
    }
    if (m.kind == MSG_FINISH && !pick(12)) {
        m.flags |= MSG_UPTO;
        m.seq = pick(100);
        forget_in_flight();
    }
    if (m.kind == MSG_REQUEUE && pick(2)) m.delay_ns = some_time();
    /* It may have been in flight. */
    if (m.kind != MSG_EXTEND && r->in_flight) r->in_flight--;
    ask(acceptor, c, worker, m, scratch, bytes);
}

void say_consume(uint32_t acceptor, struct connection *c) {
    static const uint8_t kinds[] = {MSG_FINISH, MSG_FINISH, MSG_FINISH, MSG_REQUEUE, MSG_EXTEND};
    consume(acceptor, c, kinds[pick(5)]);
}

void say_credit(uint32_t acceptor, struct connection *c) {
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

void say_sent(uint32_t acceptor, struct connection *c) {
    static const uint64_t counts[] = {0, 1, 3000, WINDOW_BYTES / 4, WINDOW_BYTES, UINT64_MAX};
    struct message m = {.kind = MSG_SENT, .consumer = some_consumer(), .sent_bytes = counts[pick(6)]};
    ask(acceptor, c, pick(WORKERS), m, NULL, 0);
}

void say_catalog(uint32_t acceptor, struct connection *c) {
    size_t bytes = pick(2) ? topic_name(pick(TOPICS), (char *)scratch) : 0;
    ask(acceptor, c, pick(WORKERS), (struct message){.kind = MSG_CATALOG, .pri = pick(2)}, scratch, bytes);
}

/* A message of a transaction. */
void say_stage(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS), bytes = some_size();
    struct message m = {.kind = MSG_PUBLISH,
                        .flags = MSG_TXN | MSG_DURABLE | (pick(16) ? MSG_RETAIN : 0),
                        .topic = topic + 1,
                        .id = new_ids(topic, 1)};
    const uint64_t txn = pick(TRANSACTIONS);
    memcpy(scratch, &txn, sizeof txn);
    memset(scratch + sizeof txn, 'm', bytes);
    if (!pick(4)) m.flags |= MSG_DUE, m.delay_ns = some_due();
    bytes += pick(64) ? sizeof txn : 0;
    ask(acceptor, c, shard_of(topic) % WORKERS, m, scratch, bytes);
}

/* What is finished if a transaction is committed: a message of late, or parts of it. */
void say_acknowledge(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = MSG_TXN_ACK, .topic = topic + 1, .id = pick(TRANSACTIONS), .seq = pick(100)};
    size_t bytes = 0;
    m.consumer_number = some_consumer();
    if (!pick(4)) m.flags |= MSG_UPTO;
    if (!pick(4)) bytes = sizeof(uint64_t) * (1 + pick(2));
    for (size_t i = 0; i < bytes; i++) scratch[i] = byte() & byte();
    ask(acceptor, c, shard_of(topic) % WORKERS, m, scratch, bytes);
    forget_in_flight();
}

void say_end(uint32_t acceptor, struct connection *c) {
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = MSG_TXN_END, .topic = topic + 1, .id = pick(TRANSACTIONS), .commit = pick(3) != 0};
    ask(acceptor, c, shard_of(topic) % WORKERS, m, NULL, 0);
    forget_in_flight();
}

/* Of the job queue. */
void say_of_queue(uint32_t acceptor, struct connection *c) {
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
void say_anything(uint32_t acceptor, struct connection *c) {
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

void say_gone(uint32_t acceptor, struct connection *c) {
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (channel_backlogged(side.channels[acceptor][i])) return;
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        tell(acceptor, i, (struct message){.kind = MSG_GONE, .conn = c->number}, NULL, 0);
    *c = (struct connection){.number = c->number + CONNECTIONS};
}

/* What comes in runs; among it now and then something that does not. */
void say_together(uint32_t acceptor, struct connection *c) {
    gathered.begun = true;
    for (uint32_t n = pick(16); n < 16; n++) {
        switch (pick(8)) {
        case 0: say_credit(acceptor, c); break;
        case 1: say_sent(acceptor, c); break;
        case 2:
        case 3: say_consume(acceptor, c); break;
        default: say_of_queue(acceptor, c);
        }
    }
    send_gathered();
    gathered.begun = false;
}

/* One answer is that it is none. */
void say_damaged_requests(uint32_t acceptor, struct connection *c) {
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

/* --- each kind with each flag ------------------------------------------------------------------------------------- */

/* The body that a request of a topic has if it is right: the topic's name, a channel's, or both. */
static size_t put_names(uint8_t kind, uint32_t topic) {
    size_t bytes = 0;
    switch (kind) {
    case MSG_PAUSE:
    case MSG_STATS_TOPIC: return topic_name(topic, (char *)scratch);
    case MSG_OLDEST:
        bytes = topic_name(topic, (char *)scratch);
        if (pick(2)) return bytes;
        scratch[bytes++] = '\n';
        break;
    case MSG_SEEK:
    case MSG_POSITION:
    case MSG_TXN_PENDING:
    case MSG_BACKLOG: break;
    default: return 0;
    }
    return bytes + channel_name(pick(CHANNELS), (char *)scratch + bytes);
}

/* A topic's number that is bound to no name. */
static uint32_t unbound(void) {
    static const uint32_t numbers[] = {0, TOPICS + 1, 64, WORKER_MAX_OPEN_TOPICS, UINT32_MAX};
    return numbers[pick(5)];
}

static void say_of_topic(uint32_t acceptor, struct connection *c, uint8_t kind) {
    uint32_t topic = pick(TOPICS);
    struct message m = {
        .kind = kind, .topic = pick(8) ? topic + 1 : unbound(), .id = some_id(), .pri = pick(4), .seq = pick(100)};
    size_t bytes = put_names(kind, topic);
    if (!pick(3)) m.delay_ns = some_time();
    if (kind == MSG_COMPACT) {
        struct superseded one = {.seq = pick(50)};
        bytes = sizeof one;
        memcpy(scratch, &one, sizeof one);
    }
    if (kind == MSG_SEEK) forget_in_flight();
    ask(acceptor, c, shard_of(topic) % WORKERS, m, scratch, bytes);
}

static void say_close(uint32_t acceptor) {
    uint32_t topic = pick(TOPICS);
    struct message m = {.kind = MSG_CLOSE, .topic = unbound()};
    tell(acceptor, shard_of(topic) % WORKERS, m, NULL, 0);
    m.topic = topic + 1;
    tell(acceptor, shard_of(topic) % WORKERS, m, NULL, 0);
    open_topic(acceptor, topic);
}

static void say_cancel(uint32_t acceptor, const struct connection *c) {
    struct message m = {.kind = MSG_CANCEL, .conn = c->number, .slot = c->next_slot - 1 - pick(3)};
    tell(acceptor, pick(WORKERS), m, NULL, 0);
}

static void say_kind(uint32_t acceptor, struct connection *c, uint8_t kind) {
    switch (kind) {
    case MSG_OPEN: say_open(acceptor, pick(WORKERS)); break;
    case MSG_CLOSE: say_close(acceptor); break;
    case MSG_CANCEL: say_cancel(acceptor, c); break;
    case MSG_GONE: say_gone(acceptor, c); break;
    case MSG_CREDIT: say_credit(acceptor, c); break;
    case MSG_SENT: say_sent(acceptor, c); break;
    case MSG_FINISH:
    case MSG_REQUEUE:
    case MSG_EXTEND: consume(acceptor, c, kind); break;
    case MSG_PUBLISH: (pick(4) ? say_publish : say_stage)(acceptor, c); break;
    case MSG_PUBLISH_EACH: say_publish_each(acceptor, c); break;
    case MSG_PUBLISH_MANY: say_publish_many(acceptor, c); break;
    case MSG_SUBSCRIBE: say_subscribe(acceptor, c); break;
    case MSG_UNSUBSCRIBE: say_unsubscribe(acceptor, c); break;
    case MSG_CHANGE: say_change(acceptor, c); break;
    case MSG_CATALOG: say_catalog(acceptor, c); break;
    case MSG_ATTACH: say_attach(acceptor, c); break;
    case MSG_DETACH: say_detach(acceptor, c); break;
    case MSG_TXN_ACK: say_acknowledge(acceptor, c); break;
    case MSG_TXN_END: say_end(acceptor, c); break;
    case MSG_REQUEST_EACH: say_damaged_requests(acceptor, c); break;
    default: say_of_topic(acceptor, c, kind);
    }
}

void say_with_flags(uint32_t acceptor, struct connection *c, uint8_t kind, uint16_t flags) {
    more_flags = flags;
    say_kind(acceptor, c, kind);
    more_flags = 0;
}
