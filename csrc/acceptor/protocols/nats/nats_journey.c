/* A message's way from account to account: other accounts import it, further accounts import it from these, and answers
 * go back. A journey is a stack of legs. Each leg is a message in one account, and the imports of it that are still to
 * be done. The first leg is the published message; the last one is worked on until it is done.
 *
 * A configuration in which imports form a cycle is refused, as by nats-server. In case there is one nevertheless, an
 * import that a message has passed is not taken again. */
#include "acceptor/protocols/nats/nats_journey.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_answers.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_shadows.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_trace.h"
#include "acceptor/protocols/nats/nats_traced.h"

#define TRACE_LIFETIME_NS ((uint64_t)120 * 1000000000u)

struct leg {
    struct nats_message message;
    struct connection *asker; /* client that published the first message; NULL: an answer, or no client did here */
    const struct connection *requestor; /* the same, or a leaf node or hub that sent it */
    const struct nats_share *by, *imports[NATS_MAX_IMPORTED];
    uint32_t account;
    uint32_t from;        /* the server, leaf node or hub that sent the message; 0: it was published here */
    uint16_t count, next; /* how many imports there are, and the next to be done */
    uint32_t measured;    /* the request's measurement; 0: none */
    bool answers;         /* may be an answer that another account waits for */
    bool untraced;        /* here and further on the message is not traced */
    bool any;             /* somebody got the message, here or further on */
    struct nats_room room, trace_room;
};

struct nats_journey {
    uint32_t copies;
    struct leg legs[NATS_MAX_CHAIN];
};

bool nats_journey_open(struct nats_server *server) {
    if (server->journey == NULL) server->journey = calloc(1, sizeof *server->journey);
    return server->journey != NULL;
}

void nats_journey_close(struct nats_server *server) {
    for (size_t i = 0; server->journey != NULL && i < NATS_MAX_CHAIN; i++) {
        free(server->journey->legs[i].room.at);
        free(server->journey->legs[i].trace_room.at);
    }
    free(server->journey);
}

static void end_leg(struct acceptor *a, struct nats_server *server, struct leg *leg) {
    if (leg->measured != 0 && !leg->any) nats_latency_unavailable(a, server, leg->message.reply);
    nats_room_done(&leg->room);
    nats_room_done(&leg->trace_room);
}

static bool has_come_by(const struct nats_journey *journey, uint32_t depth, const struct nats_share *share) {
    for (uint32_t i = 0; i <= depth; i++)
        if (journey->legs[i].by == share) return true;
    return false;
}

static bool is_from_server(const struct leg *leg) {
    return leg->from != 0 && !nats_is_leaf(leg->from);
}

/* Delivers a leg's message in its account. As with nats-server, what came to a service, and its answer, is no message
 * of a stream that others import from here. */
static void arrive(struct acceptor *a, struct nats_server *server, struct leg *leg, bool is_last) {
    bool is_stream = leg->by != NULL && nats_share_is_stream(leg->by);
    leg->next = leg->count = 0;
    if (is_stream)
        leg->any = nats_deliver_imported(a, server, leg->account, leg->by, is_from_server(leg), leg->asker,
                                         &leg->message, &leg->answers);
    else
        leg->any = nats_deliver_in(a, server, leg->account, NULL, leg->asker, &leg->message, &leg->answers);
    if (is_last || is_stream)
        leg->answers = false;
    else
        leg->count = nats_imports_of(server, leg->account, leg->message.subject, NATS_IMPORTS_SERVICES, leg->imports);
}

/* Takes an answer to the account that waits for it; false when none does. */
static bool begin_answer(struct acceptor *a, struct nats_server *server, struct leg *from, struct leg *to) {
    from->answers = false;
    to->by = NULL;
    to->asker = NULL;
    to->requestor = NULL;
    to->from = 0;
    to->measured = 0;
    to->message = from->message;
    to->message.joined = false;
    to->message.hub = 0;
    struct nats_answered answered;
    if (!nats_answer_take(a, server, &to->message, &to->room, &answered)) return false;
    const struct connection *responder = server->journey->legs[0].asker;
    to->account = answered.account;
    if (answered.measured != 0) nats_latency_answered(a, server, answered.measured, answered.token, responder);
    return true;
}

static bool begin_import(struct acceptor *a, struct nats_server *server, uint32_t depth, struct leg *from,
                         struct leg *to) {
    const struct nats_share *share = from->imports[from->next++];
    if (has_come_by(server->journey, depth, share)) return false;
    to->by = share;
    to->asker = from->asker;
    to->requestor = from->requestor;
    to->account = nats_share_account(share);
    to->from = from->from;
    to->message = from->message;
    to->message.joined = false;
    const struct nats_asker asker = {from->requestor, depth > 0 ? from->account : 0};
    return nats_share_apply(a, server, from->account, &asker, share, &to->message, &to->room, &to->measured);
}

/* Servers to which a request goes in the account of a service cannot publish in that of its trace: their events come
 * back as answers. */
static void redirect(struct acceptor *a, struct nats_server *server, const struct nats_trace *trace, struct leg *to) {
    uint8_t room[NATS_ANSWER_BYTES];
    if (server->accounts[to->account].remote == NULL) return;
    struct nats_expected events = {
        .account = trace->account, .reply = {trace->texts, trace->dest_bytes}, .lifetime_ns = TRACE_LIFETIME_NS};
    struct text subject = nats_answer_expect(a, server, &events, room);
    if (subject.bytes > 0) (void)nats_set_header(&to->message, NATS_TRACE_DEST, subject, &to->trace_room);
}

