/* The tubes that a connection uses and watches. */
#include "acceptor/protocols/beanstalk/beanstalk_tubes.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

/* Of a connection that watches more tubes than INDEXED_FROM, until it watches half as many: finds a tube without a walk
 * along all of them. */
enum { INDEXED_FROM = 64 };
struct watch_index {
    struct map places;                     /* from topics to their places in the watch list, plus one */
    uint32_t on_worker[BOARD_MAX_WORKERS]; /* how many of the topics each worker has */
};

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
    if (b->watch_index != NULL) {
        uint32_t found = map_find(&b->watch_index->places, topic);
        return found != 0 ? found - 1 : b->watched_count;
    }
    uint32_t place = 0;
    while (place < b->watched_count && b->watched[place] != topic) place++;
    return place;
}

static bool index_watch(const struct acceptor *a, const struct beanstalk *b, uint32_t place) {
    struct watch_index *index = b->watch_index;
    if (!map_insert(&index->places, b->watched[place], place + 1)) return false;
    index->on_worker[worker_of(a, b->watched[place])]++;
    return true;
}

static void drop_index(struct beanstalk *b) {
    map_free(&b->watch_index->places);
    free(b->watch_index);
    b->watch_index = NULL;
}

static bool index_all(const struct acceptor *a, struct beanstalk *b) {
    b->watch_index = calloc(1, sizeof *b->watch_index);
    if (b->watch_index == NULL) return false;
    for (uint32_t place = 0; place < b->watched_count; place++) {
        if (index_watch(a, b, place)) continue;
        drop_index(b);
        return false;
    }
    return true;
}

static bool add_watch(const struct acceptor *a, struct beanstalk *b, uint32_t topic) {
    if (b->watched_count == INDEXED_FROM && b->watch_index == NULL && !index_all(a, b)) return false;
    if (b->watched_count == b->watched_capacity) {
        uint32_t capacity = 2 * b->watched_capacity;
        uint32_t *larger = malloc(capacity * sizeof *larger);
        if (larger == NULL) return false;
        memcpy(larger, b->watched, b->watched_count * sizeof *larger);
        if (b->watched != b->few_watched) free(b->watched);
        b->watched = larger;
        b->watched_capacity = capacity;
    }
    b->watched[b->watched_count] = topic;
    if (b->watch_index != NULL && !index_watch(a, b, b->watched_count)) return false;
    b->watched_count++;
    return true;
}

void beanstalk_watch(struct acceptor *a, struct connection *c, uint32_t topic, uint16_t flags) {
    struct beanstalk *b = beanstalk_of(c);
    if (!add_watch(a, b, topic)) {
        topic_unbind(a, topic);
        engine_oom(a, c);
        return;
    }
    if (b->watched_count > 1) beanstalk_options(a, c)->watches++;
    b->watched_workers |= bit_of(worker_of(a, topic));
    if (flags != 0) {
        b->implicit_watch = true;
        b->began_with = topic;
    }
    peer_tell(a, c, worker_of(a, topic), MSG_WATCH, topic, flags);
}

/* The last tube of the list has moved to the place of `topic`, which is not in it any more. */
static void index_ignored(struct beanstalk *b, uint32_t topic, uint32_t place, uint32_t worker) {
    struct watch_index *index = b->watch_index;
    map_remove(&index->places, topic);
    index->on_worker[worker]--;
    if (place < b->watched_count) {
        map_remove(&index->places, b->watched[place]);
        bool fits = map_insert(&index->places, b->watched[place], place + 1);
        assert(fits); /* two were taken out */
        (void)fits;
    }
    if (b->watched_count <= INDEXED_FROM / 2) drop_index(b);
}

static bool watches_on(const struct acceptor *a, const struct beanstalk *b, uint32_t worker) {
    if (b->watch_index != NULL) return b->watch_index->on_worker[worker] > 0;
    uint32_t place = 0;
    while (place < b->watched_count && worker_of(a, b->watched[place]) != worker) place++;
    return place < b->watched_count;
}

/* The last tube moves to its place in the list, as in beanstalkd. */
void beanstalk_ignore(struct acceptor *a, struct connection *c, uint32_t place) {
    struct beanstalk *b = beanstalk_of(c);
    assert(place < b->watched_count);
    uint32_t topic = b->watched[place], worker = worker_of(a, topic);
    b->watched[place] = b->watched[--b->watched_count];
    if (b->watch_index != NULL) index_ignored(b, topic, place, worker);
    if (topic == b->began_with) b->implicit_watch = false;
    if (b->watched_count > 0) beanstalk_options(a, c)->watches--;
    if (!watches_on(a, b, worker)) b->watched_workers &= ~bit_of(worker);
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
    if (b->watched_count > 1) beanstalk_options(a, c)->watches -= b->watched_count - 1;
    if (b->used != 0) topic_unbind(a, b->used);
}

void beanstalk_free_tubes(struct beanstalk *b) {
    if (b->watch_index != NULL) drop_index(b);
    if (b->watched != b->few_watched) free(b->watched);
}
