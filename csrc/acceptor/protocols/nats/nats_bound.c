/* Which subjects are bound to topics. To other servers a binding is one more subscription, so messages published there
 * come over a route. With a queue group each message is logged by one server of the group; a message published here is
 * always logged here. */
#include "acceptor/protocols/nats/nats_bound.h"

#include <stdlib.h>

#include "acceptor/bridge.h"
#include "acceptor/protocols/nats/nats_route_interest.h"

/* Entries without a pattern are of duplicate lines. */
static void unbind(struct nats_bound *bound) {
    for (size_t i = 0; i < bound->count; i++)
        if (bound->entries[i].pattern != NULL) subjects_remove(bound->subjects, &bound->entries[i]);
    subjects_free(bound->subjects);
    free(bound->entries);
    free(bound->queue);
}

static bool bind_all(struct subjects *bound, struct subject_entry *entries, const uint8_t *lines, const uint8_t *end) {
    for (; lines < end; entries++) {
        const uint8_t *stop = memchr(lines, '\n', (size_t)(end - lines));
        size_t bytes = (size_t)((stop != NULL ? stop : end) - lines);
        bool first;
        if (!subject_pattern_is_valid(lines, bytes)) return false;
        entries->weight = 1;
        if (subjects_find(bound, lines, bytes) == NULL && !subjects_add(bound, entries, lines, bytes, NULL, 0, &first))
            return false;
        lines += bytes + 1;
    }
    return true;
}

static size_t count_lines(const uint8_t *lines, const uint8_t *end) {
    size_t count = lines < end;
    for (; lines < end; lines++) count += *lines == '\n' && lines + 1 < end;
    return count;
}

/* False when memory is short; the caller must then unbind what was allocated. */
static bool make_room_for(struct nats_server *server, struct nats_bound *bound) {
    if (bound->count > 0) {
        bound->entries = calloc(bound->count, sizeof *bound->entries);
        bound->subjects = subjects_new(server->key);
        if (bound->entries == NULL) bound->count = 0;
        if (bound->entries == NULL || bound->subjects == NULL) return false;
    }
    if (bound->queue_bytes > 0) bound->queue = malloc(bound->queue_bytes);
    return bound->queue_bytes == 0 || bound->queue != NULL;
}

int64_t nats_bind_topics(struct acceptor *a, struct nats_server *server, const uint8_t *lines, size_t bytes) {
    const uint8_t *end = lines + bytes, *stop = bytes > 0 ? memchr(lines, '\n', bytes) : NULL;
    if (stop == NULL) return CALL_REFUSED;
    struct nats_bound before = server->bound,
                      bound = {.count = count_lines(stop + 1, end), .queue_bytes = (size_t)(stop - lines)};
    if (!make_room_for(server, &bound) || !bind_all(bound.subjects, bound.entries, stop + 1, end)) {
        unbind(&bound);
        return CALL_REFUSED;
    }
    if (bound.queue != NULL) memcpy(bound.queue, lines, bound.queue_bytes);
    server->bound = bound;
    if (server->route_count > 0) nats_tell_routes_bound(a, server, &before);
    unbind(&before);
    bridge_look(a);
    return 0;
}

void nats_unbind_topics(struct nats_server *server) {
    unbind(&server->bound);
}

bool nats_is_bound(struct nats_server *server, struct text subject) {
    struct subject_pattern *const *patterns;
    if (server->bound.subjects == NULL || subject_has_wildcard(subject.at, subject.bytes)) return false;
    return subject_pattern_is_valid(subject.at, subject.bytes) &&
           subjects_match(server->bound.subjects, server->walk, subject.at, subject.bytes, &patterns) > 0;
}

bool nats_is_shared(struct nats_server *server, uint32_t account, struct text subject) {
    return server->bound.queue != NULL && account == NATS_GLOBAL_ACCOUNT && nats_is_bound(server, subject);
}

bool nats_is_kept_routed(struct nats_server *server, uint32_t account, struct text subject, const struct text *groups,
                         size_t count) {
    if (server->bound.subjects == NULL || account != NATS_GLOBAL_ACCOUNT) return false;
    bool is_named = server->bound.queue == NULL;
    for (size_t i = 0; i < count && !is_named; i++)
        is_named = groups[i].bytes == server->bound.queue_bytes &&
                   memcmp(groups[i].at, server->bound.queue, groups[i].bytes) == 0;
    return is_named && nats_is_bound(server, subject);
}
