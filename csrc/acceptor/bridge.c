#include "acceptor/bridge.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/bridged.h"
#include "acceptor/lists.h"
#include "acceptor/mesh.h"
#include "acceptor/opening.h"
#include "acceptor/wake.h"

/* The most that is passed on in one turn; a larger message is passed on alone. */
enum { TOLD_MESSAGES = 256, TOLD_BYTES = 256 << 10 };

/* A copy of a publish, followed by the topic's name and the body. */
struct bridge_copy {
    struct bridge_copy *next; /* in the list of copies to be passed on */
    uint32_t bytes;           /* counting all that follows the struct */
    uint32_t at;              /* how much of the body has been passed on */
    uint32_t name_bytes;
    uint16_t flags;
    uint8_t kind;
    bool asked; /* Python has been asked to decompress it */
    uint64_t id;
};

/* --- copies ------------------------------------------------------------------------------------------------------- */

/* Begins a copy in `room`. Returns where the body goes. */
static uint8_t *begin_copy(uint8_t *room, size_t bytes, const struct binding *to, const struct message *request) {
    const struct bridge_copy copy = {.bytes = (uint32_t)bytes,
                                     .at = (request->flags & MSG_IDEMPOTENT) != 0 && request->kind != MSG_PUBLISH
                                               ? (uint32_t)sizeof(struct producer_part)
                                               : 0,
                                     .name_bytes = to->name_bytes,
                                     .flags = request->flags,
                                     .kind = request->kind,
                                     .id = request->id};
    memcpy(room, &copy, sizeof copy);
    memcpy(room + sizeof copy, to->name, to->name_bytes);
    return room + sizeof copy + to->name_bytes;
}

void bridge_asked(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                  const void *body) {
    const struct binding *to = binding_at(&a->bindings, request->topic);
    if (!to->bridged || c->codec->tells_live || slot->body != NULL) return;
    size_t bytes = sizeof(struct bridge_copy) + to->name_bytes + request->body_bytes;
    uint8_t *room = connection_body(c, &a->blocks, slot, bytes);
    if (room == NULL) return; /* no memory: live subscribers miss the message */
    memcpy(begin_copy(room, bytes, to, request), body, request->body_bytes);
    slot->bridged = true;
}

struct bridge_copy *bridge_copy(struct acceptor *a, const struct message *request, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes) {
    const struct binding *to = binding_at(&a->bindings, request->topic);
    size_t bytes = sizeof(struct bridge_copy) + to->name_bytes + head_bytes + body_bytes;
    uint8_t *room = bytes_take(&a->blocks, bytes);
    if (room == NULL) return NULL;
    uint8_t *out = begin_copy(room, bytes, to, request);
    memcpy(out, head, head_bytes);
    memcpy(out + head_bytes, body, body_bytes);
    return (struct bridge_copy *)(void *)room;
}

void bridge_drop(struct blocks *blocks, struct bridge_copy *copy) {
    bytes_give(blocks, copy, copy->bytes);
}

/* --- telling ------------------------------------------------------------------------------------------------------ */

static void tell(struct acceptor *a, const struct published *message) {
    for (uint32_t p = 1; p <= a->codecs->count; p++)
        if (bridge_wants(a, p, message->topic, message->topic_bytes))
            a->codecs->items[p - 1]->topic_published(a, codec_state(a, p), message);
}

/* Passes on each message of an opened batch. Missing ones are left out. */
static void tell_packed(struct acceptor *a, struct published message, const struct codec *codec, bool is_batch,
                        struct codec_bytes rest) {
    struct codec_bytes one = rest;
    message.is_part = is_batch;
    for (uint32_t i = 0; i < PACKED_MAX_PARTS; i++) {
        if (is_batch && !codec->next_packed(&rest, &one, &message.said)) return;
        message.body = one.at;
        message.body_bytes = one.bytes;
        tell(a, &message);
        if (!is_batch) return;
    }
}

/* Passes on one message, whose body begins with its headers, if any. `opened`: what Python decompressed, at NULL
 * if it could not; NULL: it has not been asked. False: Python has to be asked first. */
static bool tell_one(struct acceptor *a, struct published message, const struct bridge_copy *copy, const uint8_t *body,
                     size_t bytes, const struct codec_bytes *opened) {
    struct headers head = {.bytes = 0};
    if (copy != NULL && (copy->flags & MSG_HEADERS) != 0) {
        if (bytes < sizeof head) return true;
        memcpy(&head, body, sizeof head);
        body += sizeof head;
        bytes -= sizeof head;
        if (head.bytes > bytes) return true;
    }
    uint32_t protocol;
    const struct codec *codec = head.packed_bytes > 0 ? packed_codec(a->codecs, head.tag, &protocol) : NULL;
    const struct opening opening =
        codec != NULL ? codec->opens((struct codec_bytes){body, head.bytes}) : (struct opening){0};
    const struct codec_bytes packed = {body + head.bytes, bytes - head.bytes};
    message.said = (struct codec_bytes){body, head.bytes};
    message.said_tag = head.tag;
    if (opening.opens && opening.compression == 0) {
        tell_packed(a, message, codec, opening.is_batch, packed);
        return true;
    }
    if (opening.opens && opened == NULL) return !packed_ask(a, copy->id, &opening, protocol, packed);
    if (opening.opens && opened->at != NULL) {
        tell_packed(a, message, codec, opening.is_batch, *opened);
        return true;
    }
    message.headers_tag = head.tag;
    message.header_bytes = head.bytes;
    message.body = body;
    message.body_bytes = bytes;
    tell(a, &message);
    return true;
}

