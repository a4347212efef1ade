/* Parses the lines of other servers. Which lines are valid, and the errors for others, are as in nats-server. */
#include "acceptor/protocols/nats/nats_route.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_figures.h"
#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "acceptor/protocols/nats/nats_leaf_permissions.h"
#include "acceptor/protocols/nats/nats_leaving.h"
#include "acceptor/protocols/nats/nats_line.h"
#include "acceptor/protocols/nats/nats_mesh.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_name.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_topics.h"
#include "acceptor/protocols/nats/nats_trace.h"
#include "acceptor/protocols/nats/nats_trace_end.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "acceptor/protocols/nats/nats_turns.h"
#include "acceptor/protocols/nats/nats_write.h"
#include "base/time_units.h"

enum { LINE_FACTOR = 16, LEAST_LINE = 4096, ACCOUNT_KEY_BYTES = 56 };
/* Intervals of PINGs to servers: the first, and the longest. */
#define FIRST_PING_NS SECOND_NS
#define MOST_PING_NS  (30 * SECOND_NS)

static const char PING[] = "PING\r\n", PONG[] = "PONG\r\n";

/* --- a line ------------------------------------------------------------------------------------------------------- */

enum verb {
    VERB_INTEREST = NATS_FIRST_WORD,
    VERB_NO_INTEREST,
    VERB_LEAF_INTEREST,
    VERB_NO_LEAF_INTEREST,
    VERB_MESSAGE,
    VERB_HEADERS,
    VERB_LEAF_MESSAGE,
    VERB_PUBLISH,
    VERB_PUBLISH_HEADERS,
    VERB_PING,
    VERB_PONG,
    VERB_INFO,
    VERB_CONNECT,
    VERB_OK,
    VERB_ERR,
    VERB_NOTHING,
};

static const struct nats_word WORDS[] = {
    {VERB_MESSAGE, "RMSG", 4, true},
    {VERB_HEADERS, "HMSG", 4, true},
    {VERB_INTEREST, "RS+", 3, true},
    {VERB_NO_INTEREST, "RS-", 3, true},
    {VERB_LEAF_MESSAGE, "LMSG", 4, true},
    {VERB_PUBLISH, "PUB", 3, true},
    {VERB_PUBLISH_HEADERS, "HPUB", 4, true},
    {VERB_LEAF_INTEREST, "LS+", 3, true},
    {VERB_NO_LEAF_INTEREST, "LS-", 3, true},
    {VERB_PING, "PING", 4, false},
    {VERB_PONG, "PONG", 4, false},
    {VERB_INFO, "INFO", 4, false},
    {VERB_CONNECT, "CONNECT", 7, false},
    {VERB_OK, "+OK", 3, false},
    {VERB_ERR, "-ERR", 4, true},
    {VERB_NOTHING, "A+", 2, true},
    {VERB_NOTHING, "A-", 2, true},
    {VERB_NOTHING, "SUB", 3, true},
    {VERB_NO_INTEREST, "UNSUB", 5, true},
};

/* --- interest ----------------------------------------------------------------------------------------------------- */

/* The account of a line: its first argument, unless the connection carries a single account. Leaves the other
 * arguments. */
static uint32_t account_in(const struct acceptor *a, struct connection *c, const struct text **items, size_t *count) {
    const struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    if (r->account != 0) return r->account;
    struct text name = *(*items)++;
    --*count;
    const struct nats_account *last = &server->accounts[r->last_account];
    if (r->last_account != 0 && last->name_bytes == name.bytes && memcmp(last->name, name.at, name.bytes) == 0)
        return r->last_account;
    uint32_t number = nats_account_named(server, name);
    if (number != 0) r->last_account = number;
    return number;
}

static bool is_moving(const struct nats_server *server, const struct nats_route *r, uint32_t account) {
    return server->accounts[account].routes == NATS_MOVING && r->account == 0 && (r->flags & ROUTE_NO_POOL) == 0;
}

/* Notes interest of a leaf node, or one that a server has for a cluster of leaf nodes. For servers that do not name the
 * cluster in LS- clusters are not distinguished: such interest counts as the server's own. */
