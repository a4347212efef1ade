/* Parses clients' lines and handles the commands. Valid lines, and the errors for others, are those of nats-server. It
 * reads byte by byte, so an unknown word is answered before its line is complete, and PING may be followed by anything.
 */
#include <stdio.h>
#include <stdlib.h>

#include "acceptor/mesh.h"
#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_life.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_answers.h"
#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_chosen.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_due.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_fanouts.h"
#include "acceptor/protocols/nats/nats_figures.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "acceptor/protocols/nats/nats_leaving.h"
#include "acceptor/protocols/nats/nats_line.h"
#include "acceptor/protocols/nats/nats_logged.h"
#include "acceptor/protocols/nats/nats_looks.h"
#include "acceptor/protocols/nats/nats_mesh.h"
#include "acceptor/protocols/nats/nats_name.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_proxied.h"
#include "acceptor/protocols/nats/nats_publish.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_replies.h"
#include "acceptor/protocols/nats/nats_results.h"
#include "acceptor/protocols/nats/nats_run.h"
#include "acceptor/protocols/nats/nats_say.h"
#include "acceptor/protocols/nats/nats_shadows.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_streams.h"
#include "acceptor/protocols/nats/nats_subscription.h"
#include "acceptor/protocols/nats/nats_topics.h"
#include "acceptor/protocols/nats/nats_trace.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "acceptor/protocols/nats/nats_turns.h"
#include "base/subject_groups.h"
#include "base/time_units.h"

enum { FIRST_PING_S = 2 };

static const char PONG[] = "PONG\r\n";

/* --- what is said ------------------------------------------------------------------------------------------------- */

static void say_too_many_tokens(struct acceptor *a, struct connection *c, struct text subject) {
    nats_say(a, c, "-ERR '", 6);
    nats_say_quoted(a, c, "Permissions Violation for Subscription to ", subject);
    nats_say(a, c, ", too many tokens'\r\n", 20);
}

/* --- a line ------------------------------------------------------------------------------------------------------- */

enum verb {
    VERB_PUB = NATS_FIRST_WORD,
    VERB_HPUB,
    VERB_SUB,
    VERB_UNSUB,
    VERB_PING,
    VERB_PONG,
    VERB_CONNECT,
    VERB_INFO,
    VERB_OK,
    VERB_ERR
};

static const struct nats_word WORDS[] = {
    {VERB_PUB, "PUB", 3, true},          {VERB_HPUB, "HPUB", 4, true},  {VERB_SUB, "SUB", 3, true},
    {VERB_UNSUB, "UNSUB", 5, true},      {VERB_PING, "PING", 4, false}, {VERB_PONG, "PONG", 4, false},
    {VERB_CONNECT, "CONNECT", 7, false}, {VERB_INFO, "INFO", 4, false}, {VERB_OK, "+OK", 3, false},
    {VERB_ERR, "-ERR", 4, true},
};

/* --- the other commands ------------------------------------------------------------------------------------------- */

static bool take_sub(struct acceptor *a, struct connection *c, const struct nats_arguments *k) {
    if (k->count != 2 && k->count != 3) return false;
    struct text queue = k->count == 3 ? k->items[1] : (struct text){0};
    switch (nats_subscribe(a, c, k->items[0], queue, k->items[k->count - 1])) {
    case NATS_SUBSCRIBED:
    case NATS_SID_IN_USE:
        if (nats_is(c, NATS_LOOKING)) stalled(c, STALL_MESH);
        if (nats_is(c, NATS_VERBOSE) && (nats_is(c, NATS_LOOKING) || !nats_is_known(a, c)))
            nats_of(c)->flags |= NATS_OWED_OK;
        else
            nats_say_ok(a, c);
        break;
    case NATS_NOT_ALLOWED: nats_say_violation(a, c, "Subscription to ", k->items[0], queue); break;
    case NATS_INVALID_SUBJECT: nats_say_error(a, c, "Invalid Subject"); break;
    case NATS_TOO_MANY: nats_say_error(a, c, "maximum subscriptions exceeded"); break;
    case NATS_TOO_MANY_TOKENS: say_too_many_tokens(a, c, k->items[0]); break;
    case NATS_NO_MEMORY: engine_oom(a, c); break;
    }
    return true;
}

