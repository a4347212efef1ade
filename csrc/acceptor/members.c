#include "acceptor/members.h"

#include "base/siphash.h"

/* A place holds the hash of its name. While somebody gives it back it holds LEAVING, so that nobody joins there. */
enum { FREE, LEAVING, FIRST_HASH };
enum { TRIES = 16 };

static _Atomic uint64_t *place_of(const struct acceptor *a, uint32_t place) {
    return &a->board->memberships[place];
}

/* No secret key, because all acceptors must find the same place. The names are chosen by the operator. */
struct membership membership_of(const void *name, size_t bytes) {
    uint64_t hash = siphash((struct siphash_key){{1, 2}}, name, bytes);
    return (struct membership){hash < FIRST_HASH ? FIRST_HASH : hash, BOARD_MEMBERSHIPS, 0};
}

/* The place that has a name, but for `except`; or else the first that is free, if `or_free`. All are looked at, since
 * places in between may have been given back. */
static uint32_t look_for(const struct acceptor *a, uint64_t hash, uint32_t except, bool or_free) {
    uint32_t empty = BOARD_MEMBERSHIPS;
    for (uint32_t i = 0; i < BOARD_MEMBERSHIPS; i++) {
        uint32_t place = (uint32_t)(hash + i) % BOARD_MEMBERSHIPS;
        uint64_t there = atomic_load_explicit(place_of(a, place), memory_order_seq_cst);
        if (there == hash && place != except) return place;
        if (there == FREE && empty == BOARD_MEMBERSHIPS) empty = place;
    }
    return or_free ? empty : BOARD_MEMBERSHIPS;
}

/* Finds a name's place, or takes one. Of two acceptors that take one each at the same moment, at least one sees the
 * other's, and gives its own up. */
static void find(struct acceptor *a, struct membership *m) {
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        m->place = look_for(a, m->hash, BOARD_MEMBERSHIPS, true);
        if (m->place == BOARD_MEMBERSHIPS) return;
        uint64_t there = FREE;
        if (!atomic_compare_exchange_strong_explicit(place_of(a, m->place), &there, m->hash, memory_order_seq_cst,
                                                     memory_order_seq_cst)) {
            if (there == m->hash) return;
        } else if (look_for(a, m->hash, m->place, false) == BOARD_MEMBERSHIPS) {
            return;
        } else {
            members_forget(a, m);
        }
    }
    m->place = BOARD_MEMBERSHIPS;
}

/* Sequentially consistent, like the addition before it: of two simultaneous newcomers at least one sees the other. */
static uint64_t members_of(const struct acceptor *a, uint32_t place) {
    uint64_t members = 0;
    for (uint32_t i = 0; i < BOARD_MAX_ACCEPTORS; i++)
        members += atomic_load_explicit(&a->board->acceptors[i].members[place], memory_order_seq_cst);
    return members;
}

static void count(struct acceptor *a, uint32_t place, uint32_t more) {
    atomic_fetch_add_explicit(&a->count->members[place], more, memory_order_seq_cst);
}

/* Counts a member at the name's place. The first one counts only if the place is still that of the name: who gives a
 * place back says so before it looks whether there are members. */
static void enter(struct acceptor *a, struct membership *m) {
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        if (m->place == BOARD_MEMBERSHIPS) find(a, m);
        if (m->place == BOARD_MEMBERSHIPS) return;
        count(a, m->place, 1);
        if (atomic_load_explicit(place_of(a, m->place), memory_order_seq_cst) == m->hash) return;
        count(a, m->place, UINT32_MAX);
        m->place = BOARD_MEMBERSHIPS;
    }
}

bool members_join(struct acceptor *a, struct membership *m, uint64_t most) {
    if (m->members == 0)
        enter(a, m);
    else if (m->place < BOARD_MEMBERSHIPS)
        count(a, m->place, 1);
    m->members++;
    if (most == UINT64_MAX) return true;
    if ((m->place < BOARD_MEMBERSHIPS ? members_of(a, m->place) : m->members) <= most) return true;
    members_leave(a, m);
    return false;
}

void members_leave(struct acceptor *a, struct membership *m) {
    m->members--;
    if (m->place < BOARD_MEMBERSHIPS) count(a, m->place, UINT32_MAX);
}

static void give_back(struct acceptor *a, uint32_t place, uint64_t hash) {
    for (uint32_t tries = 0; tries < TRIES && members_of(a, place) == 0; tries++) {
        uint64_t there = hash;
        if (!atomic_compare_exchange_strong_explicit(place_of(a, place), &there, LEAVING, memory_order_seq_cst,
                                                     memory_order_seq_cst))
            return;
        bool is_empty = members_of(a, place) == 0;
        atomic_store_explicit(place_of(a, place), is_empty ? FREE : hash, memory_order_seq_cst);
        if (is_empty) return;
    }
}

void members_forget(struct acceptor *a, struct membership *m) {
    if (m->place < BOARD_MEMBERSHIPS && m->members == 0) give_back(a, m->place, m->hash);
    m->place = BOARD_MEMBERSHIPS;
}

void members_begin(struct acceptor *a) {
    for (uint32_t i = 0; i < BOARD_MEMBERSHIPS; i++)
        atomic_store_explicit(&a->count->members[i], 0, memory_order_seq_cst);
    for (uint32_t i = 0; i < BOARD_MEMBERSHIPS; i++) {
        uint64_t there = atomic_load_explicit(place_of(a, i), memory_order_seq_cst);
        if (there >= FIRST_HASH) give_back(a, i, there);
    }
}