static void hear(struct acceptor *a, struct connection *c, struct text cluster, const struct nats_interest *i) {
    struct nats_server *server = route_server(a, c);
    const struct nats_route *r = route_of(c);
    uint32_t weight = (uint32_t)i->weight, origin = 0;
    bool is_leaf = (r->flags & ROUTE_LEAF) != 0, is_named = cluster.bytes > 0 && (r->flags & ROUTE_ORIGINS) != 0;
    if (is_leaf) origin = nats_link_of(server, r->other)->origin;
    if (!is_leaf && is_named) {
        bool wanted = weight > 0;
        origin = wanted ? nats_origin_take(&server->origins, cluster) : nats_origin_named(&server->origins, cluster);
        if (origin == 0 && wanted) nats_route_end(a, c, "maximum subscriptions exceeded");
        if (origin == 0) return;
    }
    nats_hear_interest(a, server, r->other, origin, i->account, i->subject, i->queue, weight);
    if (!is_leaf && weight > 0) nats_origin_drop(&server->origins, origin);
}

/* Whether a name looks like an account's public key: A and base 32. */
static bool is_key(struct text name) {
    bool good = name.bytes == ACCOUNT_KEY_BYTES && name.at[0] == 'A';
    for (size_t i = 0; good && i < name.bytes; i++)
        good = (name.at[i] >= 'A' && name.at[i] <= 'Z') || (name.at[i] >= '2' && name.at[i] <= '7');
    return good;
}

/* The account that another server has named, made if need be; 0: it is not accepted. Other servers may introduce at
 * most half of the accounts allowed. */
static uint32_t learn_account(struct acceptor *a, struct nats_server *server, struct text name) {
    bool may = server->learns_accounts && nats_account_count(server) < NATS_MAX_ACCOUNTS / 2 && is_key(name);
    return may ? nats_open_account(a, server, name) : 0;
}

/* Handles RS+ account subject [queue weight], LS+ origin account subject [queue weight], and their opposites. Unknown
 * accounts are ignored. */
static bool take_interest(struct acceptor *a, struct connection *c, const struct text *items, size_t count, bool leaf,
                          bool wanted) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    bool is_leaf = (r->flags & ROUTE_LEAF) != 0;
    r->active_ns = a->now_ns;
    /* LS- names the origin only if both servers support that. */
    if (!wanted && (r->flags & ROUTE_ORIGINS) == 0) leaf = false;
    size_t least = (leaf ? 1u : 0u) + (r->account == 0 ? 1u : 0u) + 1, groups = wanted ? 2 : 1;
    if (count != least && count != least + groups) return false;
    if (r->other == 0) return true;
    struct text cluster = {0};
    if (leaf) cluster = *items++, count--;
    uint32_t account = account_in(a, c, &items, &count);
    struct text subject = items[0], queue = {0};
    uint64_t weight = wanted ? 1 : 0;
    if (account == 0 && wanted) account = learn_account(a, server, items[-1]);
    if (count > 1) queue = items[1];
    if (count > 2 && (!nats_get_size(items[2], &weight) || weight == 0)) weight = 1;
    if (account == 0 || is_moving(server, r, account)) return true;
    if (!subject_pattern_is_valid(subject.at, subject.bytes)) {
        if (wanted) nats_route_say(a, c, "-ERR 'Invalid Subscription'\r\n", 29);
        return true;
    }
    bool may = !wanted || r->permissions == NULL || is_leaf ||
               nats_may_subscribe(&server->permissions, r->permissions, subject, (struct text){0});
    if (is_leaf && wanted && !nats_leaf_may_want(a, c, subject)) return true;
    if (may && wanted && !nats_may_hear(a, server)) {
        nats_route_end(a, c, "maximum subscriptions exceeded");
        return true;
    }
    const struct nats_interest interest = {
        .account = account, .subject = subject, .queue = queue, .weight = (uint32_t)weight};
    if (may) hear(a, c, cluster, &interest);
    if (is_leaf && !wanted && nats_is_measuring(server)) nats_latency_unsubscribed(a, server, c, subject);
    return true;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Reads subject [reply] [header size] size, or subject +|| [reply] group... [header size] size. */
