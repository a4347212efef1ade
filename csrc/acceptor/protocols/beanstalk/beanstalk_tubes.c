/* The tubes that a connection uses and watches. */
#include <stdlib.h>
#include <string.h>

#include "acceptor/protocols/beanstalk/beanstalk.h"

static uint32_t worker_of(const struct acceptor *a, uint32_t topic) {
    return binding_at(&a->bindings, topic)->worker;
}

void beanstalk_use(struct acceptor *a, struct connection *c, uint32_t topic, uint16_t flags) {
    struct beanstalk *b = beanstalk_of(c);
    uint32_t before = b->used;
    b->used = topic;
    b->may_put = VERDICT_NONE;
    b->implicit_use = flags != 0;
    uint32_t worker = worker_of(a, topic);
    if (before != 0 && worker_of(a, before) != worker) peer_tell(a, c, worker_of(a, before), MSG_USE, 0, 0);
    /* Also when it is the tube it used already: the client now asks for it, which makes it wanted. */
    peer_tell(a, c, worker, MSG_USE, topic, flags);
    if (before != 0) topic_unbind(a, before);
}

uint32_t beanstalk_watch_place(const struct beanstalk *b, uint32_t topic) {
    uint32_t place = 0;
    while (place < b->watched_count && b->watched[place] != topic) place++;
    return place;
}

static bool add_watch(struct beanstalk *b, uint32_t topic) {
    if (b->watched_count == b->watched_capacity) {
        uint32_t capacity = 2 * b->watched_capacity;
        uint32_t *larger = malloc(capacity * sizeof *larger);
        if (larger == NULL) return false;
        memcpy(larger, b->watched, b->watched_count * sizeof *larger);
        if (b->watched != b->few_watched) free(b->watched);
        b->watched = larger;
        b->watched_capacity = capacity;
    }
    b->watched[b->watched_count++] = topic;
    return true;
}

void beanstalk_watch(struct acceptor *a, struct connection *c, uint32_t topic, uint16_t flags) {
    struct beanstalk *b = beanstalk_of(c);
    if (!add_watch(b, topic)) {
        topic_unbind(a, topic);
        engine_oom(a, c);
        return;
    }
    beanstalk_options(a, c)->watches++;
    b->watched_workers |= bit_of(worker_of(a, topic));
    if (flags != 0) {
        b->implicit_watch = true;
        b->began_with = topic;
    }
    peer_tell(a, c, worker_of(a, topic), MSG_WATCH, topic, flags);
}

/* The last tube moves to its place in the list, as in beanstalkd. */
void beanstalk_ignore(struct acceptor *a, struct connection *c, uint32_t place) {
    struct beanstalk *b = beanstalk_of(c);
    assert(place < b->watched_count);
    uint32_t topic = b->watched[place];
    b->watched[place] = b->watched[--b->watched_count];
    if (topic == b->began_with) b->implicit_watch = false;
    beanstalk_options(a, c)->watches--;
    b->watched_workers = 0;
    for (uint32_t i = 0; i < b->watched_count; i++) b->watched_workers |= bit_of(worker_of(a, b->watched[i]));
    peer_tell(a, c, worker_of(a, topic), MSG_IGNORE, topic, 0);
    topic_unbind(a, topic);
}

void beanstalk_tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    const struct beanstalk *b = beanstalk_of(c);
    if (b->used != 0 && worker_of(a, b->used) == worker)
        peer_tell(a, c, worker, MSG_USE, b->used, b->implicit_use ? MSG_IMPLICIT : 0);
    for (uint32_t i = 0; i < b->watched_count; i++) {
        uint32_t topic = b->watched[i];
        if (worker_of(a, topic) != worker) continue;
        peer_tell(a, c, worker, MSG_WATCH, topic, b->implicit_watch && topic == b->began_with ? MSG_IMPLICIT : 0);
    }
}

void beanstalk_let_go_tubes(struct acceptor *a, struct connection *c) {
    struct beanstalk *b = beanstalk_of(c);
    for (uint32_t i = 0; i < b->watched_count; i++) topic_unbind(a, b->watched[i]);
    beanstalk_options(a, c)->watches -= b->watched_count;
    if (b->used != 0) topic_unbind(a, b->used);
}
