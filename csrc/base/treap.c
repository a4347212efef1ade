#include "base/treap.h"

#include <assert.h>
#include <stdbool.h>

/* Puts `child` in the place of `item` below its parent. */
static void replace(struct treap_nodes nodes, uint32_t *root, uint32_t item, uint32_t child) {
    uint32_t above = treap_at(nodes, item)->parent;
    if (child) treap_at(nodes, child)->parent = above;
    if (!above) {
        *root = child;
        return;
    }
    struct treap_node *parent = treap_at(nodes, above);
    *(parent->left == item ? &parent->left : &parent->right) = child;
}

/* Rotates an item above its parent; the order stays the same. */
static void rotate_up(struct treap_nodes nodes, uint32_t *root, uint32_t item) {
    struct treap_node *n = treap_at(nodes, item);
    uint32_t down = n->parent;
    struct treap_node *p = treap_at(nodes, down);
    replace(nodes, root, down, item);
    uint32_t *given = p->left == item ? &n->right : &n->left;
    *(p->left == item ? &p->left : &p->right) = *given;
    if (*given) treap_at(nodes, *given)->parent = down;
    *given = down;
    p->parent = item;
}

void treap_insert(struct treap_nodes nodes, uint32_t *root, uint32_t item, uint32_t priority, uint32_t before,
                  uint32_t after) {
    assert(item && item != before && item != after);
    struct treap_node *n = treap_at(nodes, item);
    *n = (struct treap_node){.priority = priority};
    /* Of two neighbours one is an ancestor of the other, so one of them has a free child on the other's side. */
    if (before && !treap_at(nodes, before)->right) {
        n->parent = before;
        treap_at(nodes, before)->right = item;
    } else if (after) {
        assert(!treap_at(nodes, after)->left);
        n->parent = after;
        treap_at(nodes, after)->left = item;
    } else {
        assert(!*root);
        *root = item;
    }
    while (n->parent && treap_at(nodes, n->parent)->priority < priority) rotate_up(nodes, root, item);
}

void treap_remove(struct treap_nodes nodes, uint32_t *root, uint32_t item) {
    const struct treap_node *n = treap_at(nodes, item);
    while (n->left && n->right) {
        bool is_left = treap_at(nodes, n->left)->priority > treap_at(nodes, n->right)->priority;
        rotate_up(nodes, root, is_left ? n->left : n->right);
    }
    replace(nodes, root, item, n->left ? n->left : n->right);
}