static bool read_message(const struct text *items, size_t count, size_t sizes, struct nats_message *m,
                         const struct text **groups, size_t *group_count) {
    uint64_t total = 0, header = 0;
    if (count < 1 + sizes) return false;
    m->subject = items[0];
    m->size = items[count - 1];
    if (!nats_get_size(m->size, &total)) return false;
    if (sizes == 2) {
        m->header_size = items[count - 2];
        if (!nats_get_size(m->header_size, &header) || header > total) return false;
    }
    m->payload_bytes = total;
    m->header_bytes = header;
    size_t between = count - 1 - sizes;
    if (between == 1) m->reply = items[1];
    if (between < 2) return true;
    bool has_reply = items[1].at[0] == '+';
    if (items[1].bytes != 1 || (!has_reply && items[1].at[0] != '|')) return false;
    if (has_reply) m->reply = items[2];
    *groups = items + (has_reply ? 3 : 2);
    *group_count = between - (has_reply ? 2 : 1);
    return true;
}

/* Begins the trace of a message, if it is to be traced; false if it is not to be delivered. */
static bool trace(struct acceptor *a, struct connection *c, uint32_t account, struct text said,
                  struct nats_message *m) {
    struct nats_server *server = route_server(a, c);
    bool is_leaf = (route_of(c)->flags & ROUTE_LEAF) != 0;
    const struct nats_ingress from = {c, is_leaf ? NATS_KIND_LEAF : NATS_KIND_ROUTE, account, said};
    if (!nats_may_be_traced(&server->accounts[account], m)) return true;
    if (nats_trace_begin(a, server, &from, m) == NATS_NOT_TAKEN) return false;
    if (m->subject.at != said.at) nats_trace_mapped(a, server, m->subject);
    return true;
}

/* Delivers a message. `said`: its subject before mapping. */
static void hand_on(struct acceptor *a, struct connection *c, uint32_t account, struct text said,
                    struct nats_message *m, const struct text *groups, size_t count) {
    struct nats_route *r = route_of(c);
    r->active_ns = a->now_ns;
    r->counted[ROUTE_IN_MESSAGES]++;
    r->counted[ROUTE_IN_BYTES] += m->payload_bytes;
    codec_count_add(a, c, ROUTE_IN_MESSAGES, 1);
    codec_count_add(a, c, ROUTE_IN_BYTES, m->payload_bytes);
    if (account == 0 || r->other == 0) return;
    struct nats_server *server = route_server(a, c);
    bool is_leaf = (r->flags & ROUTE_LEAF) != 0;
    if (!trace(a, c, account, said, m)) return;
    if (is_leaf && !nats_leaf_may_send(a, c, said)) {
        nats_trace_violation(server, "Publish to ", said);
        if (server->trace != NULL) nats_trace_end(a, server);
        return;
    }
    bool is_kept = nats_is_kept_routed(server, account, m->subject, groups, count);
    const struct nats_routed how = {.from = r->other, .kept = is_leaf && is_kept, .groups = groups, .count = count};
    if (server->accounts[account].subjects != NULL) nats_deliver_routed(a, server, account, &how, m);
    bool only = server->trace != NULL && server->trace->only;
    if (server->trace != NULL) nats_trace_end(a, server);
    server->full_route = 0;
    if (!c->closed && is_kept && !only) nats_keep_routed(a, c, server, m);
    nats_room_done(&server->trace_room);
}

/* Applies the account's mappings to a leaf node's message, as for clients: before deciding whether it is logged. */
static void map(const struct acceptor *a, const struct connection *c, uint32_t account, struct nats_message *m) {
    struct nats_server *server = route_server(a, c);
    const struct nats_shares *shares = server->accounts[account].shares;
    bool is_leaf = (route_of(c)->flags & ROUTE_LEAF) != 0;
    if (is_leaf && account != 0 && shares != NULL)
        m->subject = nats_map(server, shares, m->subject, server->subjects_made[2]);
}

/* A message to be logged waits for its worker, and with it all further input of the server. */
static bool may_hand_on(struct acceptor *a, struct connection *c, uint32_t account, const struct nats_message *m,
                        const struct text *groups, size_t count) {
    return account == 0 || route_of(c)->other == 0 ||
           !nats_is_kept_routed(route_server(a, c), account, m->subject, groups, count) ||
           nats_may_keep_routed(a, c, m);
}

/* The cluster of leaf nodes that has a message already: the sender's own, or the one a server names. */
static uint32_t origin_of(const struct acceptor *a, const struct connection *c, struct text cluster) {
    const struct nats_server *server = route_server(a, c);
    const struct nats_route *r = route_of(c);
    if (r->other == 0) return 0;
    if ((r->flags & ROUTE_LEAF) != 0) return nats_link_of(server, r->other)->origin;
    return nats_origin_named(&server->origins, cluster);
}

