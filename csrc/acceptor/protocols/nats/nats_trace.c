#define _GNU_SOURCE /* memmem */
#include "acceptor/protocols/nats/nats_trace.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "acceptor/protocols/nats/nats_line.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_reserved.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "acceptor/protocols/nats/nats_sampled.h"
#include "acceptor/protocols/nats/nats_say.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_traced.h"

static const char FIRST_LINE[] = "NATS/1.0\r\n", DISABLED[] = "trace disabled";

/* --- headers ------------------------------------------------------------------------------------------------------ */

struct trace_headers {
    struct text names[NATS_TRACE_HEADERS], values[NATS_TRACE_HEADERS];
    size_t count;
    bool has_dest, is_sampled; /* whether there is Nats-Trace-Dest, and a traceparent that asks for a trace */
};

static bool is(struct text text, const char *wanted) {
    return text.bytes == strlen(wanted) && memcmp(text.at, wanted, text.bytes) == 0;
}

static bool is_blank(uint8_t byte) {
    return byte == ' ' || byte == '\t';
}

/* Takes one header off the front; false at the end. A name is all up to the next colon, as with nats-server. */
static bool next_header(const uint8_t **at, const uint8_t *end, struct text *name, struct text *value) {
    const uint8_t *colon = memchr(*at, ':', (size_t)(end - *at));
    if (colon == NULL) return false;
    const uint8_t *begin = colon + 1;
    while (begin < end && is_blank(*begin)) begin++;
    const uint8_t *line_end = memmem(begin, (size_t)(end - begin), "\r\n", CRLF_BYTES);
    if (line_end == NULL) return false;
    *name = (struct text){*at, (size_t)(colon - *at)};
    *at = line_end + CRLF_BYTES;
    while (line_end > begin && is_blank(line_end[-1])) line_end--;
    *value = (struct text){begin, (size_t)(line_end - begin)};
    return true;
}

/* Where the headers begin behind the first line; NULL: there are none. */
static const uint8_t *first_header(const struct nats_message *m) {
    const size_t first = sizeof FIRST_LINE - 1;
    if (m->header_bytes < first || memcmp(m->payload, FIRST_LINE, first) != 0) return NULL;
    return m->payload + first;
}

struct text nats_header_of(const struct nats_message *m, const char *name) {
    const uint8_t *at = first_header(m), *end = m->payload + m->header_bytes;
    struct text found, value;
    while (at != NULL && next_header(&at, end, &found, &value))
        if (found.bytes + 1 == strlen(name) && memcmp(found.at, name, found.bytes) == 0) return value;
    return (struct text){0};
}

/* Reads the headers, and notes those that are about tracing. False if the message is not to be traced. */
static bool read_headers(const struct nats_message *m, struct trace_headers *h) {
    static const char PARENT[] = "traceparent";
    const uint8_t *at = first_header(m), *end = m->payload + m->header_bytes;
    struct text name, value;
    h->count = 0;
    h->has_dest = h->is_sampled = false;
    while (at != NULL && next_header(&at, end, &name, &value)) {
        if (name.bytes == 0 || value.bytes == 0) continue;
        bool is_parent =
            name.bytes == sizeof PARENT - 1 && strncasecmp((const char *)name.at, PARENT, sizeof PARENT - 1) == 0;
        if (is_parent) {
            h->is_sampled |= nats_asks_for_trace(value);
        } else if (!h->has_dest && is(name, "Nats-Trace-Dest")) {
            if (is(value, DISABLED)) return false;
            h->has_dest = true;
        }
        if (h->count == NATS_TRACE_HEADERS) continue;
        h->names[h->count] = name;
        h->values[h->count++] = value;
    }
    return h->has_dest || h->is_sampled;
}

static struct text value_of(const struct trace_headers *h, const char *name) {
    for (size_t i = 0; i < h->count; i++)
        if (is(h->names[i], name)) return h->values[i];
    return (struct text){0};
}

