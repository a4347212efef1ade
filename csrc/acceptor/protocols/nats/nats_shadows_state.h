/* Streams that are imported from an account, and its shadows. */
#ifndef MQ_NATS_SHADOWS_STATE_H
#define MQ_NATS_SHADOWS_STATE_H

#include <stdint.h>

#include "base/subject_groups.h"
#include "base/text.h"

struct nats_shadow;
struct nats_share;
struct nats_transform;
struct subject_group;
struct subject_pattern;
struct subjects;

/* A stream that an account imports from another. */
struct nats_stream {
    struct nats_stream *next;           /* of the exporter */
    struct nats_stream *next_importing; /* of the importer */
    const struct nats_share *share;
    const struct nats_transform *to; /* the share's */
    struct text pattern;             /* in the exporter; the share's */
    uint32_t exporter, importer;
};

struct nats_shadows {
    struct nats_stream *streams;
    struct subjects *subjects; /* of shadows; NULL: nothing is wanted */
    struct nats_shadow *first;
};

/* How often importing accounts want a pattern of an account. */
static inline uint64_t nats_shadows_weight(const struct nats_shadows *shadows, struct text subject, struct text queue) {
    struct subject_pattern *p = NULL;
    if (shadows != NULL && shadows->subjects != NULL) p = subjects_find(shadows->subjects, subject.at, subject.bytes);
    if (p == NULL) return 0;
    if (queue.bytes == 0) return p->alone.count;
    struct subject_group *g = subject_group_find(subjects_groups(shadows->subjects), p, queue.at, queue.bytes);
    return g != NULL ? g->weight : 0;
}

#endif