/* Handles a message, whose line has `line_bytes`; the payload follows as far as it has come. Returns how much was used:
 * all or nothing. */
static size_t take_message(struct acceptor *a, struct connection *c, const struct text *items, size_t count,
                           enum verb verb, const uint8_t *data, size_t line_bytes, size_t bytes) {
    struct nats_message m = {.payload = data + line_bytes};
    const struct text *groups = NULL;
    size_t group_count = 0;
    /* The verbs of clients, which name no account, are parsed and ignored. */
    if ((route_of(c)->flags & ROUTE_LEAF) != 0 && verb == VERB_LEAF_MESSAGE) verb = VERB_MESSAGE;
    bool is_named = verb != VERB_PUBLISH && verb != VERB_PUBLISH_HEADERS;
    size_t least = (is_named && route_of(c)->account == 0 ? 2u : 1u) + (verb == VERB_LEAF_MESSAGE);
    bool good = count <= NATS_ROUTE_ARGUMENTS && count >= least;
    struct text cluster = {0};
    if (good && verb == VERB_LEAF_MESSAGE) cluster = *items++, count--;
    m.origin = origin_of(a, c, cluster);
    uint32_t account = good && is_named ? account_in(a, c, &items, &count) : 0;
    size_t sizes = verb == VERB_MESSAGE || verb == VERB_PUBLISH ? 1 : 2;
    good = good && read_message(items, count, sizes, &m, &groups, &group_count) && (is_named || group_count == 0);
    if (count > NATS_ROUTE_ARGUMENTS || group_count > NATS_GROUPS) {
        nats_route_end(a, c, "maximum control line exceeded");
        return bytes;
    }
    if (!good || m.payload_bytes > MAX_BODY_BYTES) {
        nats_route_hang_up(a, c);
        return bytes;
    }
    size_t there = bytes - line_bytes;
    /* A wrong end of the payload is reported at its first wrong byte. */
    bool wrong = (there > m.payload_bytes && m.payload[m.payload_bytes] != '\r') ||
                 (there > m.payload_bytes + 1 && m.payload[m.payload_bytes + 1] != '\n');
    if (wrong) {
        nats_route_end(a, c, "Unknown Protocol Operation");
        return bytes;
    }
    if (there < m.payload_bytes + 2 || !nats_may_hand_out(a, route_server(a, c), c)) return 0;
    const struct text said = m.subject;
    map(a, c, account, &m);
    if (!may_hand_on(a, c, account, &m, groups, group_count)) return 0;
    const size_t used = line_bytes + m.payload_bytes + CRLF_BYTES; /* a trace may change the message's headers */
    route_server(a, c)->fanouts.origin = c->number;
    hand_on(a, c, account, said, &m, groups, group_count);
    route_server(a, c)->fanouts.origin = 0;
    (void)nats_fanout_may_go_on(route_server(a, c), c);
    return used;
}

/* --- the input ---------------------------------------------------------------------------------------------------- */

static void take_pong(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes) {
    struct nats_route *r = route_of(c);
    nats_note_pong(a, &r->pings, r->asked_ns, &r->rtt_ns);
    if ((r->flags & ROUTE_TELLS_PONG) == 0) return;
    r->flags &= ~(uint32_t)ROUTE_TELLS_PONG;
    reply_by_python(a, c, line, bytes);
}