static bool is_yes(struct text value) {
    static const char *const WORDS[] = {"1", "true", "on"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (value.bytes == strlen(WORDS[i]) && strncasecmp((const char *)value.at, WORDS[i], value.bytes) == 0)
            return true;
    return false;
}

/* Written so that a compiler looks at many bytes at once: a search costs more than all else that is done with such a
 * message. */
static bool has_line_of_n(const uint8_t *at, size_t bytes) {
    uint8_t found = 0;
    for (size_t i = 0; i + 1 < bytes; i++) found |= (uint8_t)((at[i] == '\n') & (at[i + 1] == 'N'));
    return found != 0;
}

bool nats_may_be_traced(const struct nats_account *account, const struct nats_message *m) {
    static const char LINE[] = "\n" NATS_TRACE_DEST;
    if (m->header_bytes < sizeof FIRST_LINE) return false;
    if (account->trace_dest != NULL) return true;
    return has_line_of_n(m->payload, m->header_bytes) &&
           memmem(m->payload, m->header_bytes, LINE, sizeof LINE - 1) != NULL;
}

/* --- whether ------------------------------------------------------------------------------------------------------ */

bool nats_trace_account(struct nats_account *account, struct text said) {
    const uint8_t *blank = said.bytes > 0 ? memchr(said.at, ' ', said.bytes) : NULL;
    uint64_t percent = 0;
    free(account->trace_dest);
    account->trace_dest = NULL;
    account->trace_dest_bytes = 0;
    if (said.bytes == 0) return true;
    if (blank == NULL || !nats_get_size((struct text){said.at, (size_t)(blank - said.at)}, &percent)) return false;
    size_t bytes = said.bytes - (size_t)(blank + 1 - said.at);
    account->trace_dest = bytes > 0 ? malloc(bytes) : NULL;
    if (account->trace_dest == NULL) return false;
    memcpy(account->trace_dest, blank + 1, bytes);
    account->trace_dest_bytes = (uint32_t)bytes;
    account->trace_percent = (uint32_t)percent;
    return true;
}

/* As rare as nats-server's: "15" takes 16 of 100. */
static bool is_drawn(struct nats_server *server, uint32_t percent) {
    return percent == 0 || percent >= 100 || nats_random(server) % 100 <= percent;
}

static bool is_literal(struct text subject) {
    for (size_t i = 0; i < subject.bytes; i++)
        if (is_blank(subject.at[i]) || (subject.at[i] >= '\n' && subject.at[i] <= '\r' && subject.at[i] != '\v'))
            return false;
    return subject_pattern_is_valid(subject.at, subject.bytes) && !subject_has_wildcard(subject.at, subject.bytes);
}

/* A client's permissions, or a leaf node's, hold for the destination, too. */
static bool may_publish(struct nats_server *server, const struct nats_ingress *from, struct text dest) {
    if (nats_is_reserved_subject(dest)) return false;
    struct nats_permissions *set = NULL;
    if (from->kind == NATS_KIND_CLIENT) set = nats_of(from->connection)->permissions;
    if (from->kind == NATS_KIND_LEAF) set = route_of(from->connection)->publishing;
    return set == NULL || nats_may_publish(&server->permissions, set, dest);
}

struct text nats_trace_disabled(void) {
    return (struct text){(const uint8_t *)DISABLED, sizeof DISABLED - 1};
}

/* Other servers, and who subscribes, see that the message is not to be traced. */
static enum nats_traced disable(struct nats_server *server, struct nats_message *m) {
    (void)nats_set_header(m, NATS_TRACE_DEST, nats_trace_disabled(), &server->trace_room);
    return NATS_NOT_TRACED;
}

enum nats_traced nats_trace_begin(struct acceptor *a, struct nats_server *server, const struct nats_ingress *from,
                                  struct nats_message *m) {
    const struct nats_account *account = &server->accounts[from->account];
    struct trace_headers h;
    if (!read_headers(m, &h)) return NATS_NOT_TRACED;
    bool only = h.has_dest && is_yes(value_of(&h, "Nats-Trace-Only"));
    const enum nats_traced otherwise = only ? NATS_NOT_TAKEN : NATS_NOT_TRACED;
    if (value_of(&h, "Nats-Trace-Origin-Account").bytes > 0) return only ? otherwise : disable(server, m);
    struct text dest = value_of(&h, "Nats-Trace-Dest"), hop = {0};
    if (!h.has_dest) {
        if (account->trace_dest == NULL) return NATS_NOT_TRACED;
        bool is_first = from->kind == NATS_KIND_CLIENT;
        if (is_first && !is_drawn(server, account->trace_percent)) return disable(server, m);
        dest = (struct text){account->trace_dest, account->trace_dest_bytes};
    }
    if (!is_literal(dest)) return otherwise;
    if (!may_publish(server, from, dest)) {
        if (from->kind == NATS_KIND_CLIENT)
            nats_say_violation(a, from->connection, "Publish to ", dest, (struct text){0});
        return NATS_NOT_TAKEN;
    }
    if (from->kind != NATS_KIND_CLIENT) hop = value_of(&h, "Nats-Trace-Hop");
    if (hop.bytes > NATS_HOP_BYTES) return otherwise;
    struct nats_trace *t = nats_trace_new(a, server, from->account, dest, hop);
    if (t == NULL) return otherwise;
    t->only = only;
    nats_trace_ingress(a, t, from, m, h.names, h.values, h.count);
    server->trace = t;
    return NATS_TRACED;
}
