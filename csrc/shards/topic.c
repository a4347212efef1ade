#include "shards/topic.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool topics_open(struct topics *topics, uint32_t limit, struct siphash_key key) {
    *topics = (struct topics){.key = key, .limit = limit};
    return arena_pages_open(&topics->pages, &topics->arena, sizeof(struct topic), limit);
}

void topics_close(struct topics *topics) {
    for (uint32_t i = 0; topics->names.slots && i <= topics->names.mask; i++) {
        uint32_t number = topics->names.slots[i].number;
        if (!number) continue;
        struct topic *t = topic_at(topics, number);
        ready_free(&t->ready);
        heap_free(&t->delayed);
        stream_free(&t->stream);
        free(t->name);
    }
    map_free(&topics->names);
    arena_pages_close(&topics->pages, &topics->arena);
}

uint32_t topics_find(const struct topics *topics, const char *name, size_t name_bytes) {
    uint32_t number = map_find(&topics->names, siphash(topics->key, name, name_bytes));
    if (!number) return 0;
    const struct topic *t = topic_at(topics, number);
    return t->name_bytes == name_bytes && memcmp(t->name, name, name_bytes) == 0 ? number : 0;
}

uint32_t topics_add(struct topics *topics, const char *name, size_t name_bytes, uint32_t shard, uint64_t next_seq) {
    assert(name_bytes > 0 && name_bytes <= TOPIC_NAME_BYTES);
    uint64_t key = siphash(topics->key, name, name_bytes);
    /* Two names with one 64-bit keyed hash: refuse the second, as if the limit were reached. */
    if (topics->names.count >= topics->limit || map_find(&topics->names, key)) return 0;
    char *copy = malloc(name_bytes);
    if (!copy) return 0;
    memcpy(copy, name, name_bytes);
    uint32_t number = arena_pages_take(&topics->pages, &topics->arena);
    if (!number || !map_insert(&topics->names, key, number)) {
        if (number) arena_pages_give(&topics->pages, &topics->arena, number);
        free(copy);
        return 0;
    }
    topics->names_bytes += name_bytes;
    *topic_at(topics, number) = (struct topic){.shard = shard,
                                               .name = copy,
                                               .name_bytes = (uint32_t)name_bytes,
                                               .key = key,
                                               .next_seq = next_seq,
                                               .delay_place = HEAP_NOWHERE,
                                               .pause_place = HEAP_NOWHERE};
    return number;
}

bool topics_rename(struct topics *topics, uint32_t topic, const char *name, size_t name_bytes) {
    struct topic *t = topic_at(topics, topic);
    uint64_t key = siphash(topics->key, name, name_bytes);
    char *copy = malloc(name_bytes);
    if (!copy || map_find(&topics->names, key) || !map_insert(&topics->names, key, topic)) {
        free(copy);
        return false;
    }
    memcpy(copy, name, name_bytes);
    map_remove(&topics->names, t->key);
    free(t->name);
    topics->names_bytes += name_bytes - t->name_bytes;
    t->name = copy;
    t->name_bytes = (uint32_t)name_bytes;
    t->key = key;
    return true;
}

void topics_remove(struct topics *topics, uint32_t topic) {
    struct topic *t = topic_at(topics, topic);
    assert(!topic_seen(t) && !t->waiting);
    map_remove(&topics->names, t->key);
    ready_free(&t->ready);
    heap_free(&t->delayed);
    stream_free(&t->stream);
    free(t->name);
    topics->names_bytes -= t->name_bytes;
    t->name = NULL;
    arena_pages_give(&topics->pages, &topics->arena, topic);
}
