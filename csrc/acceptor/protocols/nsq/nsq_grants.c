#include "acceptor/protocols/nsq/nsq_grants.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((NSQ_GRANT_SETS & (NSQ_GRANT_SETS - 1)) == 0, "sets are found by a mask");

void nsq_grants_open(struct nsq_grants *grants) {
    *grants = (struct nsq_grants){.keys = {siphash_key(0), siphash_key(0)}};
}

void nsq_grants_close(struct nsq_grants *grants) {
    free(grants->places);
    grants->places = NULL;
}

struct nsq_granted nsq_granted_of(const struct nsq_grants *grants, const void *bytes, size_t bytes_count) {
    return (struct nsq_granted){
        {siphash(grants->keys[0], bytes, bytes_count), siphash(grants->keys[1], bytes, bytes_count)}};
}

static struct nsq_grant *set_of(const struct nsq_grants *grants, struct nsq_granted what) {
    return grants->places + (what.words[0] & (NSQ_GRANT_SETS - 1)) * NSQ_GRANT_WAYS;
}

static bool is_for(const struct nsq_grant *grant, struct nsq_granted what) {
    return grant->words[0] == what.words[0] && grant->words[1] == what.words[1];
}

bool nsq_is_granted(const struct nsq_grants *grants, struct nsq_granted what, uint64_t now_ns) {
    if (grants->places == NULL) return false;
    const struct nsq_grant *set = set_of(grants, what);
    for (uint32_t i = 0; i < NSQ_GRANT_WAYS; i++)
        if (is_for(&set[i], what) && set[i].until_ns > now_ns) return true;
    return false;
}

void nsq_grant(struct nsq_grants *grants, struct nsq_granted what, uint64_t until_ns) {
    if (grants->places == NULL)
        grants->places = calloc((size_t)NSQ_GRANT_SETS * NSQ_GRANT_WAYS, sizeof *grants->places);
    if (grants->places == NULL) return;
    struct nsq_grant *set = set_of(grants, what), *at = NULL;
    for (uint32_t i = 0; i < NSQ_GRANT_WAYS && at == NULL; i++)
        if (set[i].until_ns == 0 || is_for(&set[i], what)) at = &set[i];
    if (at == NULL) at = &set[grants->next++ % NSQ_GRANT_WAYS];
    *at = (struct nsq_grant){.words = {what.words[0], what.words[1]}, .until_ns = until_ns};
}

void nsq_grants_forget(struct nsq_grants *grants) {
    nsq_grants_close(grants);
}
