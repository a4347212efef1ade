/* PUB, DPUB and MPUB. */
#include "acceptor/protocols/nsq/nsq_publish.h"

#include "acceptor/protocols/nsq/nsq_producers.h"

enum { LEAST_MESSAGE_BYTES = 5 /* its size and a byte */, PRIORITY = 1024 };

static size_t bad_topic(struct acceptor *a, struct connection *c, const struct command *k, struct text topic) {
    /* For an MPUB nsqd repeats the error code. */
    const char *before = "E_BAD_TOPIC PUB topic name ";
    if (is(k->name, "MPUB")) before = "E_BAD_TOPIC E_BAD_TOPIC MPUB topic name ";
    if (is(k->name, "DPUB")) before = "E_BAD_TOPIC DPUB topic name ";
    return nsq_fatal_about(a, c, k, before, topic, true, " is not valid");
}

struct nsq_granted nsq_granted_to(const struct nsq_options *options, const struct nsq *n, struct text topic) {
    uint8_t bytes[sizeof n->known_as + NSQ_NAME_BYTES];
    memcpy(bytes, &n->known_as, sizeof n->known_as);
    memcpy(bytes + sizeof n->known_as, topic.at, topic.bytes);
    return nsq_granted_of(&options->grants, bytes, sizeof n->known_as + topic.bytes);
}

static bool is_authorized(const struct acceptor *a, const struct connection *c, struct text topic) {
    const struct nsq *n = nsq_of(c);
    if (n->admitted || n->publishes_all) return true;
    if (n->known_as == 0 || a->now_ns >= n->authorized_until_ns) return false;
    const struct nsq_options *options = nsq_options(a, c);
    return nsq_is_granted(&options->grants, nsq_granted_to(options, n, topic), a->now_ns);
}

/* Whether the client may publish to the topic. If Python has to decide, the command is parsed again afterwards. */
static bool may_publish(struct acceptor *a, struct connection *c, const struct command *k, struct text topic) {
    if (!nsq_options(a, c)->auth || is_authorized(a, c, topic)) return true;
    if (may_do_alone(c)) reply_by_python(a, c, k->line, (size_t)(k->end - k->line));
    return false;
}

/* The topic's binding; NULL when the limit of topics is reached. */
static const struct binding *topic_of(struct acceptor *a, struct nsq *n, struct text topic) {
    if (nsq_is_last_topic(a, n, topic)) return binding_at(&a->bindings, n->topic);
    n->topic = topic_look_up(a, topic.at, topic.bytes);
    if (n->topic == 0) return NULL;
    const struct binding *to = binding_at(&a->bindings, n->topic);
    n->topic_hash = to->hash;
    nsq_produces(n, to);
    return to;
}

/* The common part of PUB and DPUB: a valid topic, then one message. */
static size_t publish_one(struct acceptor *a, struct connection *c, const struct command *k, struct text topic,
                          uint64_t delay_ns) {
    bool dpub = k->name.bytes == 4;
    const char *name = dpub ? "DPUB" : "PUB";
    if (k->body_bytes < SIZE_BYTES) return 0;
    int32_t size = (int32_t)get_be32(k->body);
    if (size <= 0) return nsq_fatal_with(a, c, k, "E_BAD_MESSAGE %s invalid message body size %d", name, size);
    if ((uint32_t)size > nsq_options(a, c)->max_msg_size)
        return nsq_fatal_with(a, c, k, "E_BAD_MESSAGE %s message too big %d > %u", name, size,
                              nsq_options(a, c)->max_msg_size);
    if (k->body_bytes < SIZE_BYTES + (size_t)size || !may_publish(a, c, k, topic)) return 0;
    const struct binding *to = topic_of(a, nsq_of(c), topic);
    if (to == NULL) return nsq_fatal_with(a, c, k, "E_%s_FAILED %s failed too many topics", name, name);
    if (draining(a)) return nsq_fatal_with(a, c, k, "E_%s_FAILED %s failed exiting", name, name);
    if (!nsq_may_settle(a, c) || !may_bring(a, c, to->worker, (size_t)size)) return 0;
    struct message request = {.kind = MSG_PUBLISH,
                              .flags = MSG_DURABLE,
                              .topic = nsq_of(c)->topic,
                              .id = ids_take(a, to, 1),
                              .pri = PRIORITY,
                              .delay_ns = delay_ns,
                              .ttr_ns = nsq_options(a, c)->msg_timeout_ns};
    nsq_of(c)->admitted = false;
    nsq_count_produced(nsq_of(c), 1);
    peer_ask(a, c, to->worker, &request, k->body + SIZE_BYTES, (uint32_t)size, dpub ? WAS_DPUB : WAS_PUB);
    return k->line_bytes + SIZE_BYTES + (size_t)size;
}

size_t nsq_pub(struct acceptor *a, struct connection *c, struct command *k) {
    struct text topic;
    if (!next_param(k, &topic)) return nsq_fatal(a, c, k, "E_INVALID PUB insufficient number of parameters");
    if (!nsq_is_last_topic(a, nsq_of(c), topic) && !nsq_is_name(topic.at, topic.bytes))
        return bad_topic(a, c, k, topic);
    return publish_one(a, c, k, topic, 0);
}

