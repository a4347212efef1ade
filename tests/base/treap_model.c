/* A treap beside a model that is an array in order: items come anywhere and go from anywhere. After each round its
 * order is that of the array, no item has a higher priority than its parent, and it is no deeper than chance would have
 * it.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/treap.h"
#include "draw.h"

enum { ITEMS = 4096, ROUNDS = 12 };

struct item {
    uint64_t other;
    struct treap_node node;
};

static struct item items[ITEMS + 1];
static uint32_t model[ITEMS], count, root, unused[ITEMS], unused_count;

static struct treap_nodes nodes(void) {
    return (struct treap_nodes){(char *)items + offsetof(struct item, node), sizeof *items};
}

static struct treap_node *node(uint32_t item) {
    return treap_at(nodes(), item);
}

/* `few`: priorities that are often the same. */
static void add(uint32_t place, int few) {
    uint32_t item = unused[--unused_count];
    uint32_t before = place ? model[place - 1] : 0, after = place < count ? model[place] : 0;
    treap_insert(nodes(), &root, item, (uint32_t)draw(few ? 50 : UINT32_MAX), before, after);
    memmove(model + place + 1, model + place, (count++ - place) * sizeof *model);
    model[place] = item;
}

static void take_off(uint32_t place) {
    treap_remove(nodes(), &root, model[place]);
    unused[unused_count++] = model[place];
    memmove(model + place, model + place + 1, (--count - place) * sizeof *model);
}

static uint32_t depth_of(uint32_t item) {
    uint32_t depth = 0;
    for (; item; item = node(item)->parent) depth++;
    return depth;
}

static uint32_t leftmost(uint32_t item) {
    while (item && node(item)->left) item = node(item)->left;
    return item;
}

static uint32_t next(uint32_t item) {
    if (node(item)->right) return leftmost(node(item)->right);
    while (node(item)->parent && node(node(item)->parent)->right == item) item = node(item)->parent;
    return node(item)->parent;
}

static void check(int few) {
    uint32_t at = leftmost(root);
    for (uint32_t i = 0; i < count; i++, at = next(at)) {
        const struct treap_node *n = node(at);
        assert(at == model[i]);
        assert(n->parent ? node(n->parent)->priority >= n->priority : at == root);
        assert(!n->left || node(n->left)->parent == at);
        assert(!n->right || node(n->right)->parent == at);
        assert(few || depth_of(at) <= 50);
    }
    assert(at == 0 && (count > 0) == (root != 0));
}

/* In the middle, at the end, at the beginning, or next to the last one. */
static uint32_t some_place(uint32_t how, uint32_t most) {
    static uint32_t last;
    if (how == 0) return last = (uint32_t)draw(most + 1);
    if (how == 1) return most;
    if (how == 2) return 0;
    last = last < most ? last + (uint32_t)draw(2) : most;
    return last;
}

static void play(uint64_t seed) {
    random_seed(seed);
    int few = seed % 4 == 3;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t how = (uint32_t)draw(4), wanted = (uint32_t)draw(ITEMS);
        while (count < wanted) add(some_place(how, count), few);
        while (count > wanted) take_off(some_place(how, count - 1));
        check(few);
    }
    while (count) take_off((uint32_t)draw(count));
    check(few);
}

int main(int argc, char **argv) {
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (uint32_t i = 1; i <= ITEMS; i++) unused[unused_count++] = i;
    for (uint64_t seed = 1; seed <= seeds; seed++) play(seed);
    puts("ok");
    return 0;
}