/* Passes on the next message of a copy. Returns how many bytes it took; the rest of a malformed body is skipped. */
static size_t tell_next(struct acceptor *a, struct bridge_copy *copy, const uint8_t *body, size_t body_bytes) {
    const uint8_t *name = (const uint8_t *)(copy + 1), *at = body + copy->at;
    struct published message = {.topic = name, .topic_bytes = copy->name_bytes};
    size_t left = body_bytes - copy->at, before = 0, bytes = left;
    if (copy->kind != MSG_PUBLISH) {
        uint32_t size = 0;
        if (left >= sizeof size) memcpy(&size, at, sizeof size);
        before = sizeof size;
        bytes = __builtin_bswap32(size);
        if (left < before || bytes > left - before) {
            copy->at = (uint32_t)body_bytes;
            return left;
        }
    }
    copy->asked = !tell_one(a, message, copy, at + before, bytes, NULL);
    if (copy->asked) return 0;
    copy->at += (uint32_t)(before + bytes);
    return bytes;
}

static bool is_held_up(const struct acceptor *a) {
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        if (a->mesh[first_of(rest)].backlogged) return true;
    return false;
}

bool bridge_is_due(const struct acceptor *a) {
    return a->untold.first != NULL && !a->untold.first->asked && !is_held_up(a);
}

void bridge_run(struct acceptor *a) {
    size_t messages = 0, bytes = 0;
    if (!bridge_is_due(a)) return;
    while (a->untold.first != NULL && messages < TOLD_MESSAGES && bytes < TOLD_BYTES) {
        struct bridge_copy *copy = a->untold.first;
        const uint8_t *body = (const uint8_t *)(copy + 1) + copy->name_bytes;
        size_t body_bytes = copy->bytes - sizeof *copy - copy->name_bytes;
        if (copy->at < body_bytes || (copy->kind == MSG_PUBLISH && body_bytes == 0))
            bytes += tell_next(a, copy, body, body_bytes);
        messages++;
        if (copy->asked) return;
        if (copy->at < body_bytes) continue;
        a->untold.first = copy->next;
        bridge_drop(&a->blocks, copy);
    }
    if (a->untold.first == NULL) connection_list_wake(a, &a->untold.waiting, STALL_MESH);
}

void bridge_opened(struct acceptor *a, uint64_t id, struct codec_bytes opened) {
    struct bridge_copy *copy = a->untold.first;
    if (copy == NULL || !copy->asked || copy->id != id) return;
    const uint8_t *name = (const uint8_t *)(copy + 1), *body = name + copy->name_bytes;
    const struct published message = {.topic = name, .topic_bytes = copy->name_bytes};
    (void)tell_one(a, message, copy, body, copy->bytes - sizeof *copy - copy->name_bytes, &opened);
    a->untold.first = copy->next;
    bridge_drop(&a->blocks, copy);
    bridge_run(a);
    if (a->untold.first == NULL) connection_list_wake(a, &a->untold.waiting, STALL_MESH);
}

void bridge_answer(struct acceptor *a, struct bridge_copy *copy, uint8_t status) {
    if (status != STATUS_OK) {
        bridge_drop(&a->blocks, copy);
        return;
    }
    bool is_first = a->untold.first == NULL;
    if (is_first)
        a->untold.first = copy;
    else
        a->untold.last->next = copy;
    a->untold.last = copy;
    if (is_first) bridge_run(a);
    if (a->untold.first != NULL) wake_self(a);
}

void bridge_answered(struct acceptor *a, struct connection *c, struct slot *slot, uint8_t status) {
    struct bridge_copy *copy = (struct bridge_copy *)(void *)slot->body;
    c->kept_bytes -= slot->body_bytes;
    slot->body = NULL;
    slot->body_bytes = 0;
    slot->bridged = false;
    bridge_answer(a, copy, status);
}

bool bridge_may_publish(struct acceptor *a, struct connection *c) {
    if (a->untold.first == NULL) return mesh_may_send(a, c, a->mesh_there);
    connection_list_add(&a->untold.waiting, c->number);
    return stalled(c, STALL_MESH);
}

void bridge_close(struct acceptor *a) {
    while (a->untold.first != NULL) {
        struct bridge_copy *copy = a->untold.first;
        a->untold.first = copy->next;
        bridge_drop(&a->blocks, copy);
    }
    free(a->untold.waiting.items);
}

void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes) {
    struct published message = {.topic = (const uint8_t *)topic, .topic_bytes = topic_bytes};
    (void)tell_one(a, message, NULL, body, body_bytes, NULL);
}