/* The SUB that was obeyed before is known to all acceptors now. */
static bool say_owed_ok(struct acceptor *a, struct connection *c) {
    nats_of(c)->flags &= ~(uint32_t)NATS_OWED_OK;
    nats_say_ok(a, c);
    return true;
}

/* Who gives up a pattern that has to be looked for in very many streams goes on when that is done. */
static void unsubscribe(struct acceptor *a, struct connection *c, struct nats_subscription *s) {
    struct nats_server *server = nats_server_of(a, c);
    const uint64_t made = server->looks.made;
    nats_unsubscribe(a, s);
    if (server->looks.made == made) return;
    nats_look_for(server, c);
    stalled(c, STALL_MESH);
}

static bool take_unsub(struct acceptor *a, struct connection *c, const struct nats_arguments *k) {
    if (k->count != 1 && k->count != 2) return false;
    struct nats_subscription *s = nats_find(a, c, k->items[0]);
    uint64_t max = 0;
    if (k->count == 2 && !nats_get_size(k->items[1], &max)) max = 0;
    if (s != NULL && max > nats_delivered(s))
        nats_set_limit(s, (uint32_t)max); /* of nine digits at most */
    else if (s != NULL)
        unsubscribe(a, c, s);
    nats_say_ok(a, c);
    return true;
}

static void take_ping(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes) {
    struct nats *n = nats_of(c);
    if (nats_is(c, NATS_CONNECTED) && !nats_is(c, NATS_GREETED)) {
        /* The first PING is answered by Python: with PONG and INFO about the account. */
        n->flags |= NATS_GREETED;
        reply_by_python(a, c, line, bytes);
        return;
    }
    nats_say(a, c, PONG, sizeof PONG - 1);
}

/* CONNECT has come. The time that took is a first estimate of the round-trip time, until a PING has measured that. */
static void take_connect(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    struct nats *n = nats_of(c);
    uint64_t now = exact_now(a), first = FIRST_PING_S * SECOND_NS;
    n->flags |= NATS_CONNECTED;
    if (n->rtt_ns == 0 && now > n->opened_ns) n->rtt_ns = now - n->opened_ns;
    if (first > server->ping_interval_ns) first = server->ping_interval_ns;
    n->ping_ns = a->now_ns + first + nats_random(server) % (first / 5 + 1);
    nats_schedule(a, c);
}

static void take_pong(struct acceptor *a, struct connection *c) {
    struct nats *n = nats_of(c);
    nats_note_pong(a, &n->pings, n->asked_ns, &n->rtt_ns);
}

/* --- the input ---------------------------------------------------------------------------------------------------- */

static size_t refuse(struct acceptor *a, struct connection *c, size_t bytes) {
    nats_end(a, c, NATS_PROTOCOL_VIOLATION, NATS_UNKNOWN_OPERATION);
    return bytes;
}

/* Whether an INFO has an object. A client's INFO is ignored, so only its first and last characters are checked. */
static bool is_object(const uint8_t *at, const uint8_t *end) {
    while (at < end && nats_is_between(*at, false)) at++;
    while (at < end && nats_is_between(end[-1], false)) end--;
    size_t bytes = (size_t)(end - at);
    return bytes >= 2 && ((at[0] == '{' && end[-1] == '}') || (bytes == 4 && memcmp(at, "null", 4) == 0));
}

/* Whether a client may subscribe or unsubscribe in this turn, towards which interest counts that servers are told, and
 * measured requests, denied subjects and imported streams that are looked at, like messages. */
static bool may_want(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    bool is_short = server->route_count == 0 && !nats_is_measuring(server) && nats_of(c)->permissions == NULL &&
                    nats_account_of(a, c)->importing == NULL;
    return is_short || nats_may_hand_out(a, server, c);
}

/* PUB and HPUB are logged with their messages. */
static void log_line(struct acceptor *a, struct connection *c, enum verb verb, const uint8_t *at, const uint8_t *end) {
    const char *const name = verb == VERB_SUB       ? "SUB"
                             : verb == VERB_UNSUB   ? "UNSUB"
                             : verb == VERB_PING    ? "PING"
                             : verb == VERB_PONG    ? "PONG"
                             : verb == VERB_CONNECT ? "CONNECT"
                                                    : NULL;
    const bool has_arguments = verb != VERB_PING && verb != VERB_PONG && at < end;
    if (name != NULL) nats_log_came(a, c, name, (struct text){at, has_arguments ? (size_t)(end - at) : 0});
}

