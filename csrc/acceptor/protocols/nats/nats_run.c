/* The fast path: many PUBs in a row, in the form that clients usually write, whose messages are only for clients of
 * this acceptor. What holds for all of them is checked once. At the first other command nats.c and nats_publish.c take
 * over. */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "acceptor/protocols/nats/nats_run.h"

#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_publish.h"
#include "acceptor/protocols/nats/nats_reserved.h"

/* The line of such a PUB has at most this many bytes. */
enum { WINDOW = 64 };

/* Bytes that are blanks or control characters, as bits. */
static inline uint64_t blanks_of(const uint8_t *at) {
    uint64_t found = 0;
#ifdef __SSE2__
    const __m128i blank = _mm_set1_epi8(' ');
    for (int i = 0; i < WINDOW / 16; i++) {
        __m128i some = _mm_loadu_si128((const __m128i *)(const void *)(at + 16 * i));
        __m128i is_blank = _mm_cmpeq_epi8(_mm_min_epu8(some, blank), some);
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(is_blank) << (16 * i);
    }
#else
    for (int i = 0; i < WINDOW; i++) found |= (uint64_t)(at[i] <= ' ') << i;
#endif
    return found;
}

/* Takes the lowest bit and returns its place; WINDOW: there is none. */
static inline uint32_t take_lowest(uint64_t *bits) {
    uint32_t lowest = *bits != 0 ? (uint32_t)__builtin_ctzll(*bits) : WINDOW;
    *bits &= *bits - 1;
    return lowest;
}

static inline bool is_pub(const uint8_t *data) {
    /* Bit 32 tells small letters from capitals; a blank has it set. */
    uint32_t word, small, wanted;
    memcpy(&word, data, sizeof word);
    memcpy(&small, "   ", sizeof small);
    memcpy(&wanted, "pub ", sizeof wanted);
    return (word | small) == wanted;
}

/* Reads "PUB subject [reply ]size\r\n" with single blanks. Returns its length, or 0 if it is anything else. */
static inline size_t read_plain(const uint8_t *data, struct nats_message *m) {
    if (!is_pub(data)) return 0;
    uint64_t blanks = blanks_of(data) >> 4;
    uint32_t subject = take_lowest(&blanks) + 4, begin = 4, end = take_lowest(&blanks) + 4;
    if (end >= WINDOW || subject == 4 || data[subject] != ' ') return 0;
    m->subject = (struct text){data + begin, subject - begin};
    begin = subject + 1;
    m->reply = (struct text){NULL, 0};
    if (data[end] == ' ') {
        if (end == begin) return 0;
        m->reply = (struct text){data + begin, end - begin};
        begin = end + 1;
        end = take_lowest(&blanks) + 4;
    }
    if (end >= WINDOW - 1 || data[end] != '\r' || data[end + 1] != '\n') return 0;
    uint32_t digits = end - begin, size = 0;
    if (digits == 0 || digits > 9) return 0;
    const uint8_t *at = data + begin, *last = data + end;
    do {
        uint32_t digit = *at - (uint32_t)'0';
        if (digit > 9) return 0;
        size = size * 10 + digit;
    } while (++at < last);
    m->size = (struct text){data + begin, digits};
    m->payload_bytes = size;
    m->payload = data + end + 2;
    return end + 2;
}

static bool may_run(const struct acceptor *a, const struct connection *c, const struct nats_server *server) {
    const uint32_t others = NATS_MUST_CONNECT | NATS_VERBOSE | NATS_PEDANTIC | NATS_OF_SERVER | NATS_LOGGED;
    return (nats_of(c)->flags & others) == 0 && nats_account_of(a, c)->shares == NULL &&
           nats_account_of(a, c)->answers == NULL && server->max_control_line >= WINDOW;
}

/* Whether a message is only for clients here, and may be published. */
static bool is_plain(const struct connection *c, struct nats_server *server, struct nats_account *account,
                     const struct nats_message *m) {
    struct nats_permissions *set = nats_of(c)->permissions;
    struct subject_pattern *const *patterns;
    if (nats_is_reserved(m->subject) || (m->reply.bytes > 0 && nats_is_reserved(m->reply))) return false;
    if (set != NULL && !nats_may_publish(&server->permissions, set, m->subject)) return false;
    if (server->bound.subjects != NULL && nats_is_bound(server, m->subject)) return false;
    return account->remote == NULL ||
           subjects_match(account->remote, server->remote_walk, m->subject.at, m->subject.bytes, &patterns) == 0;
}

static void count_run(struct acceptor *a, struct connection *c, struct nats_account *account, uint64_t messages,
                      uint64_t bytes) {
    nats_of(c)->active_ns = a->now_ns;
    account->taken_messages += messages;
    account->taken_bytes += bytes;
    codec_count_add(a, c, NATS_IN_MESSAGES, messages);
    codec_count_add(a, c, NATS_IN_BYTES, bytes);
}

static void hand_out(struct nats_delivery *d, struct connection *c, const struct nats_message *m) {
    struct subject_pattern *const *patterns;
    struct nats_server *server = d->server;
    uint64_t before = d->delivered;
    size_t count = subjects_match(d->account->subjects, server->walk, m->subject.at, m->subject.bytes, &patterns);
    bool any = false;
    if (count > 0) {
        nats_begin(d);
        nats_deliver_matching(d, patterns, count);
        any = d->delivered != before;
        if (d->shared != NULL) shared_drop(&d->a->blocks, d->shared);
        d->shared = NULL;
        if (server->expired_count > 0 || server->orphaned != NULL || d->answers) nats_settle(d->a, server);
    }
    if (d->answers) any |= nats_go_on(d->a, server, nats_of(c)->account, c, m, true, false);
    d->answers = false;
    if (!any && m->reply.bytes > 0 && nats_is(c, NATS_NO_RESPONDERS)) nats_say_no_responders(d->a, c, m);
    server->delivering = true;
}

size_t nats_take_run(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nats_server *server = nats_server_of(a, c);
    struct nats_account *account = nats_account_of(a, c);
    struct nats *n = nats_of(c);
    if (!may_run(a, c, server) || a->handed >= HANDED_PER_TURN || server->fanouts.first != NULL) return 0;
    struct nats_delivery d = nats_delivery_of(a, server, account);
    struct nats_message m = {.from = nats_sender(a, c), .joined = true};
    const uint64_t messages_before = n->in_messages, bytes_before = n->in_bytes;
    size_t at = 0;
    d.from = c;
    d.message = &m;
    d.most = HANDED_PER_TURN - a->handed;
    server->fanouts.origin = c->number;
    server->delivering = true;
    while (bytes - at >= WINDOW) {
        size_t line_bytes = read_plain(data + at, &m), whole = line_bytes + m.payload_bytes + CRLF_BYTES;
        if (line_bytes == 0 || m.payload_bytes > n->max_payload || whole > bytes - at) break;
        if (memcmp(m.payload + m.payload_bytes, "\r\n", CRLF_BYTES) != 0 || !is_plain(c, server, account, &m)) break;
        at += whole;
        n->in_messages++;
        n->in_bytes += m.payload_bytes;
        hand_out(&d, c, &m);
        if (c->closed || c->closing || !may_go_on(a, c) || nats_handed(&d) >= d.most) break;
    }
    nats_made(&d);
    server->fanouts.origin = 0;
    (void)nats_fanout_may_go_on(server, c);
    if (at > 0) count_run(a, c, account, n->in_messages - messages_before, n->in_bytes - bytes_before);
    return at;
}