static size_t take_line(struct acceptor *a, struct connection *c, enum verb verb, const uint8_t *data,
                        size_t word_bytes, size_t line_bytes, size_t bytes) {
    const uint8_t *last = data + line_bytes - 1;
    struct text *items = route_server(a, c)->scratch->words;
    size_t count = 0;
    bool is_leaf = (route_of(c)->flags & ROUTE_LEAF) != 0;
    bool good = true, for_python = verb == VERB_CONNECT || verb == VERB_INFO || verb == VERB_ERR;
    for_python |= verb == VERB_PONG && (route_of(c)->flags & ROUTE_TELLS_PONG) != 0;
    if (for_python && !may_do_alone(c)) return 0;
    if (last > data && last[-1] == '\r') last--;
    bool is_interest = verb <= VERB_NO_LEAF_INTEREST;
    if (is_interest && !nats_may_hand_out(a, route_server(a, c), c)) return 0;
    if (verb < VERB_PING) count = nats_split(data + word_bytes, last, items, NATS_ROUTE_ARGUMENTS, false);
    switch (verb) {
    case VERB_MESSAGE:
    case VERB_HEADERS:
    case VERB_PUBLISH:
    case VERB_PUBLISH_HEADERS:
    case VERB_LEAF_MESSAGE: return take_message(a, c, items, count, verb, data, line_bytes, bytes);
    case VERB_INTEREST: good = take_interest(a, c, items, count, false, true); break;
    case VERB_NO_INTEREST: good = take_interest(a, c, items, count, false, false); break;
    /* A leaf node names no origin, as it is one itself. */
    case VERB_LEAF_INTEREST: good = take_interest(a, c, items, count, !is_leaf, true); break;
    case VERB_NO_LEAF_INTEREST: good = take_interest(a, c, items, count, !is_leaf, false); break;
    case VERB_PING: nats_route_say(a, c, PONG, sizeof PONG - 1); break;
    case VERB_PONG: take_pong(a, c, data, (size_t)(last - data)); break;
    case VERB_CONNECT: route_of(c)->flags &= ~(uint32_t)ROUTE_MUST_CONNECT; /* fall through */
    case VERB_INFO:
    case VERB_ERR: reply_by_python(a, c, data, (size_t)(last - data)); break;
    default: break;
    }
    if (!good && !c->closed) nats_route_hang_up(a, c);
    return line_bytes;
}

static size_t refuse(struct acceptor *a, struct connection *c, size_t bytes) {
    bool early = (route_of(c)->flags & ROUTE_MUST_CONNECT) != 0;
    nats_route_end(a, c, early ? "Authorization Violation" : "Unknown Protocol Operation");
    return bytes;
}

/* INFO may come before CONNECT while compression is being negotiated. */
static bool may_be_first(const struct nats_route *r, uint8_t first) {
    bool may_negotiate = (r->flags & (ROUTE_LEAF | ROUTE_NEGOTIATES)) == (ROUTE_LEAF | ROUTE_NEGOTIATES);
    return (first | 32) == 'c' || (may_negotiate && (first | 32) == 'i');
}

/* Messages of a server that has joined may name any number of groups. */
static size_t most_of_line(const struct acceptor *a, const struct connection *c, uint32_t verb) {
    size_t most = (size_t)route_server(a, c)->max_control_line * LINE_FACTOR + LEAST_LINE;
    bool is_message = verb == VERB_MESSAGE || verb == VERB_HEADERS || verb == VERB_LEAF_MESSAGE;
    if (route_of(c)->other != 0 && is_message) return NATS_MAX_ROUTE_LINE;
    return most < NATS_MAX_CONTROL_LINE ? most : NATS_MAX_CONTROL_LINE;
}

static size_t take_command(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    if ((route_of(c)->flags & ROUTE_MUST_CONNECT) != 0 && !may_be_first(route_of(c), data[0]))
        return refuse(a, c, bytes);
    size_t word_bytes = 0;
    uint32_t verb = nats_word_of(WORDS, sizeof WORDS / sizeof *WORDS, data, bytes, &word_bytes);
    if (verb == NATS_WORD_PARTIAL) return 0;
    if (verb == NATS_WORD_WRONG) return refuse(a, c, bytes);
    const uint8_t *newline = memchr(data, '\n', bytes);
    size_t line_bytes = newline != NULL ? (size_t)(newline - data) + 1 : bytes;
    if (line_bytes > most_of_line(a, c, verb)) {
        nats_route_end(a, c, "maximum control line exceeded");
        return bytes;
    }
    if (newline == NULL) return 0;
    return take_line(a, c, (enum verb)verb, data, word_bytes, line_bytes, bytes);
}

/* Unsent output to a server does not hold up its input. */
size_t nats_route_parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    if (!nats_fanout_may_go_on(route_server(a, c), c)) return 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && !c->closing) {
        size_t used = take_command(a, c, data + at, bytes - at);
        if (used == 0) break;
        at += used;
    }
    return at;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static uint64_t ping_interval_ns(const struct acceptor *a, const struct connection *c) {
    const struct nats_routes *routes = codec_state(a, c->protocol);
    uint64_t interval = routes->ping_interval_ns > 0 ? routes->ping_interval_ns : routes->server->ping_interval_ns;
    return interval < MOST_PING_NS ? interval : MOST_PING_NS;
}

