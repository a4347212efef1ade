#include "acceptor/bridge.h"

#include <string.h>

/* A copy: this, the topic's name, and the body. */
struct copy {
    uint32_t name_bytes;
    uint16_t flags;
    uint8_t kind;
};

static bool wants(struct acceptor *a, uint32_t protocol, const void *name, size_t bytes) {
    const struct codec *codec = codec_at(protocol);
    void *state = codec_state(a, protocol); /* NULL while the acceptor is being made */
    return codec->wants_topic != NULL && state != NULL && codec->wants_topic(a, state, name, bytes);
}

void bridge_bound(struct acceptor *a, struct binding *binding) {
    binding->bridged = false;
    for (uint32_t p = 1; p <= codec_count && !binding->bridged; p++)
        binding->bridged = wants(a, p, binding->name, binding->name_bytes);
    a->bridges |= binding->bridged;
}

void bridge_look(struct acceptor *a) {
    for (uint32_t topic = 1; topic < a->bindings.capacity; topic++) {
        struct binding *binding = binding_at(&a->bindings, topic);
        if (binding->name != NULL) bridge_bound(a, binding);
    }
}

void bridge_asked(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                  const void *body) {
    const struct binding *to = binding_at(&a->bindings, request->topic);
    if (!to->bridged || c->codec->tells_live || slot->body != NULL) return;
    struct copy copy = {.name_bytes = to->name_bytes, .flags = request->flags, .kind = request->kind};
    uint8_t *room = connection_body(c, &a->blocks, slot, sizeof copy + to->name_bytes + request->body_bytes);
    if (room == NULL) return; /* who listens misses it: it is only live */
    memcpy(room, &copy, sizeof copy);
    memcpy(room + sizeof copy, to->name, to->name_bytes);
    memcpy(room + sizeof copy + to->name_bytes, body, request->body_bytes);
    slot->bridged = true;
}

static void tell(struct acceptor *a, const struct published *message) {
    for (uint32_t p = 1; p <= codec_count; p++)
        if (wants(a, p, message->topic, message->topic_bytes))
            codecs[p - 1]->topic_published(a, codec_state(a, p), message);
}

/* Headers first, if there are any. */
static void tell_one(struct acceptor *a, struct published message, const uint8_t *body, size_t bytes, bool headers) {
    struct headers head = {.bytes = 0};
    if (headers) {
        if (bytes < sizeof head) return;
        memcpy(&head, body, sizeof head);
        body += sizeof head;
        bytes -= sizeof head;
        if (head.bytes > bytes) return;
    }
    message.headers_tag = head.tag;
    message.header_bytes = head.bytes;
    message.body = body;
    message.body_bytes = bytes;
    tell(a, &message);
}

static void tell_many(struct acceptor *a, struct published message, const uint8_t *at, const uint8_t *end,
                      bool headers) {
    while (end - at >= 4) {
        uint32_t bytes;
        memcpy(&bytes, at, sizeof bytes);
        bytes = __builtin_bswap32(bytes);
        at += sizeof bytes;
        if (bytes > (size_t)(end - at)) return;
        tell_one(a, message, at, bytes, headers);
        at += bytes;
    }
}

static void tell_copy(struct acceptor *a, const struct slot *slot) {
    struct copy copy;
    memcpy(&copy, slot->body, sizeof copy);
    const uint8_t *name = slot->body + sizeof copy, *body = name + copy.name_bytes;
    const uint8_t *end = slot->body + slot->body_bytes;
    struct published message = {.topic = name, .topic_bytes = copy.name_bytes};
    bool headers = (copy.flags & MSG_HEADERS) != 0;
    if (copy.kind == MSG_PUBLISH) {
        tell_one(a, message, body, (size_t)(end - body), headers);
    } else {
        if ((copy.flags & MSG_IDEMPOTENT) != 0) body += sizeof(struct producer_part);
        if (body <= end) tell_many(a, message, body, end, headers);
    }
}

void bridge_answered(struct acceptor *a, struct connection *c, struct slot *slot, uint8_t status) {
    if (status == STATUS_OK) tell_copy(a, slot);
    connection_drop_body(c, &a->blocks, slot);
    slot->bridged = false;
}

void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes) {
    struct published message = {.topic = (const uint8_t *)topic, .topic_bytes = topic_bytes};
    tell_one(a, message, body, body_bytes, false);
}
