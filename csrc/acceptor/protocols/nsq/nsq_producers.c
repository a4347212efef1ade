#include "acceptor/protocols/nsq/nsq_producers.h"

#include <stdlib.h>

enum { PLACES_AT_ONCE = 4096 };

static bool is_of(const struct nsq_produced *produced, const struct binding *topic) {
    return produced->hash == topic->hash && produced->name_bytes == topic->name_bytes &&
           memcmp(produced->name, topic->name, topic->name_bytes) == 0;
}

/* Makes room for one more topic, up to the limit. A connection with a single topic, as most have, takes room for one
 * only. */
static bool make_room(struct nsq *n) {
    if (n->produced_count >= PRODUCED_TOPICS) return false;
    if ((n->produced_count & (n->produced_count - 1)) != 0) return true; /* the room is a power of two */
    size_t room = n->produced_count == 0 ? 1 : (size_t)n->produced_count * 2;
    struct nsq_produced *produced = realloc(n->produced, room * sizeof *produced);
    if (produced == NULL) return false; /* without memory the topic is just not counted */
    n->produced = produced;
    return true;
}

void nsq_produces(struct nsq *n, const struct binding *topic) {
    for (n->producing = 0; n->producing < n->produced_count; n->producing++)
        if (is_of(&n->produced[n->producing], topic)) return;
    if (topic->name_bytes > NSQ_NAME_BYTES || !make_room(n)) return;
    struct nsq_produced *produced = &n->produced[n->produced_count++];
    *produced = (struct nsq_produced){.hash = topic->hash, .name_bytes = topic->name_bytes};
    memcpy(produced->name, topic->name, topic->name_bytes);
}

int64_t nsq_ask_producers(const struct acceptor *a, const struct codec *codec, const struct codec_question *question) {
    uint64_t place = question->value, end = a->highest_index;
    if (end > place && end - place > PLACES_AT_ONCE) end = place + PLACES_AT_ONCE;
    size_t at = sizeof(uint64_t);
    if (question->out_limit < at) return CALL_REFUSED;
    for (; place < end; place++) {
        const struct connection *c = a->table[place];
        if (c == NULL || c->codec != codec || c->closed || nsq_of(c)->produced_count == 0) continue;
        const struct nsq *n = nsq_of(c);
        const struct nsq_producer producer = {c->number, n->produced_count, n->opened_ns};
        size_t topics_bytes = n->produced_count * sizeof *n->produced;
        if (question->out_limit - at < sizeof producer + topics_bytes) break;
        memcpy(question->out + at, &producer, sizeof producer);
        memcpy(question->out + at + sizeof producer, n->produced, topics_bytes);
        at += sizeof producer + topics_bytes;
    }
    uint64_t next = place < a->highest_index ? place : 0;
    memcpy(question->out, &next, sizeof next);
    return (int64_t)at;
}
