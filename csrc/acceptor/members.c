#include "acceptor/members.h"

#include "base/siphash.h"

/* No secret key, because all acceptors must find the same place. The names are chosen by the operator. */
static uint64_t hash_of(const void *name, size_t bytes) {
    uint64_t hash = siphash((struct siphash_key){{1, 2}}, name, bytes);
    return hash != 0 ? hash : 1;
}

uint32_t members_place(struct acceptor *a, const void *name, size_t bytes) {
    uint64_t hash = hash_of(name, bytes);
    for (uint32_t i = 0; i < BOARD_MEMBERSHIPS; i++) {
        uint32_t place = (uint32_t)(hash + i) % BOARD_MEMBERSHIPS;
        uint64_t there = 0;
        /* Relaxed: the counts lie elsewhere, and a place never changes its owner. */
        bool taken = atomic_compare_exchange_strong_explicit(&a->board->memberships[place], &there, hash,
                                                             memory_order_relaxed, memory_order_relaxed);
        if (taken || there == hash) return place;
    }
    return BOARD_MEMBERSHIPS;
}

/* Sequentially consistent, like the addition before it: of two simultaneous newcomers at least one sees the other. */
static uint64_t members_of(const struct acceptor *a, uint32_t place) {
    uint64_t members = 0;
    for (uint32_t i = 0; i < BOARD_MAX_ACCEPTORS; i++)
        members += atomic_load_explicit(&a->board->acceptors[i].members[place], memory_order_seq_cst);
    return members;
}

bool members_join(struct acceptor *a, uint32_t place, uint64_t most) {
    atomic_fetch_add_explicit(&a->count->members[place], 1, memory_order_seq_cst);
    if (most == UINT64_MAX || members_of(a, place) <= most) return true;
    members_leave(a, place);
    return false;
}

void members_leave(struct acceptor *a, uint32_t place) {
    atomic_fetch_sub_explicit(&a->count->members[place], 1, memory_order_seq_cst);
}

void members_begin(struct acceptor *a) {
    for (uint32_t i = 0; i < BOARD_MEMBERSHIPS; i++)
        atomic_store_explicit(&a->count->members[i], 0, memory_order_relaxed);
}