/* Whether a line can be obeyed in this turn. */
static bool may_take(struct acceptor *a, struct connection *c, enum verb verb) {
    if (nats_is(c, NATS_LOGGED) && !nats_may_hand_out(a, nats_server_of(a, c), c)) return false;
    switch (verb) {
    case VERB_SUB:
    case VERB_UNSUB: return may_want(a, c);
    case VERB_PING: return nats_is_known(a, c) && (nats_is(c, NATS_GREETED) || may_do_alone(c));
    case VERB_CONNECT: return may_do_alone(c);
    default: return true;
    }
}

static size_t take_line(struct acceptor *a, struct connection *c, enum verb verb, const uint8_t *data,
                        size_t word_bytes, size_t line_bytes, size_t bytes) {
    const uint8_t *end = data + line_bytes - 1;
    if (end > data && end[-1] == '\r') end--;
    struct nats_arguments k = {.count = 0};
    if (verb != VERB_PING && verb != VERB_PONG && verb != VERB_OK)
        k.count =
            nats_split(data + word_bytes, end, k.items, NATS_MAX_ARGUMENTS, verb == VERB_PUB || verb == VERB_HPUB);
    bool good = true;
    if (!may_take(a, c, verb)) return 0;
    if (nats_is(c, NATS_LOGGED) && !nats_is(c, NATS_OWED_OK)) log_line(a, c, verb, data + word_bytes, end);
    switch (verb) {
    case VERB_PUB:
    case VERB_HPUB: return nats_take_publish(a, c, &k, verb == VERB_HPUB, data, line_bytes, bytes);
    case VERB_SUB:
        good = nats_is(c, NATS_OWED_OK) ? say_owed_ok(a, c) : take_sub(a, c, &k);
        /* The line stays input: without any the connection would not be looked at again. */
        if (nats_is(c, NATS_OWED_OK)) return 0;
        break;
    case VERB_UNSUB: good = take_unsub(a, c, &k); break;
    case VERB_PING: take_ping(a, c, data, (size_t)(end - data)); break;
    case VERB_PONG: take_pong(a, c); break;
    case VERB_CONNECT:
        take_connect(a, c);
        if (!c->closed) reply_by_python(a, c, data, (size_t)(end - data));
        break;
    case VERB_INFO: good = is_object(data + word_bytes, end); break;
    case VERB_OK: break;
    case VERB_ERR: nats_hang_up(a, c, NATS_PARSE_ERROR); break;
    }
    if (!good && !c->closed) nats_hang_up(a, c, NATS_PROTOCOL_VIOLATION);
    return line_bytes;
}

enum { MAX_BARE_LINE = 4096 }; /* of a command without arguments */

static size_t take_command(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    /* Before authentication only CONNECT is allowed. */
    if (nats_is(c, NATS_MUST_CONNECT) && (data[0] | 32) != 'c') {
        if (!nats_is(c, NATS_MAY_BE_NOBODY)) {
            nats_end(a, c, NATS_AUTHENTICATION_VIOLATION, "Authorization Violation");
            return bytes;
        }
        nats_of(c)->flags |= NATS_CONNECTED; /* as for a nats-server, though CONNECT may still come */
        reply_by_python(a, c, (const uint8_t *)"NOBODY", 6);
        return 0;
    }
    size_t word_bytes = 0;
    uint32_t verb = nats_word_of(WORDS, sizeof WORDS / sizeof *WORDS, data, bytes, &word_bytes);
    if (verb == NATS_WORD_PARTIAL) return 0;
    if (verb == NATS_WORD_WRONG) return refuse(a, c, bytes);
    const uint8_t *newline = memchr(data, '\n', bytes);
    size_t line_bytes = newline != NULL ? (size_t)(newline - data) + 1 : bytes;
    size_t ends = newline == NULL ? 0 : newline > data && newline[-1] == '\r' ? 2 : 1;
    bool has_arguments = verb != VERB_PING && verb != VERB_PONG && verb != VERB_OK;
    if (has_arguments && line_bytes - ends > word_bytes + 1 + nats_server_of(a, c)->max_control_line) {
        nats_end(a, c, NATS_TOO_LONG, "maximum control line exceeded");
        return bytes;
    }
    if (newline == NULL) return has_arguments || line_bytes <= MAX_BARE_LINE ? 0 : refuse(a, c, bytes);
    return take_line(a, c, (enum verb)verb, data, word_bytes, line_bytes, bytes);
}

