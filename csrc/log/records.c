#include "log/records.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Most jobs have a time to run of whole milliseconds and no delay: eight bytes say all of it. */
struct short_attributes {
    uint32_t pri;
    uint32_t ttr_ms;
    uint32_t delay_ms; /* left out if 0 */
};

enum { MS_NS = 1000000, WITHOUT_DELAY = offsetof(struct short_attributes, delay_ms) };

static bool is_short(uint64_t ns) {
    return ns % MS_NS == 0 && ns / MS_NS <= UINT32_MAX;
}

uint8_t publish_attributes_pack(const struct publish_attributes *a, void *out) {
    if (!is_short(a->ttr_ns) || !is_short(a->delay_ns)) {
        memcpy(out, a, sizeof *a);
        return sizeof *a;
    }
    struct short_attributes brief = {a->pri, (uint32_t)(a->ttr_ns / MS_NS), (uint32_t)(a->delay_ns / MS_NS)};
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
