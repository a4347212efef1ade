/* A treap: what stands in an order, and is found there in few steps whatever order it came in. A binary tree in which
 * no item has a higher priority than the one above it: with priorities that nobody can foresee its depth is some twice
 * the logarithm of the count, however the items come and go.
 *
 * It knows nothing of what they are ordered by, only between which two one comes to stand: its user compares, going
 * down from the root. Nor of the items except where each keeps its struct treap_node, at a fixed stride. Numbers begin
 * at 1.
 */
#ifndef MQ_TREAP_H
#define MQ_TREAP_H

#include <stddef.h>
#include <stdint.h>

/* The part of an item that the treap keeps. `left` and `right` may be read; 0: none. */
struct treap_node {
    uint32_t parent, left, right;
    uint32_t priority;
};

/* Where items keep their node: its address in item 0, and the distance to the next item's. */
struct treap_nodes {
    void *base;
    size_t stride;
};

static inline struct treap_node *treap_at(struct treap_nodes nodes, uint32_t item) {
    return (struct treap_node *)(void *)((char *)nodes.base + nodes.stride * item);
}

/* Inserts an item between two neighbours; `before` 0: as the first, `after` 0: as the last. */
void treap_insert(struct treap_nodes nodes, uint32_t *root, uint32_t item, uint32_t priority, uint32_t before,
                  uint32_t after);
void treap_remove(struct treap_nodes nodes, uint32_t *root, uint32_t item);

#endif