enum { AWAITING = NATS_OWED_OK | NATS_LOOKING | NATS_UNCONFIRMED };

/* Whether the SUB that the connection waits for has come to where it is to. */
static bool has_subscribed(struct acceptor *a, struct connection *c) {
    if (nats_is(c, NATS_LOOKING)) return stalled(c, STALL_MESH);
    if (!nats_is_known(a, c)) return false;
    nats_of(c)->flags &= ~(uint32_t)NATS_UNCONFIRMED;
    return true;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    if (nats_is(c, NATS_SNIFF)) {
        nats_sniffed(a, c, data, bytes);
        return 0;
    }
    if (nats_is(c, NATS_PROXIED)) return nats_take_proxied(a, c, data, bytes);
    if ((nats_of(c)->flags & AWAITING) != 0 && !has_subscribed(a, c)) return 0;
    if (!nats_fanout_may_go_on(nats_server_of(a, c), c)) return 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && !c->closing && may_go_on(a, c)) {
        size_t used = nats_take_run(a, c, data + at, bytes - at);
        if (used == 0 && c->stall == STALL_NONE) used = take_command(a, c, data + at, bytes - at);
        if (used == 0) break;
        at += used;
    }
    if (at > 0 && !c->closed) nats_of(c)->heard_ns = a->now_ns;
    return at;
}

/* A client may publish much of what it subscribes to before it reads any of it. Input waits only where a nats-server
 * slows down who publishes to the client, so that one that does read is not cut. */
static size_t unsent_limit(const struct acceptor *a, const struct connection *c) {
    return room_pending_bytes(a, nats_server_of(a, c)->max_pending) / 4 * 3;
}

/* --- the life of an acceptor and of a connection ------------------------------------------------------------------ */

enum { SYSTEM_ACCOUNT = 2 };

static bool open_first_accounts(struct acceptor *a, struct nats_server *server) {
    const struct text global = {(const uint8_t *)"$G", 2}, system = {(const uint8_t *)"$SYS", 4};
    if (nats_open_account(a, server, global) != NATS_GLOBAL_ACCOUNT) return false;
    if (nats_open_account(a, server, system) != SYSTEM_ACCOUNT) return false;
    nats_account_keep(a, server, NATS_GLOBAL_ACCOUNT, true);
    nats_account_keep(a, server, SYSTEM_ACCOUNT, true);
    server->accounts[SYSTEM_ACCOUNT].routes = NATS_DEDICATED;
    return true;
}

static bool started(struct acceptor *a, void *state) {
    struct nats_server *server = state;
    server->protocol = codec_number(a->codecs, "nats", 4);
    server->max_payload = 1u << 20;
    server->max_control_line = 4096;
    server->max_pending = 64u << 20;
    server->write_deadline_ns = 10 * SECOND_NS;
    server->ping_interval_ns = 120 * SECOND_NS;
    server->ping_max = 2;
    server->key = siphash_key(0);
    server->random = server->key.words[0] | 1;
    server->permissions.key = server->origins.key = server->key;
    server->walk = subject_walk_new();
    server->remote_walk = subject_walk_new();
    server->scratch = malloc(sizeof *server->scratch);
    if (server->walk != NULL) subject_walk_count(server->walk, &server->walked);
    if (server->remote_walk != NULL) subject_walk_count(server->remote_walk, &server->walked);
    return server->walk != NULL && server->remote_walk != NULL && server->scratch != NULL &&
           open_first_accounts(a, server);
}

static void go_on(struct acceptor *a, void *state) {
    nats_looks_go_on(a, state);
    nats_fanouts_go_on(a, state);
    nats_hand_on(a, state);
    nats_leave_on(a, state);
    nats_mesh_tell_on(a, state);
    nats_latency_publish(a, state);
    nats_shares_go_on(a, state);
    nats_accounts_go_on(a, state);
}

