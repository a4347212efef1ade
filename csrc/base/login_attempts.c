#include "base/login_attempts.h"

#include "base/time_units.h"

/* Relaxed throughout: each word is a figure of its own, and publishes nothing else. */
static uint64_t read_of(_Atomic uint64_t *word) {
    return atomic_load_explicit(word, memory_order_relaxed);
}
static void write_to(_Atomic uint64_t *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

void login_attempts_format(struct login_attempts *all, uint64_t seed) {
    all->secret = siphash_key(seed);
}

static uint64_t key_of(const struct login_attempts *all, const char *source, size_t bytes) {
    uint64_t key = siphash(all->secret, source, bytes);
    return key ? key : 1;
}

static struct login_source *find(struct login_attempts *all, uint64_t key) {
    for (uint32_t n = 0; n < LOGIN_PLACES; n++) {
        struct login_source *s = &all->sources[(key + n) % LOGIN_SOURCES];
        if (read_of(&s->key) == key) return s;
    }
    return NULL;
}

static struct login_source *take(struct login_attempts *all, uint64_t key) {
    struct login_source *oldest = &all->sources[key % LOGIN_SOURCES];
    for (uint32_t n = 1; n < LOGIN_PLACES; n++) {
        struct login_source *s = &all->sources[(key + n) % LOGIN_SOURCES];
        if (read_of(&s->seen_ns) < read_of(&oldest->seen_ns)) oldest = s;
    }
    write_to(&oldest->wrong, 0);
    write_to(&oldest->free_ns, 0);
    write_to(&oldest->key, key);
    return oldest;
}

static uint64_t delay_ns(uint64_t wrong) {
    uint64_t doublings = wrong - LOGIN_FREE;
    uint64_t ms = doublings < 16 ? (uint64_t)LOGIN_FIRST_MS << doublings : LOGIN_LONGEST_MS;
    return (ms < LOGIN_LONGEST_MS ? ms : LOGIN_LONGEST_MS) * MS_NS;
}

int64_t login_attempt_begin(struct login_attempts *all, const char *source, size_t bytes, uint64_t now_ns) {
    uint64_t key = key_of(all, source, bytes);
    struct login_source *s = find(all, key);
    if (!s) s = take(all, key);
    uint64_t seen_ns = read_of(&s->seen_ns);
    if (seen_ns < now_ns && now_ns - seen_ns > LOGIN_FORGOTTEN_MS * MS_NS) {
        write_to(&s->wrong, 0);
        write_to(&s->free_ns, 0);
    }
    write_to(&s->seen_ns, now_ns);
    uint64_t wrong = atomic_fetch_add_explicit(&s->wrong, 1, memory_order_relaxed);
    if (wrong < LOGIN_FREE) return 0;
    uint64_t free_ns = read_of(&s->free_ns), until_ns;
    do {
        until_ns = (free_ns > now_ns ? free_ns : now_ns) + delay_ns(wrong);
        if (until_ns - now_ns <= LOGIN_MAX_WAIT_MS * MS_NS) continue;
        atomic_fetch_sub_explicit(&s->wrong, 1, memory_order_relaxed);
        return -1;
    } while (!atomic_compare_exchange_weak_explicit(&s->free_ns, &free_ns, until_ns, memory_order_relaxed,
                                                    memory_order_relaxed));
    return (int64_t)(until_ns - now_ns);
}

void login_attempt_right(struct login_attempts *all, const char *source, size_t bytes) {
    struct login_source *s = find(all, key_of(all, source, bytes));
    uint64_t wrong = s ? read_of(&s->wrong) : 0;
    /* Another process may have taken over the entry meanwhile. */
    while (wrong && !atomic_compare_exchange_weak_explicit(&s->wrong, &wrong, wrong - 1, memory_order_relaxed,
                                                           memory_order_relaxed))
        continue;
}
