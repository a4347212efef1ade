/* Sends answers, and jobs to the clients that asked for one. */
#include "shards/answers.h"

#include <sys/mman.h>

static struct message answer_of(const struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status) {
    const struct client *c = client_at(&w->clients, client);
    return (struct message){.kind = kind,
                            .status = status,
                            .flags = (uint16_t)(c->inflight ? 0 : MSG_NONE_IN_FLIGHT),
                            .conn = c->conn,
                            .slot = slot};
}

static struct peer *peer_of(struct worker *w, uint32_t client) {
    return &w->peers[client_at(&w->clients, client)->acceptor];
}

static void unmap(void *owner, void *at, size_t bytes) {
    (void)owner;
    (void)munmap(at, bytes);
}

void request_send_lent(struct channel *channel, const struct shard *s, const struct message *m, const void *body,
                       size_t body_bytes) {
    struct lent lent = {.give_back = unmap};
    const uint8_t *at;
    bool apart = body_bytes >= LENT_LEAST_BYTES && log_map_apart(s->log, body, body_bytes, &lent.at, &lent.bytes, &at);
    if (apart && channel_lend(channel, m, at, body_bytes, &lent)) return;
    if (apart) unmap(NULL, lent.at, lent.bytes);
    channel_send(channel, m, body, body_bytes);
}

void request_send(struct worker *w, uint32_t client, struct message *m, const void *body, size_t body_bytes) {
    struct peer *p = peer_of(w, client);
    struct channel *channel = p->channel;
    if (!channel) return;
    if (p->joined_client == client) p->joined_client = 0;
    m->body_bytes = (uint32_t)body_bytes;
    channel_send(channel, m, body, body_bytes);
}

void request_send_logged(struct worker *w, uint32_t client, const struct shard *s, struct message *m, const void *body,
                         size_t body_bytes) {
    struct peer *p = peer_of(w, client);
    if (body_bytes < LENT_LEAST_BYTES || !p->channel) {
        request_send(w, client, m, body, body_bytes);
        return;
    }
    if (p->joined_client == client) p->joined_client = 0;
    m->body_bytes = (uint32_t)body_bytes;
    request_send_lent(p->channel, s, m, body, body_bytes);
}

bool request_may_send(struct worker *w, uint32_t client, size_t body_bytes) {
    struct channel *channel = peer_of(w, client)->channel;
    return body_bytes < LARGE_BYTES || !channel || !channel_backlogged(channel);
}

void request_answer(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status, uint64_t id) {
    struct message m = answer_of(w, client, slot, kind, status);
    m.id = id;
    request_send(w, client, &m, NULL, 0);
}

/* Whether an answer can be joined to the last one: nobody can have seen that, and no sync round publishes it alone. */
static bool may_join(const struct peer *p, uint32_t client, const struct message *m, uint32_t more) {
    if (p->joined_client != client || !channel_unseen(p->channel, p->joined_at) || p->joined_at < p->round_tail)
        return false;
    const struct message *to = p->joined;
    uint32_t count = to->count;
    /* Compares conn too, as the number of a client that has left may be another connection's by now. */
    return m->conn == to->conn && m->slot == to->slot + count && m->seq == to->seq + count && m->topic == to->topic &&
           m->incarnation == to->incarnation && m->flags == to->flags && count + more <= JOINED_MOST;
}

void request_joined(struct worker *w, uint32_t client, struct message *m, uint32_t count) {
    struct peer *p = peer_of(w, client);
    if (!p->channel) return;
    m->flags |= MSG_JOINED;
    if (may_join(p, client, m, count)) {
        p->joined->count += count;
        return;
    }
    m->count = count;
    p->joined_at = channel_tail(p->channel);
    p->joined = channel_reserve(p->channel, 0);
    p->joined_client = p->joined ? client : 0;
    if (!p->joined) {
        channel_send(p->channel, m, NULL, 0);
        return;
    }
    *p->joined = *m;
    channel_sent(p->channel);
}

/* Sends a job that is part of a packed message: the whole message, and which part the job is. */
static void send_packed(struct worker *w, uint32_t client, struct message *m, const struct record *r, uint32_t first) {
    const struct packed_run run = {.id = r->id, .first = first, .count = 1};
    struct peer *p = peer_of(w, client);
    struct channel *channel = p->channel;
    if (!channel) return;
    if (p->joined_client == client) p->joined_client = 0;
    m->flags |= MSG_PACKED | MSG_HEADERS;
    m->body_bytes = (uint32_t)(sizeof run + record_body_bytes(r));
    channel_send_prefixed(channel, m, &run, sizeof run, record_body(r), record_body_bytes(r));
}

void request_deliver(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint32_t job) {
    const struct job *j = job_at(w, job);
    const struct log *log = shard_of_job(w, j)->log;
    const struct record *r = job_record(w, j);
    if (r->flags & MESSAGE_HEADERS) r = log_read(log, j->position);
    struct message m = answer_of(w, client, slot, kind, STATUS_OK);
    size_t headers_bytes = message_headers_bytes(r); /* usually 0 */
    bool wants_headers = client_at(&w->clients, client)->wants_headers;
    size_t skipped = wants_headers ? 0 : headers_bytes;
    m.id = j->id;
    m.pri = j->pri;
    if (!wants_headers && message_packed(r)) {
        send_packed(w, client, &m, r, j->part ? (uint32_t)((j->id - r->id) / w->shards) - 1 : 0);
        return;
    }
    if (headers_bytes > skipped) m.flags |= MSG_HEADERS;
    request_send_logged(w, client, shard_of_job(w, j), &m, (const uint8_t *)log_body(log, r) + skipped,
                        record_body_bytes(r) - skipped);
}

struct message request_answer_of(const struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    return answer_of(w, client, m->slot, m->kind, status);
}

void request_done(struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    request_answer(w, client, m->slot, m->kind, status, m->id);
}