static void freed(struct connection *c) {
    nats_permissions_drop(nats_of(c)->permissions);
    nats_replies_free(nats_of(c)->replies);
    free(nats_of(c)->info);
    free(nats_of(c)->name);
}

static int64_t keep_account(struct acceptor *a, struct nats_server *server, struct text name) {
    uint32_t number = nats_open_account(a, server, name);
    if (number == 0) return CALL_REFUSED;
    nats_account_keep(a, server, number, true);
    return number;
}

static int64_t set_routes(struct acceptor *a, struct nats_server *server, struct text name, uint64_t routes) {
    uint32_t number = nats_open_account(a, server, name);
    if (number == 0) return CALL_REFUSED;
    server->accounts[number].routes = (enum nats_account_routes)routes;
    nats_account_look(a, server, number);
    return number;
}

static bool is_account(const struct nats_server *server, uint64_t number) {
    return number != 0 && number < server->account_count && server->accounts[number].subjects != NULL;
}

/* Sets what events say of this server. */
static int64_t describe(struct nats_server *server, const uint8_t *bytes, size_t count) {
    uint8_t *described = malloc(count > 0 ? count : 1);
    if (described == NULL) return CALL_REFUSED;
    if (count > 0) memcpy(described, bytes, count);
    free(server->described);
    server->described = described;
    server->described_bytes = count;
    return CALL_DONE;
}

/* "share-lines" are the first of an account's, "shares" the last: then all of them hold. */
static int64_t set_shares(struct acceptor *a, struct nats_server *server, const char *what, uint64_t value,
                          struct text said) {
    const uint32_t account = is_account(server, value) ? (uint32_t)value : 0;
    bool is_open = nats_journey_open(server) && nats_shadows_open(server);
    if (is_open && strcmp(what, "share-lines") == 0)
        return nats_shares_add(a, server, account, said.at, said.bytes) ? CALL_DONE : CALL_REFUSED;
    if (!is_open || strcmp(what, "shares") != 0) return CALL_REFUSED;
    if (!nats_shares_make(a, server, account, said.at, said.bytes)) return CALL_REFUSED;
    nats_streams_make(a, server, account);
    return CALL_DONE;
}

static int64_t configure(struct acceptor *a, void *state, const char *what, uint64_t value, const uint8_t *bytes,
                         size_t bytes_count) {
    struct nats_server *server = state;
    if (strcmp(what, "permissions") == 0)
        return nats_permissions_make(&server->permissions, value, bytes, bytes_count) ? CALL_DONE : CALL_REFUSED;
    const struct text said = {bytes, bytes_count};
    if (strcmp(what, "account") == 0) return keep_account(a, server, said);
    if (strcmp(what, "find-account") == 0) return nats_account_named(server, said);
    if (strcmp(what, "account-routes") == 0 && value <= NATS_DEDICATED) return set_routes(a, server, said, value);
    if (strcmp(what, "let-account-go") == 0) {
        if (!is_account(server, value)) return CALL_REFUSED;
        nats_account_keep(a, server, (uint32_t)value, false);
        return CALL_DONE;
    }
    if (strncmp(what, "latency", 7) == 0) return nats_latency_configure(a, server, what, value, said);
    if (strcmp(what, "log") == 0) return nats_log_set(a, server, value) ? CALL_DONE : CALL_REFUSED;
    if (strcmp(what, "described") == 0) return describe(server, bytes, bytes_count);
    if (strcmp(what, "trace") == 0) {
        bool set = is_account(server, value) && nats_trace_account(&server->accounts[value], said);
        return set ? CALL_DONE : CALL_REFUSED;
    }
    if (strncmp(what, "share", 5) == 0) return set_shares(a, server, what, value, said);
    return CALL_REFUSED;
}