size_t nsq_dpub(struct acceptor *a, struct connection *c, struct command *k) {
    struct text topic, timeout;
    if (!next_param(k, &topic) || !next_param(k, &timeout))
        return nsq_fatal(a, c, k, "E_INVALID DPUB insufficient number of parameters");
    if (!nsq_is_name(topic.at, topic.bytes)) return bad_topic(a, c, k, topic);
    uint64_t ms;
    if (!get_decimal(timeout, &ms))
        return nsq_fatal_about(a, c, k, "E_INVALID DPUB could not parse timeout ", timeout, false, "");
    int64_t delay_ns = duration_ns(ms);
    if (delay_ns < 0 || (uint64_t)delay_ns > nsq_options(a, c)->max_req_timeout_ns)
        return nsq_fatal_with(a, c, k, "E_INVALID DPUB timeout %llu out of range 0-%llu", (unsigned long long)ms,
                              (unsigned long long)(nsq_options(a, c)->max_req_timeout_ns / MS_NS));
    return publish_one(a, c, k, topic, (uint64_t)delay_ns);
}

enum walk { WALK_DONE, WALK_INCOMPLETE, WALK_FATAL };

/* Looks at the messages of an MPUB as far as they are there, from where it was left the last time. *used is what they
 * are, with their count, or what the connection's end took. nsqd believes the sizes of the messages, not the body's. */
static enum walk walk_messages(struct acceptor *a, struct connection *c, const struct command *k, uint32_t count,
                               size_t *used) {
    struct nsq *n = nsq_of(c);
    while (n->walked < count) {
        if (k->body_bytes < n->walked_bytes + SIZE_BYTES) return WALK_INCOMPLETE;
        int32_t size = (int32_t)get_be32(k->body + n->walked_bytes);
        if (size <= 0) {
            *used = nsq_fatal_with(a, c, k, "E_BAD_MESSAGE MPUB invalid message(%u) body size %d", n->walked, size);
            return WALK_FATAL;
        }
        if ((uint32_t)size > nsq_options(a, c)->max_msg_size) {
            *used = nsq_fatal_with(a, c, k, "E_BAD_MESSAGE MPUB message too big %d > %u", size,
                                   nsq_options(a, c)->max_msg_size);
            return WALK_FATAL;
        }
        size_t end = n->walked_bytes + SIZE_BYTES + (size_t)size;
        if (end > (size_t)nsq_options(a, c)->max_body_size + SIZE_BYTES) {
            *used = nsq_fatal_with(a, c, k, "E_BAD_BODY MPUB body too big %zu > %u", end - SIZE_BYTES,
                                   nsq_options(a, c)->max_body_size);
            return WALK_FATAL;
        }
        if (k->body_bytes < end) return WALK_INCOMPLETE;
        n->walked_bytes = end;
        n->walked++;
    }
    *used = n->walked_bytes;
    return WALK_DONE;
}

/* Checks the size of the body and the number of messages. */
static bool check_many(struct acceptor *a, struct connection *c, const struct command *k, size_t *used) {
    uint32_t most = nsq_options(a, c)->max_body_size;
    int32_t size = (int32_t)get_be32(k->body);
    *used = 0;
    if (size <= 0)
        *used = nsq_fatal_with(a, c, k, "E_BAD_BODY MPUB invalid body size %d", size);
    else if ((uint32_t)size > most)
        *used = nsq_fatal_with(a, c, k, "E_BAD_BODY MPUB body too big %d > %u", size, most);
    if (size <= 0 || (uint32_t)size > most || k->body_bytes < 2 * SIZE_BYTES) return false;
    int32_t count = (int32_t)get_be32(k->body + SIZE_BYTES);
    if (count > 0 && (uint32_t)count <= (most - SIZE_BYTES) / LEAST_MESSAGE_BYTES) return true;
    *used = nsq_fatal_with(a, c, k, "E_BAD_BODY MPUB invalid message count %d", count);
    return false;
}

size_t nsq_mpub(struct acceptor *a, struct connection *c, struct command *k) {
    struct nsq *n = nsq_of(c);
    struct text topic;
    size_t used;
    if (!next_param(k, &topic)) return nsq_fatal(a, c, k, "E_INVALID MPUB insufficient number of parameters");
    if (!nsq_is_last_topic(a, n, topic) && !nsq_is_name(topic.at, topic.bytes)) return bad_topic(a, c, k, topic);
    if (!may_publish(a, c, k, topic) || k->body_bytes < SIZE_BYTES) return 0;
    if (n->walked_bytes == 0) {
        if (!check_many(a, c, k, &used)) return used;
        n->walked_bytes = 2 * SIZE_BYTES;
    }
    uint32_t count = get_be32(k->body + SIZE_BYTES);
    enum walk walked = walk_messages(a, c, k, count, &used);
    if (walked != WALK_DONE) return walked == WALK_FATAL ? used : 0;
    const struct binding *to = topic_of(a, n, topic);
    if (to == NULL) return nsq_fatal(a, c, k, "E_MPUB_FAILED MPUB failed too many topics");
    if (draining(a)) return nsq_fatal(a, c, k, "E_MPUB_FAILED MPUB failed exiting");
    if (!nsq_may_settle(a, c) || !may_bring(a, c, to->worker, used)) return 0;
    struct message request = {.kind = MSG_PUBLISH_MANY,
                              .topic = n->topic,
                              .id = ids_take(a, to, count),
                              .pri = count,
                              .ttr_ns = nsq_options(a, c)->msg_timeout_ns};
    const uint8_t *messages = k->body + (size_t)(2 * SIZE_BYTES);
    peer_ask(a, c, to->worker, &request, messages, (uint32_t)(used - 2 * SIZE_BYTES), 0);
    n->admitted = false;
    nsq_count_produced(n, count);
    n->walked_bytes = 0;
    n->walked = 0;
    return k->line_bytes + used;
}
