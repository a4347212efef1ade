/* What workers say: each request is answered once, in order, and a consumer gets no more than its credit. */
#include "catalog_check.h"
#include "shard_play.h"

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
    assert(m->status <= STATUS_FENCED);
    bool is_whole = m->kind != MSG_PEEK_SEQ || m->body_bytes == m->whole_bytes;
    if (m->flags & MSG_HEADERS && is_whole) check_content(m);
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

bool hear_worker(uint32_t acceptor, uint32_t worker) {
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