static void stopped(void *state) {
    struct nats_server *server = state;
    nats_fanouts_close(server);
    nats_leaving_free(server, freed);
    nats_permissions_close(&server->permissions);
    for (uint32_t other = 0; other < BOARD_MAX_ACCEPTORS; other++) {
        free(server->peers[other].waiting.items);
        free(server->peers[other].accounts);
    }
    for (uint32_t n = 0; n < NATS_LINKS; n++) free(server->links[n].waiting.items);
    nats_latency_close(server);
    nats_log_free(server);
    nats_answers_close(server);
    nats_looks_close(server);
    nats_shadows_close(server);
    nats_shares_close(server);
    nats_accounts_close(server);
    nats_origins_close(&server->origins);
    subject_walk_free(server->remote_walk);
    free(server->expired);
    free(server->publishers.items);
    free(server->kept);
    free(server->described);
    free(server->trace_room.at);
    while (server->traces != NULL) {
        struct nats_trace *t = server->traces;
        server->traces = t->next;
        nats_trace_free(t);
    }
    nats_unbind_topics(server);
    nats_journey_close(server);
    free(server->scratch);
    subject_walk_free(server->walk);
}

static bool set(void *state, const char *option, uint64_t value) {
    struct nats_server *server = state;
    bool is_time = value > 0 && value < (uint64_t)1 << LONGEST_TIME_NS_BITS;
    if (strcmp(option, "max-payload") == 0 && value <= MAX_BODY_BYTES)
        server->max_payload = (uint32_t)value;
    else if (strcmp(option, "max-control-line") == 0 && value > 0 && value <= NATS_MAX_CONTROL_LINE)
        server->max_control_line = (uint32_t)value;
    else if (strcmp(option, "max-pending") == 0 && value > 0)
        server->max_pending = value;
    else if (strcmp(option, "max-subscriptions") == 0 && value <= UINT32_MAX)
        server->max_subscriptions = (uint32_t)value;
    else if (strcmp(option, "max-sub-tokens") == 0 && value <= UINT8_MAX)
        server->max_tokens = (uint32_t)value;
    else if (strcmp(option, "write-deadline-ns") == 0 && is_time)
        server->write_deadline_ns = value;
    else if (strcmp(option, "write-retries") == 0 && value <= 1)
        server->write_retries = value != 0;
    else if (strcmp(option, "ping-interval-ns") == 0 && is_time)
        server->ping_interval_ns = value;
    else if (strcmp(option, "ping-max") == 0 && value <= UINT32_MAX)
        server->ping_max = (uint32_t)value;
    else if (strcmp(option, "answers-all") == 0 && value <= 1)
        server->answers_all = value != 0;
    else if (strcmp(option, "learns-accounts") == 0 && value <= 1)
        server->learns_accounts = value != 0;
    else
        return false;
    return true;
}

static void opened(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    struct nats *n = nats_of(c);
    codec_count_add(a, c, NATS_TOTAL_CONNECTIONS, 1);
    codec_count_add(a, c, NATS_CONNECTIONS, 1);
    n->active_ns = a->now_ns;
    n->opened_ns = exact_now(a);
    n->account = NATS_GLOBAL_ACCOUNT;
    nats_account_hold(server, n->account);
    n->flags = NATS_VERBOSE | NATS_PEDANTIC | NATS_ECHO;
    nats_log_opened(server, c);
    n->max_payload = server->max_payload;
    n->max_subscriptions = server->max_subscriptions;
    n->ping_ns = a->now_ns + server->ping_interval_ns;
    nats_schedule(a, c);
    /* INFO comes first, and Python sends it. */
    if (!c->closed) reply_by_python(a, c, (const uint8_t *)"", 0);
}

static void closed(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    if (!nats_is(c, NATS_OF_SERVER)) codec_count_add(a, c, NATS_CONNECTIONS, (uint64_t)-1);
    nats_leave(a, c);
    if (!server->delivering) {
        nats_client_left(a, c);
        return;
    }
    nats_of(c)->next_orphaned = server->orphaned;
    server->orphaned = c;
}

/* --- what Python says of a connection ----------------------------------------------------------------------------- */

static int64_t set_account(struct acceptor *a, struct connection *c, uint64_t number) {
    struct nats *n = nats_of(c);
    struct nats_server *server = nats_server_of(a, c);
    if (!is_account(server, number)) return CALL_REFUSED;
    if (number == n->account) return CALL_DONE;
    nats_leave(a, c);
    nats_let_go(a, c);
    nats_account_hold(server, (uint32_t)number);
    nats_account_drop(a, server, n->account);
    n->account = (uint32_t)number;
    return CALL_DONE;
}

