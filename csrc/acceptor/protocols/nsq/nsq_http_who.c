/* Whether a client may publish, where there are users. Python decides; its decision is remembered and not asked for
 * again. */
#include "acceptor/protocols/nsq/nsq_http_who.h"

static bool is_guarded(const struct nsq_https *options, const struct connection *c) {
    return options->asks && (options->open >> c->listener & 1) == 0;
}

/* Who asks, and what for: the same for the same listener and words. Who says nothing may be somebody by a certificate,
 * which is the connection's. */
static struct nsq_granted wanted_by(struct nsq_https *options, struct connection *c, const struct nsq_http_request *r) {
    struct nsq_http *h = nsq_http_of(c);
    uint8_t bytes[NSQ_GRANTED_BYTES], *end = bytes;
    if (r->head.authorization.bytes == 0 && c->filter != NULL && h->known_as == 0) h->known_as = ++options->known;
    uint64_t known_as = r->head.authorization.bytes == 0 ? h->known_as : 0;
    *end++ = c->listener;
    *end++ = (uint8_t)r->fields.topic_bytes;
    memcpy(end, &known_as, sizeof known_as);
    end += sizeof known_as;
    memcpy(end, r->fields.topic, r->fields.topic_bytes);
    end += r->fields.topic_bytes;
    memcpy(end, r->head.authorization.at, r->head.authorization.bytes);
    end += r->head.authorization.bytes;
    return nsq_granted_of(&options->grants, bytes, (size_t)(end - bytes));
}

_Static_assert(NSQ_HTTP_AUTHORIZATION_BYTES + NSQ_NAME_BYTES + 16 <= NSQ_GRANTED_BYTES, "all of it is looked for");

/* The question to Python: a "?" (no topic begins with one), the topic, a line end, then the client's Authorization. */
static void ask_who_may(struct acceptor *a, struct connection *c, const struct nsq_http_request *r) {
    uint8_t bytes[NSQ_GRANTED_BYTES], *end = bytes;
    *end++ = '?';
    memcpy(end, r->fields.topic, r->fields.topic_bytes);
    end += r->fields.topic_bytes;
    *end++ = '\n';
    memcpy(end, r->head.authorization.at, r->head.authorization.bytes);
    end += r->head.authorization.bytes;
    reply_by_python(a, c, bytes, (size_t)(end - bytes));
}

enum nsq_http_who nsq_http_who(struct acceptor *a, struct connection *c, struct nsq_http_request *r) {
    struct nsq_https *options = nsq_http_options(a, c);
    struct nsq_http *h = nsq_http_of(c);
    if (!is_guarded(options, c) || h->granted) return NSQ_HTTP_MAY;
    if (h->unknown) return NSQ_HTTP_NOBODY;
    if (h->left) return NSQ_HTTP_UNCLEAR;
    const struct nsq_http_fields *fields = &r->fields;
    if (!nsq_http_read_query(r->head.query, &r->fields) || !fields->has_topic) return NSQ_HTTP_UNCLEAR;
    if (!nsq_is_name(fields->topic, fields->topic_bytes)) return NSQ_HTTP_UNCLEAR;
    h->wanted = wanted_by(options, c, r);
    if (nsq_is_granted(&options->grants, h->wanted, a->now_ns)) return NSQ_HTTP_MAY;
    if (may_do_alone(c)) ask_who_may(a, c, r);
    return NSQ_HTTP_ASKED;
}