/* Traces a message, whose trace is `trace`, on its way to the next leg; false if it is not to arrive. */
static bool follow(struct acceptor *a, struct nats_server *server, struct nats_trace *trace, const struct leg *from,
                   struct leg *to) {
    to->untraced = from->untraced;
    server->trace = from->untraced ? NULL : trace;
    if (server->trace == NULL) return true;
    bool is_stream = to->by != NULL && nats_share_is_stream(to->by);
    bool goes_on = to->by != NULL && nats_share_is_traced(to->by);
    trace->legs = to->account != trace->account ? NATS_LEG_ABROAD : 0;
    if (is_stream) trace->legs |= goes_on ? NATS_LEG_STREAM : NATS_LEG_STREAM | NATS_LEG_CLOSED;
    if (is_stream) return true;
    nats_trace_import(a, server, to->account, from->message.subject, to->message.subject);
    if (goes_on) {
        redirect(a, server, trace, to);
        return true;
    }
    if (trace->only) return false;
    (void)nats_set_header(&to->message, NATS_TRACE_DEST, nats_trace_disabled(), &to->trace_room);
    to->untraced = true;
    server->trace = NULL;
    return true;
}

/* The journey is over. */
static bool arrived(struct nats_server *server, struct nats_trace *trace, bool any) {
    server->trace = trace;
    if (trace != NULL) trace->legs = 0;
    nats_shadows_arrived(server);
    return any;
}

static bool go_on(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from,
                  struct connection *asker, const struct nats_message *message, bool answers, bool imports) {
    struct nats_journey *journey = server->journey;
    struct leg *first = &journey->legs[0];
    struct nats_trace *trace = server->trace;
    first->message = *message;
    /* In another account the origin does not matter; but a hub whose accounts import from each other, too, would send
     * back what came from it, for ever. As with nats-server, it is not sent what came from its cluster. */
    first->message.origin = 0;
    first->message.hub = nats_is_hub(from) ? message->origin : 0;
    first->asker = asker != NULL && asker->protocol == server->protocol ? asker : NULL;
    first->requestor = asker;
    first->by = NULL;
    first->account = account;
    first->from = from;
    first->answers = answers;
    first->untraced = first->any = false;
    first->measured = 0;
    first->next = 0;
    enum nats_imports wanted = is_from_server(first) ? NATS_IMPORTS_STREAMS : NATS_IMPORTS_ALL;
    first->count = imports ? nats_imports_of(server, account, message->subject, wanted, first->imports) : 0;
    journey->copies = 0;
    for (uint32_t depth = 0;;) {
        struct leg *leg = &journey->legs[depth];
        bool is_done = (!leg->answers && leg->next == leg->count) || journey->copies == NATS_MAX_COPIES;
        if (is_done) {
            end_leg(a, server, leg);
            if (depth == 0) return arrived(server, trace, leg->any);
            journey->legs[--depth].any |= leg->any;
            continue;
        }
        struct leg *next = &journey->legs[depth + 1];
        bool begun = leg->answers ? begin_answer(a, server, leg, next) : begin_import(a, server, depth, leg, next);
        if (!begun) continue;
        journey->copies++;
        if (trace != NULL && !follow(a, server, trace, leg, next)) {
            if (next->measured != 0) nats_latency_unavailable(a, server, next->message.reply);
            continue;
        }
        arrive(a, server, next, depth + 2 == NATS_MAX_CHAIN);
        depth++;
    }
}

bool nats_go_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                const struct nats_message *message, bool answers, bool imports) {
    return go_on(a, server, account, 0, asker, message, answers, imports);
}

void nats_go_on_routed(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from,
                       const struct nats_message *message, bool answers, bool imports) {
    struct connection *asker = nats_is_leaf(from) ? nats_link_of(server, from)->connection : NULL;
    go_on(a, server, account, from, asker, message, answers, imports);
}

/* --- where it begins ---------------------------------------------------------------------------------------------- */

bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message) {
    struct nats_server *server = nats_server_of(a, from);
    uint32_t account = nats_of(from)->account;
    bool answers, imports = server->accounts[account].shares != NULL;
    bool any = nats_deliver_in(a, server, account, from, from, message, &answers);
    if (!answers && !imports) return any;
    return nats_go_on(a, server, account, from, message, answers, imports) || any;
}

void nats_deliver_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *m) {
    bool answers, imports = server->accounts[account].shares != NULL;
    nats_deliver_in(a, server, account, NULL, NULL, m, &answers);
    if (answers || imports) nats_go_on(a, server, account, NULL, m, answers, imports);
}

size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count) {
    bool answers;
    size_t left = nats_deliver_from_acceptor(a, server, account, message, alone, groups, count, &answers);
    if (answers) nats_go_on(a, server, account, NULL, message, true, false);
    return left;
}

void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_routed *how, const struct nats_message *message) {
    bool answers, imports = server->accounts[account].shares != NULL;
    nats_deliver_from_route(a, server, account, how, message, &answers);
    if (answers || imports) nats_go_on_routed(a, server, account, how->from, message, answers, imports);
}
