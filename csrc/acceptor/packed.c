
#include "acceptor/packed.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/bridge.h"
#include "acceptor/life.h"
#include "acceptor/opening.h"
#include "acceptor/replies.h"
#include "acceptor/requests.h"
#include "acceptor/wake.h"

/* A worker's message with a batch, taken apart. */
struct packed {
    struct packed_run run;
    struct headers headers;
    const uint8_t *written; /* the headers */
    struct codec_bytes body;
};

static bool split(const struct message *message, struct packed *out) {
    const uint8_t *at = (const uint8_t *)(message + 1);
    size_t bytes = message->body_bytes;
    if (bytes < sizeof out->run + sizeof out->headers) return false;
    memcpy(&out->run, at, sizeof out->run);
    memcpy(&out->headers, at + sizeof out->run, sizeof out->headers);
    at += sizeof out->run + sizeof out->headers;
    bytes -= sizeof out->run + sizeof out->headers;
    if (out->headers.bytes > bytes) return false;
    out->written = at;
    out->body = (struct codec_bytes){at + out->headers.bytes, bytes - out->headers.bytes};
    return true;
}

/* --- said on ------------------------------------------------------------------------------------------------------ */

/* Room for a message with a body of that size; NULL when memory is short. */
static struct message *room_for(struct acceptor *a, size_t body_bytes) {
    struct packed_kept *kept = &a->packed;
    const size_t bytes = sizeof *kept->said + body_bytes;
    if (bytes > kept->said_bytes) {
        struct message *more = realloc(kept->said, bytes);
        if (more == NULL) return NULL;
        kept->said = more;
        kept->said_bytes = bytes;
    }
    return kept->said;
}

static void say(struct acceptor *a, uint32_t worker, const struct message *like, uint64_t id, struct codec_bytes body) {
    struct message *one = room_for(a, body.bytes);
    if (one == NULL) {
        struct connection *c = connection_find(a, like->conn);
        if (c != NULL) engine_oom(a, c);
        return;
    }
    *one = *like;
    one->flags &= (uint16_t)~(MSG_PACKED | MSG_HEADERS);
    one->id = id;
    one->body_bytes = (uint32_t)body.bytes;
    if (body.bytes > 0) memcpy(one + 1, body.at, body.bytes);
    peer_said(a, worker, one);
}

/* Reports as SENT the difference between what the worker counted for a consumer and what is on its way to it. */
static void give_back(struct acceptor *a, uint32_t worker, const struct message *message, uint64_t bytes) {
    struct message sent = {.kind = MSG_SENT, .conn = message->conn, .consumer = message->consumer, .sent_bytes = bytes};
    if (message->kind == MSG_DELIVER && bytes > 0) peer_send(a, worker, &sent, NULL);
}

/* Passes on the messages of the batch in `rest`. If some are missing, because the batch is not what it claims, they are
 * empty. */
static void say_all(struct acceptor *a, uint32_t worker, const struct message *message, const struct packed *p,
                    const struct codec *codec, struct codec_bytes rest) {
    uint64_t bytes = 0;
    struct codec_bytes body, said;
    for (uint32_t i = 0; i < p->run.first; i++)
        if (!codec->next_packed(&rest, &body, &said)) break;
    for (uint32_t i = 0; i < p->run.count; i++) {
        if (!codec->next_packed(&rest, &body, &said)) body = (struct codec_bytes){0};
        bytes += body.bytes;
        say(a, worker, message, message->id + (uint64_t)i * a->shards, body);
    }
    if (bytes < p->headers.packed_bytes) give_back(a, worker, message, p->headers.packed_bytes - bytes);
}

/* Passes on the batch unopened, as a single message. */
static void say_closed(struct acceptor *a, uint32_t worker, const struct message *message, const struct packed *p) {
    for (uint32_t i = 0; i < p->run.count; i++) {
        bool first = p->run.first + i == 0;
        say(a, worker, message, message->id + (uint64_t)i * a->shards, first ? p->body : (struct codec_bytes){0});
    }
    bool has_first = p->run.first == 0;
    uint64_t bytes = has_first ? p->body.bytes : 0;
    if (bytes < p->headers.packed_bytes) give_back(a, worker, message, p->headers.packed_bytes - bytes);
}