/* Ends the connection for a reason that Python gives, after an error if there is a text. */
static int64_t end_by_python(struct acceptor *a, struct connection *c, const struct codec_call *k) {
    if (k->bytes_count > 0) nats_say(a, c, "-ERR '", 6);
    if (k->bytes_count > 0 && !c->closed) nats_say(a, c, k->bytes, k->bytes_count);
    if (k->bytes_count > 0 && !c->closed) nats_say(a, c, "'\r\n", 3);
    if (c->closed) return CALL_CLOSED;
    if (c->stall == STALL_PYTHON) c->stall = STALL_NONE;
    nats_hang_up(a, c, (enum nats_reason)k->value);
    wake_self(a);
    return CALL_DONE;
}

/* Publishes an answer of the server in the connection's account: a subject, a blank and the content. With a value only
 * clients of this acceptor get it. */
static int64_t answer_by_python(struct acceptor *a, struct connection *c, const struct codec_call *k) {
    const uint8_t *blank = k->bytes_count > 0 ? memchr(k->bytes, ' ', k->bytes_count) : NULL;
    uint8_t digits[DECIMAL_MAX_BYTES];
    if (blank == NULL || blank == k->bytes) return CALL_REFUSED;
    struct nats_message m = {.subject = {k->bytes, (size_t)(blank - k->bytes)}, .payload = blank + 1};
    m.payload_bytes = k->bytes_count - m.subject.bytes - 1;
    m.size = (struct text){digits, (size_t)(decimal_put(digits, m.payload_bytes) - digits)};
    if (k->value != 0)
        nats_deliver_here(a, nats_server_of(a, c), nats_of(c)->account, &m, true, NULL, 0);
    else
        nats_deliver_as_server(a, nats_server_of(a, c), nats_of(c)->account, &m);
    wake_self(a);
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

/* Removes a subscription, with -ERR 'Permissions Violation for Subscription to "subject" using queue "q" (sid "s")'. */
static void take_away(struct acceptor *a, struct connection *c, struct nats_subscription *s) {
    const struct subject_group *g = s->entry.group;
    const struct subject_pattern *p = s->entry.pattern;
    nats_say(a, c, "-ERR 'Permissions Violation for ", 32);
    nats_say_quoted(a, c, "Subscription to ", (struct text){(const uint8_t *)p->text, p->bytes});
    if (g != NULL)
        nats_say_quoted(a, c, " using queue ", (struct text){(const uint8_t *)g->name->text, g->name->bytes});
    nats_say_quoted(a, c, " (sid ", (struct text){(const uint8_t *)s->sid, s->sid_bytes});
    nats_say(a, c, ")'\r\n", 4);
    if (!c->closed) nats_unsubscribe(a, s);
}

/* Sets the permissions by number; 0: all is allowed. Removes subscriptions that are no longer allowed. */
static int64_t set_permissions(struct acceptor *a, struct connection *c, uint64_t number) {
    struct nats *n = nats_of(c);
    struct nats_permissions *set = nats_permissions_take(&nats_server_of(a, c)->permissions, number);
    if (number != 0 && set == NULL) return CALL_REFUSED;
    nats_permissions_drop(n->permissions);
    nats_replies_free(n->replies);
    n->permissions = set;
    n->replies = NULL;
    n->flags &= ~(uint32_t)NATS_DENIED_SOME;
    uint32_t place = 0;
    for (struct nats_subscription *s; (s = nats_next_forbidden(a, c, &place)) != NULL;) {
        take_away(a, c, s);
        if (c->closed) return CALL_CLOSED;
    }
    return CALL_DONE;
}

/* Who has more already is disconnected. */
static void limit_subscriptions(struct acceptor *a, struct connection *c, uint32_t most) {
    nats_of(c)->max_subscriptions = most;
    if (most == 0 || nats_of(c)->sid_count <= most) return;
    nats_end(a, c, NATS_TOO_MANY_SUBSCRIPTIONS, "maximum subscriptions exceeded");
    wake_self(a);
}

static int64_t call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *k) {
    struct nats *n = nats_of(c);
    const uint32_t asked = NATS_VERBOSE | NATS_PEDANTIC | NATS_ECHO | NATS_HEADERS | NATS_NO_RESPONDERS |
                           NATS_MUST_CONNECT | NATS_MAY_BE_NOBODY;
    if (strcmp(what, "account") == 0) return set_account(a, c, k->value);
    if (strcmp(what, "join") == 0) return nats_join(a, c, k->value) ? CALL_DONE : CALL_CLOSED;
    if (strcmp(what, "answer") == 0) return answer_by_python(a, c, k);
    if (strcmp(what, "end") == 0) return end_by_python(a, c, k);
    if (strcmp(what, "permissions") == 0) return set_permissions(a, c, k->value);
    if (strcmp(what, "info") == 0) { /* JSON, with \n where its round-trip time is inserted */
        nats_set_name(&n->info, k->bytes, k->bytes_count);
        return CALL_DONE;
    }
    if (strcmp(what, "name") == 0) {
        nats_set_name(&n->name, k->bytes, k->bytes_count);
        return CALL_DONE;
    }
    if (strcmp(what, "flags") == 0 && (k->value & ~(uint64_t)asked) == 0) {
        n->flags = (n->flags & ~asked) | (uint32_t)k->value;
    } else if (strcmp(what, "must-connect-by-ns") == 0) {
        n->deadline_ns = k->value;
        nats_schedule(a, c);
    } else if (strcmp(what, "of-server") == 0 && !nats_is(c, NATS_OF_SERVER)) {
        n->flags = (n->flags & ~(uint32_t)NATS_LOGGED) | NATS_OF_SERVER;
        n->ping_ns = 0;
        n->max_payload = MAX_BODY_BYTES;
        codec_count_add(a, c, NATS_CONNECTIONS, (uint64_t)-1);
        codec_count_add(a, c, NATS_TOTAL_CONNECTIONS, (uint64_t)-1);
    } else if (strcmp(what, "client-id") == 0) {
        n->client_id = k->value;
    } else if (strcmp(what, "sniff-until-ns") == 0) {
        n->flags |= NATS_SNIFF;
        n->deadline_ns = k->value;
        nats_schedule(a, c);
    } else if (strcmp(what, "proxied-until-ns") == 0) {
        n->flags |= NATS_PROXIED;
        n->deadline_ns = k->value;
        nats_schedule(a, c);
    } else if (strcmp(what, "retire") == 0 && k->value <= UINT32_MAX) { /* value: where to go on; returns that */
        uint32_t place = (uint32_t)k->value;
        return nats_retire_some(a, c, &place) ? CALL_DONE : (int64_t)place;
    } else if (strcmp(what, "let-go") == 0) {
        nats_let_go(a, c);
    } else if (strcmp(what, "max-subscriptions") == 0 && k->value <= UINT32_MAX) {
        limit_subscriptions(a, c, (uint32_t)k->value);
    } else if (strcmp(what, "max-payload") == 0 && k->value <= MAX_BODY_BYTES) {
        n->max_payload = (uint32_t)k->value;
    } else {
        return CALL_REFUSED;
    }
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

static const char *const counters[] = {
    "slow-consumers", "stale-connections", "total-connections", "in-messages", "in-bytes",
    "out-messages",   "out-bytes",         "subscriptions",     "connections",
};
_Static_assert(sizeof counters / sizeof *counters == NATS_COUNTERS, "a name for each");

const struct codec nats_codec = {
    .name = "nats",
    .acceptor_bytes = sizeof(struct nats_server),
    .connection_bytes = sizeof(struct nats),
    .counters = counters,
    .counter_count = NATS_COUNTERS,
    .first_gauge = NATS_SUBSCRIPTIONS,
    .tells_live = true,
    .python_keeps = true,
    .answer = nats_not_kept,
    .replied = nats_kept,
    .wants_topic = nats_wants_topic,
    .topic_published = nats_topic_published,
    .parse = parse,
    .started = started,
    .stopped = stopped,
    .set = set,
    .configure = configure,
    .call = call,
    .ask = nats_ask,
    .last_words = nats_last_words,
    .unsent_limit = unsent_limit,
    .opened = opened,
    .sent = nats_sent,
    .due = nats_due,
    .go_on = go_on,
    .closed = closed,
    .freed = freed,
    .mesh_joined = nats_mesh_joined,
    .mesh_lost = nats_mesh_lost,
    .mesh_heard = nats_mesh_heard,
    .may_serve = nats_may_serve,
};
