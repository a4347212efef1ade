/* Streams that are imported from an account, and its shadows. */
#ifndef MQ_NATS_SHADOWS_STATE_H
#define MQ_NATS_SHADOWS_STATE_H

#include <stdint.h>

#include "acceptor/protocols/nats/nats_others.h"
#include "acceptor/protocols/nats/nats_remote.h"
#include "base/subject_groups.h"
#include "base/text.h"

struct nats_share;
struct nats_transform;
struct subject_group;
struct subject_pattern;
struct subjects;

/* A stream that an account imports from another. */
struct nats_stream {
    struct subject_entry entry; /* first; of the importer's, unless nobody can want it */
    struct nats_stream *next;   /* of the exporter */
    const struct nats_share *share;
    const struct nats_transform *to; /* the share's */
    struct text pattern;             /* in the exporter; the share's */
    uint32_t exporter, importer;
};

/* Who in an importing account wants a pattern: clients of all acceptors (NATS_ACCEPTORS), leaf nodes, or hubs of one
 * cluster. */
struct nats_wanting {
    uint32_t kind;   /* enum nats_kind */
    uint32_t origin; /* the hubs' cluster; 0: no hubs */
};

/* One pattern of an importing account. Its weight is how often that is wanted there, by one kind: as servers have been
 * told, and as its entry has it, by which a member is chosen. They differ while the last member of a group is leaving:
 * nats_looks.h. */
struct nats_shadow {
    struct subject_entry entry; /* first */
    struct nats_shadow *next, *previous;
    const struct nats_share *share;
    struct nats_wanting by;
    uint32_t told;
    uint32_t bytes;
    char wanted[]; /* the pattern in the importing account */
};

struct nats_shadows {
    struct nats_stream *streams;
    struct subjects *subjects; /* of shadows; NULL: nothing is wanted */
    struct nats_shadow *first;
    uint64_t outside; /* how many of them are of leaf nodes or hubs */
};

/* How often importing accounts want a pattern of an account, by kind. */
struct nats_shadows_weights {
    uint64_t clients, leaves, hubs;
};

/* A server imports for itself what it wants. */
static inline bool nats_is_wanting(const struct nats_remote *r) {
    return (nats_kind_of(r) & (NATS_ACCEPTORS | NATS_LEAF_NODES | NATS_HUB_SERVERS)) != 0;
}

static inline struct nats_wanting nats_wanting_of(const struct nats_remote *r) {
    const uint32_t kind = nats_kind_of(r);
    return (struct nats_wanting){.kind = kind, .origin = kind == NATS_HUB_SERVERS ? r->origin : 0};
}

static inline struct nats_shadow *nats_shadow_of(struct subject_entry *entry) {
    return (struct nats_shadow *)(void *)entry;
}

static inline struct nats_shadows_weights nats_shadows_weigh(const struct nats_shadows *shadows, struct text subject,
                                                             struct text queue) {
    struct nats_shadows_weights w = {0};
    if (shadows == NULL || shadows->subjects == NULL) return w;
    struct subject_entries *entries = subjects_entries(shadows->subjects, subject, queue);
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        const struct nats_shadow *s = nats_shadow_of(subject_entries_items(entries)[i]);
        uint64_t *weight = s->by.kind == NATS_ACCEPTORS ? &w.clients : &w.leaves;
        if (s->by.kind == NATS_HUB_SERVERS) weight = &w.hubs;
        *weight += s->told;
    }
    return w;
}

#endif