static void send_ping(struct acceptor *a, struct connection *c) {
    struct nats_route *r = route_of(c);
    nats_note_ping(a, &r->pings, &r->asked_ns);
    /* A negotiation that does not end makes the connection stale in time. */
    if ((r->flags & ROUTE_NEGOTIATES) == 0) nats_route_say(a, c, PING, sizeof PING - 1);
}

/* Servers get PINGs whether or not they have sent something lately. */
static void ping(struct acceptor *a, struct connection *c) {
    const struct nats_routes *routes = codec_state(a, c->protocol);
    struct nats_route *r = route_of(c);
    r->ping_ns = a->now_ns + ping_interval_ns(a, c);
    if (r->pings >= (routes->ping_max > 0 ? routes->ping_max : routes->server->ping_max)) {
        r->ping_ns = 0;
        r->reason = NATS_STALE;
        nats_route_end(a, c, "Stale Connection");
        return;
    }
    /* While Python has a command, the connection may be about to be encrypted. */
    if (c->stall != STALL_PYTHON) send_ping(a, c);
}

/* While publishers wait for a server, it has to take max_pending / LEAST_TAKEN in each write deadline. */
enum { LEAST_TAKEN = 64 };

/* Whether the server takes its output too late, or too little for the publishers that wait. */
static bool is_slow(struct acceptor *a, struct connection *c) {
    struct nats_route *r = route_of(c);
    uint64_t deadline = route_write_deadline_ns(a, c);
    bool retries = ((const struct nats_routes *)codec_state(a, c->protocol))->write_retries;
    retries = retries && (r->flags & ROUTE_MUST_CONNECT) == 0;
    enum nats_lateness found = nats_write_check(a, c, route_write_of(c), deadline, retries);
    if (found == NATS_WRITE_LATE) return true;
    if (found == NATS_WRITE_GOES_ON) codec_count_add(a, c, ROUTE_SLOW, 1);
    if (r->held_ns == 0 || a->now_ns < r->held_ns + deadline) return false;
    if (c->left_bytes - r->held_at < route_server(a, c)->max_pending / LEAST_TAKEN) return true;
    nats_route_holds(a, c);
    return false;
}

void nats_route_due(struct acceptor *a, struct connection *c) {
    struct nats_route *r = route_of(c);
    if (is_slow(a, c)) {
        if ((r->flags & NATS_WRITE_SLOW) == 0) codec_count_add(a, c, ROUTE_SLOW, 1);
        if (r->reason == 0) r->reason = NATS_SLOW_WRITE_DEADLINE;
        socket_close(a, c);
        return;
    }
    if (c->closing)
        r->ping_ns = 0; /* a time that has passed must not stay due */
    else if (r->ping_ns > 0 && a->now_ns >= r->ping_ns)
        ping(a, c);
    if (!c->closed) nats_route_schedule(a, c);
}

void nats_route_sent(struct acceptor *a, struct connection *c) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    nats_write_sent(a, c, route_write_of(c));
    if (r->write_ns > 0) nats_route_schedule(a, c);
    if (r->telling != NULL) codec_left(a, c->protocol);
    if (r->other == 0 || !nats_link_of(server, r->other)->full) return;
    if (connection_unsent(c) > server->max_pending / 2) return;
    r->held_ns = 0;
    nats_tell_full(a, server, r->other, false);
    nats_wake_route(a, server, r->other);
}

/* --- the life of a route ------------------------------------------------------------------------------------------ */

bool nats_route_started(struct acceptor *a, void *state) {
    struct nats_routes *routes = state;
    uint32_t number = codec_number(a->codecs, "nats", 4);
    /* The client protocol comes before this one in the table. */
    assert(number != 0 && codec_state(a, number) != NULL);
    routes->server = codec_state(a, number);
    routes->server->max_interest = NATS_MAX_ALL_SUBSCRIPTIONS;
    return true;
}

