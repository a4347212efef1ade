/* Several requests of a connection in one message (MSG_REQUEST_EACH): which requests may be in it, how each is laid
 * out, and how a received message is checked.
 */
#ifndef MQ_REQUEST_EACH_H
#define MQ_REQUEST_EACH_H

#include <stdbool.h>

#include "ringbuf/message.h"

/* The kinds that come in runs, have no body, and consist only of a slot or consumer, flags, and one number. */
#define REQUEST_EACH_KINDS                                                                                             \
    ((uint64_t)1 << MSG_CREDIT | (uint64_t)1 << MSG_FINISH | (uint64_t)1 << MSG_EXTEND | (uint64_t)1 << MSG_SENT |     \
     (uint64_t)1 << MSG_RESERVE | (uint64_t)1 << MSG_RESERVE_ID | (uint64_t)1 << MSG_DELETE |                          \
     (uint64_t)1 << MSG_TOUCH)
_Static_assert(MSG_SENT < MSG_RESERVE && MSG_TOUCH < 64, "a bit for each kind");

static inline bool request_each_has(uint8_t kind) {
    return kind < 64 && (REQUEST_EACH_KINDS >> kind & 1) != 0;
}

static inline bool request_each_says_seq(uint8_t kind, uint16_t flags) {
    return kind == MSG_FINISH && (flags & (MSG_UPTO | MSG_BY_SEQ)) != 0;
}

/* Packs a request. False: it does not fit, and must be sent as a message of its own. */
static inline bool request_each_of(struct request_each *each, const struct message *m) {
    uint64_t value, rest; /* the rest has no place in *each, and must be zero */
    if (m->kind == MSG_RESERVE)
        value = m->wait_ns, rest = m->id | m->seq;
    else if (request_each_says_seq(m->kind, m->flags))
        value = m->seq, rest = m->id | m->delay_ns;
    else
        value = m->id, rest = m->delay_ns | m->seq;
    *each = (struct request_each){.kind = m->kind, .flags = m->flags, .slot = m->slot, .value = value};
    return (rest | m->topic | m->pri | m->body_bytes) == 0;
}

/* Unpacks request n of a valid message into `one`, which must be all zeros except for `conn`. */
static inline void request_each_get(struct message *one, const struct message *m, uint32_t n) {
    const struct request_each *each = (const struct request_each *)(const void *)(m + 1) + n;
    const bool waits = each->kind == MSG_RESERVE, says_seq = request_each_says_seq(each->kind, each->flags);
    one->kind = each->kind;
    one->flags = each->flags;
    one->slot = each->slot;
    one->wait_ns = waits ? each->value : 0;
    one->seq = says_seq ? each->value : 0;
    one->id = waits || says_seq ? 0 : each->value;
}

/* The body's bytes for `several` requests: room is made for REQUESTS_AT_ONCE at a time. */
static inline uint32_t request_each_bytes(uint32_t several) {
    uint32_t rooms = (several + REQUESTS_AT_ONCE - 1) / REQUESTS_AT_ONCE * REQUESTS_AT_ONCE;
    return rooms * (uint32_t)sizeof(struct request_each);
}

/* Whether a message is valid: the right length for its number of requests, and all of kinds that may be in it. */
static inline bool request_each_is_whole(const struct message *m) {
    const uint32_t several = m->several;
    bool whole = several > 0 && several <= REQUESTS_MOST && m->body_bytes == request_each_bytes(several);
    const struct request_each *each = (const struct request_each *)(const void *)(m + 1);
    for (uint32_t n = 0; whole && n < several; n++) whole = request_each_has(each[n].kind) && each[n].unused == 0;
    return whole;
}

#endif
