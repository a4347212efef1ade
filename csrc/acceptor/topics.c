/* The topics that connections name: their numbers, of which the workers are told. */
#include "acceptor/topics.h"

#include "acceptor/bridged.h"
#include "acceptor/requests.h"

uint16_t topic_said(const struct acceptor *a, const void *name, size_t name_bytes) {
    uint16_t flags = 0;
    for (uint32_t i = 0; i < a->codecs->count; i++) {
        const struct codec *codec = a->codecs->items[i];
        if (codec->says_of_topic != NULL) flags |= codec->says_of_topic(name, name_bytes);
    }
    return flags;
}

void topic_open(struct acceptor *a, uint32_t topic) {
    const struct binding *binding = binding_at(&a->bindings, topic);
    struct message open = {.kind = MSG_OPEN,
                           .flags = topic_said(a, binding->name, binding->name_bytes),
                           .topic = topic,
                           .id = binding->shard,
                           .body_bytes = binding->name_bytes};
    if (binding->listed) open.flags |= MSG_LISTED;
    peer_send(a, binding->worker, &open, binding->name);
}

static void forget_surplus(struct acceptor *a) {
    uint32_t topic;
    while ((topic = bindings_surplus(&a->bindings)) != 0) {
        struct message close_it = {.kind = MSG_CLOSE, .topic = topic};
        peer_send(a, binding_at(&a->bindings, topic)->worker, &close_it, NULL);
        bindings_forget(&a->bindings, topic);
    }
}

uint32_t topic_look_up(struct acceptor *a, const void *name, size_t name_bytes) {
    bool is_new;
    forget_surplus(a);
    uint32_t topic = bindings_look_up(&a->bindings, name, name_bytes, &is_new);
    if (topic != 0 && is_new) {
        bridge_bound(a, binding_at(&a->bindings, topic));
        topic_open(a, topic);
    }
    return topic;
}

uint32_t topic_bind(struct acceptor *a, const void *name, size_t name_bytes) {
    uint32_t topic = topic_look_up(a, name, name_bytes);
    if (topic != 0) bindings_refer(&a->bindings, topic);
    return topic;
}

bool topic_list(struct acceptor *a, const void *name, size_t name_bytes) {
    uint32_t topic = topic_bind(a, name, name_bytes);
    if (topic == 0) return false;
    binding_at(&a->bindings, topic)->listed = true;
    topic_open(a, topic);
    return true;
}

void topic_unbind(struct acceptor *a, uint32_t topic) {
    bindings_unbind(&a->bindings, topic);
    forget_surplus(a);
}