bool nats_route_set(void *state, const char *option, uint64_t value) {
    struct nats_routes *routes = state;
    bool is_time = value < (uint64_t)1 << LONGEST_TIME_NS_BITS;
    if (strcmp(option, "ping-interval-ns") == 0 && is_time)
        routes->ping_interval_ns = value;
    else if (strcmp(option, "write-deadline-ns") == 0 && is_time)
        routes->write_deadline_ns = value;
    else if (strcmp(option, "write-retries") == 0 && value <= 1)
        routes->write_retries = value != 0;
    else if (strcmp(option, "max-interest") == 0 && value <= UINT32_MAX)
        routes->server->max_interest = (uint32_t)value;
    else if (strcmp(option, "ping-max") == 0 && value <= UINT32_MAX)
        routes->ping_max = (uint32_t)value;
    else
        return false;
    return true;
}

void nats_route_opened(struct acceptor *a, struct connection *c, uint32_t flags) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    uint64_t interval = ping_interval_ns(a, c), first = interval < FIRST_PING_NS ? interval : FIRST_PING_NS;
    r->flags = ROUTE_MUST_CONNECT | flags;
    r->opened_ns = r->active_ns = a->now_ns;
    r->ping_ns = a->now_ns + first + nats_random(server) % (first / 5 + 1);
    nats_route_schedule(a, c);
    /* INFO comes first, and is made by Python. */
    if (!c->closed) reply_by_python(a, c, (const uint8_t *)"", 0);
}

static void opened(struct acceptor *a, struct connection *c) {
    nats_route_opened(a, c, 0);
}

/* Goes on telling servers that do not know everything yet. */
void nats_route_go_on(struct acceptor *a, void *state) {
    const struct nats_server *server = ((const struct nats_routes *)state)->server;
    for (uint32_t n = 0; n < NATS_LINKS; n++)
        if (server->links[n].connection != NULL) nats_tell_route_on(a, server->links[n].connection);
}

void nats_route_freed(struct connection *c) {
    nats_telling_free(route_of(c)->telling);
    free(route_of(c)->name);
    free(route_of(c)->info);
    nats_permissions_drop(route_of(c)->permissions);
    nats_permissions_drop(route_of(c)->publishing);
}

/* Says why the connection has ended, if that is not known otherwise. */
static size_t last_words(struct acceptor *a, struct connection *c, const uint8_t **words) {
    (void)a;
    const char *damage = compression_damage(c);
    if (damage == NULL) return 0;
    *words = (const uint8_t *)damage;
    return strlen(damage);
}

void nats_route_closed(struct acceptor *a, struct connection *c) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    if (r->other == 0) return;
    nats_link_of(server, r->other)->connection = NULL;
    server->route_count--;
    if (nats_is_leaf(r->other)) {
        server->leaf_count--;
        nats_origin_drop(&server->origins, nats_link_of(server, r->other)->origin);
    }
    nats_tell_lost(a, server, r->other);
    nats_other_left(a, server, r->other);
    nats_wake_route(a, server, r->other);
    if (r->account != 0) nats_account_drop(a, server, r->account);
    r->other = 0;
}

void nats_route_ended(struct acceptor *a, struct connection *c) {
    /* Else it closes now, and its last words still tell what it wanted. */
    if (connection_unsent(c) > 0) nats_route_closed(a, c);
}

/* --- what Python says of a route ---------------------------------------------------------------------------------- */

/* Returns a free number, in rotation, so that messages of other acceptors for a route that has just ended do not reach
 * a new one. 0: none is free. */
static uint32_t free_link(struct nats_server *server) {
    for (uint32_t n = 0; n < NATS_ROUTES; n++) {
        server->last_link = (server->last_link + 1) % NATS_ROUTES;
        if (server->links[server->last_link].connection == NULL) return BOARD_MAX_ACCEPTORS + server->last_link;
    }
    return 0;
}

/* Joins a server that Python has accepted: its interest counts from now on, and it is told the interest here. */
static int64_t join(struct acceptor *a, struct connection *c, const struct codec_call *k) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    if (r->other != 0 || c->closed || c->closing) return CALL_CLOSED;
    r->account = 0;
    if (k->bytes_count > 0) {
        r->account = nats_account_named(server, (struct text){k->bytes, k->bytes_count});
        if (r->account == 0) return CALL_REFUSED;
    }
    if ((r->other = free_link(server)) == 0) return CALL_REFUSED;
    const uint32_t told =
        ROUTE_HEADERS | ROUTE_NO_POOL | ROUTE_ORIGINS | ROUTE_LEAF_MESSAGES | ROUTE_TRACES | ROUTE_LEAVES;
    if (r->account != 0) nats_account_hold(server, r->account);
    r->flags |= (uint32_t)(k->value & told);
    r->pool_index = (uint32_t)(k->value >> 16 & 0xffff);
    r->pool_size = (uint32_t)(k->value >> 32 & 0xffff);
    nats_link_of(server, r->other)->connection = c;
    server->route_count++;
    nats_tell_route(a, server, c);
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

