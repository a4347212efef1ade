#include "acceptor/bridged.h"

bool bridge_wants(struct acceptor *a, uint32_t protocol, const void *name, size_t bytes) {
    const struct codec *codec = codec_at(a->codecs, protocol);
    void *state = codec_state(a, protocol); /* NULL while the acceptor is being made */
    return codec->wants_topic != NULL && state != NULL && codec->wants_topic(a, state, name, bytes);
}

void bridge_bound(struct acceptor *a, struct binding *binding) {
    binding->bridged = false;
    for (uint32_t p = 1; p <= a->codecs->count && !binding->bridged; p++)
        binding->bridged = bridge_wants(a, p, binding->name, binding->name_bytes);
    a->bridges |= binding->bridged;
}

void bridge_look(struct acceptor *a) {
    for (uint32_t topic = 1; topic < a->bindings.capacity; topic++) {
        struct binding *binding = binding_at(&a->bindings, topic);
        if (binding->name != NULL) bridge_bound(a, binding);
    }
}
