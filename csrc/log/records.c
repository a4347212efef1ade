#include "log/records.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/time_units.h"

/* Most jobs have a time to run of whole milliseconds and no delay: eight bytes say all of it. */
struct short_attributes {
    uint32_t pri;
    uint32_t ttr_ms;
    uint32_t delay_ms; /* omitted if 0 */
};

enum { WITHOUT_DELAY = offsetof(struct short_attributes, delay_ms) };

/* False: too many for 32 bits, or not whole milliseconds. */
static inline bool to_ms(uint64_t ns, uint32_t *ms) {
    const uint64_t whole = ns / MS_NS;
    *ms = (uint32_t)whole;
    return whole <= UINT32_MAX && whole * MS_NS == ns;
}

uint8_t publish_attributes_pack(const struct publish_attributes *a, void *out) {
    struct short_attributes brief = {.pri = a->pri};
    if (!to_ms(a->ttr_ns, &brief.ttr_ms) || (a->delay_ns && !to_ms(a->delay_ns, &brief.delay_ms))) {
        memcpy(out, a, sizeof *a);
        return sizeof *a;
    }
    memcpy(out, &brief, sizeof brief);
    return a->delay_ns ? sizeof brief : WITHOUT_DELAY;
}

struct publish_attributes publish_attributes_of(const struct record *r) {
    struct publish_attributes a = {0};
    struct short_attributes brief = {0};
    if (r->attribute_bytes >= sizeof a) {
        memcpy(&a, record_attributes(r), sizeof a);
        return a;
    }
    if (r->attribute_bytes == WITHOUT_DELAY) /* nearly always, and as one load */
        memcpy(&brief, record_attributes(r), WITHOUT_DELAY);
    else
        memcpy(&brief, record_attributes(r), r->attribute_bytes < sizeof brief ? r->attribute_bytes : sizeof brief);
    a.pri = brief.pri;
    a.ttr_ns = (uint64_t)brief.ttr_ms * MS_NS;
    a.delay_ns = (uint64_t)brief.delay_ms * MS_NS;
    return a;
}