/* Writes figures for monitoring: each 64-bit number in two halves, the lower first. */
static int64_t figures(const struct acceptor *a, const struct connection *c, const struct codec_call *k) {
    const struct nats_figures f = nats_route_figures(a, c);
    const uint64_t numbers[] = {
        f.in_messages, f.in_bytes,      f.out_messages, f.out_bytes,        f.pending_bytes,
        f.rtt_ns,      f.subscriptions, f.idle_ns,      route_of(c)->other,
    };
    enum { PARTS = 2 * sizeof numbers / sizeof *numbers };
    for (size_t i = 0; i < PARTS && i < k->out_limit; i++) k->out[i] = (uint32_t)(numbers[i / 2] >> (i % 2 * 32));
    return PARTS;
}

/* An account has lost its dedicated routes (tell), or is moving to them (forget). */
static void tell_or_forget(struct acceptor *a, struct connection *c, const struct codec_call *k, bool tell) {
    struct nats_server *server = route_server(a, c);
    uint32_t account = nats_account_named(server, (struct text){k->bytes, k->bytes_count});
    if (route_of(c)->other == 0 || account == 0) return;
    if (tell)
        nats_tell_route_of(a, server, c, account);
    else
        nats_route_forget(a, server, c, account);
}

int64_t nats_route_call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *k) {
    struct nats_route *r = route_of(c);
    if (strcmp(what, "join") == 0) return join(a, c, k);
    if (strcmp(what, "figures") == 0) return figures(a, c, k);
    if (strcmp(what, "permissions") == 0) {
        struct nats_server *server = route_server(a, c);
        nats_route_permit(a, server, c, nats_permissions_take(&server->permissions, k->value));
        nats_route_forget_forbidden(a, server, c);
    } else if (strcmp(what, "name") == 0) {
        nats_set_name(&r->name, k->bytes, k->bytes_count);
    } else if (strcmp(what, "tell-again") == 0) {
        if (r->other != 0) nats_tell_route(a, route_server(a, c), c);
    } else if (strcmp(what, "tell-account") == 0 || strcmp(what, "forget-account") == 0) {
        tell_or_forget(a, c, k, what[0] == 't');
    } else if (strcmp(what, "solicited") == 0) {
        r->flags &= ~(uint32_t)ROUTE_MUST_CONNECT;
    } else if (strcmp(what, "negotiates") == 0) {
        r->flags = k->value != 0 ? r->flags | ROUTE_NEGOTIATES : r->flags & ~(uint32_t)ROUTE_NEGOTIATES;
        if (k->value == 0) r->pings = 0;
    } else if (strcmp(what, "tell-pong") == 0) {
        r->flags |= ROUTE_TELLS_PONG;
    } else if (strcmp(what, "ping") == 0) {
        r->flags |= ROUTE_TELLS_PONG;
        send_ping(a, c);
    } else {
        return CALL_REFUSED;
    }
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

const char *const nats_route_counters[] = {"in-messages", "in-bytes", "out-messages", "out-bytes", "slow-consumers"};

const struct codec nats_route_codec = {
    .name = "nats-route",
    .acceptor_bytes = sizeof(struct nats_routes),
    .connection_bytes = sizeof(struct nats_route),
    .counters = nats_route_counters,
    .counter_count = ROUTE_COUNTERS,
    .first_gauge = ROUTE_COUNTERS,
    .tells_live = true,
    .python_keeps = true,
    .joins_servers = true,
    .answer = nats_not_kept_routed,
    .replied = nats_kept_routed,
    .parse = nats_route_parse,
    .started = nats_route_started,
    .set = nats_route_set,
    .call = nats_route_call,
    .go_on = nats_route_go_on,
    .last_words = last_words,
    .opened = opened,
    .sent = nats_route_sent,
    .due = nats_route_due,
    .ended = nats_route_ended,
    .closed = nats_route_closed,
    .freed = nats_route_freed,
};