static void say_opened(struct acceptor *a, uint32_t worker, const struct message *message, const struct packed *p,
                       const struct codec *codec, bool is_batch, struct codec_bytes body) {
    if (is_batch) {
        say_all(a, worker, message, p, codec, body);
        return;
    }
    say(a, worker, message, message->id, body);
    if (body.bytes < p->headers.packed_bytes) give_back(a, worker, message, p->headers.packed_bytes - body.bytes);
}

/* --- what Python opens -------------------------------------------------------------------------------------------- */

/* A worker's message that waits for Python. */
struct packed_waiting {
    struct packed_waiting *next;
    uint64_t id;
    uint32_t worker;
    struct message message;
};

static void wait(struct acceptor *a, uint32_t worker, const struct message *message, const struct packed *p,
                 const struct opening *opening, uint32_t protocol) {
    struct packed_waiting **link = &a->packed.waiting;
    bool asked = false;
    for (; *link != NULL; link = &(*link)->next) asked |= (*link)->id == p->run.id;
    struct packed_waiting *one = malloc(sizeof *one + message->body_bytes);
    if (one == NULL || (!asked && !packed_ask(a, p->run.id, opening, protocol, p->body))) {
        struct connection *c = connection_find(a, message->conn);
        if (c != NULL) engine_oom(a, c);
        free(one);
        return;
    }
    one->next = NULL;
    one->id = p->run.id;
    one->worker = worker;
    memcpy(&one->message, message, sizeof *message + message->body_bytes);
    *link = one;
}

static void keep(struct acceptor *a, uint64_t id, const uint8_t *bytes, size_t bytes_count) {
    free(a->packed.bytes);
    a->packed.bytes = malloc(bytes_count + 1);
    a->packed.id = a->packed.bytes != NULL ? id : 0;
    a->packed.is_opened = bytes != NULL;
    a->packed.bytes_count = bytes_count;
    if (a->packed.bytes != NULL && bytes_count > 0) memcpy(a->packed.bytes, bytes, bytes_count);
}

void packed_opened(struct acceptor *a, uint64_t id, const uint8_t *bytes, size_t bytes_count) {
    struct packed_waiting *all = a->packed.waiting, *next;
    keep(a, id, bytes, bytes_count);
    a->packed.waiting = NULL;
    for (struct packed_waiting *one = all, **link = &a->packed.waiting; one != NULL; one = next) {
        next = one->next;
        if (one->id != id) {
            one->next = NULL;
            *link = one;
            link = &one->next;
            continue;
        }
        if (a->packed.id == id) packed_said(a, one->worker, &one->message);
        free(one);
    }
    bridge_opened(a, id, (struct codec_bytes){bytes, bytes_count});
    wake_self(a);
}

void packed_forget(struct acceptor *a, uint32_t worker) {
    for (struct packed_waiting **link = &a->packed.waiting; *link != NULL;) {
        struct packed_waiting *one = *link;
        if (one->worker != worker) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        free(one);
    }
}

void packed_free(struct acceptor *a) {
    for (struct packed_waiting *one = a->packed.waiting, *next; one != NULL; one = next) {
        next = one->next;
        free(one);
    }
    free(a->packed.bytes);
    free(a->packed.said);
    a->packed = (struct packed_kept){0};
}

void packed_said(struct acceptor *a, uint32_t worker, const struct message *message) {
    struct packed p;
    uint32_t protocol;
    if (!split(message, &p) || p.run.count == 0 || p.run.count > PACKED_MAX_PARTS) return;
    const struct codec *codec = packed_codec(a->codecs, p.headers.tag, &protocol);
    const struct codec_bytes written = {p.written, p.headers.bytes};
    const struct opening opening = codec != NULL ? codec->opens(written) : (struct opening){0};
    const struct codec_bytes kept = {a->packed.bytes, a->packed.bytes_count};
    bool is_kept = a->packed.bytes != NULL && a->packed.id == p.run.id;
    if (opening.opens && opening.compression == 0)
        say_opened(a, worker, message, &p, codec, opening.is_batch, p.body);
    else if (opening.opens && !is_kept)
        wait(a, worker, message, &p, &opening, protocol);
    else if (opening.opens && a->packed.is_opened)
        say_opened(a, worker, message, &p, codec, opening.is_batch, kept);
    else
        say_closed(a, worker, message, &p);
}
