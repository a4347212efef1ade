/* See decode.h. What is looked up twice, in the cache: a record is checked and copied before the next is touched. */
#include "pipeline/decode.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/decimal.h"
#include "base/hex.h"
#include "log/log.h"
#include "log/records.h"

enum { MS_NS = 1000000, US_NS = 1000 };

/* Where the attributes of the message before stand: those of the next are most often the same. */
struct rendered {
    const struct record *of;
    const uint8_t *names, *values;
    uint32_t name_bytes, value_bytes;
    uint32_t entries;
    int32_t name_ends[DECODE_MAX_ATTRIBUTES], value_ends[DECODE_MAX_ATTRIBUTES]; /* from where they begin */
};

static bool is_whole(const struct record *r, uint32_t segment) {
    const uint32_t seeded[2] = {r->bytes, segment};
    const uint32_t crc = crc32c_extend(0, seeded, sizeof seeded);
    return crc32c_extend(crc, &r->kind, r->bytes - offsetof(struct record, kind)) == r->crc;
}

/* What can be said of a run, and of the record that begins it, from their lengths alone. */
static bool lengths_fit(const struct run *run, const struct record *r) {
    return r->bytes >= sizeof *r + r->attribute_bytes && record_stride(r) <= run->bytes;
}

static bool is_wanted(const struct decoder *d, const struct record *r) {
    const bool last_ends_run = d->run.records != 1 || record_stride(r) == d->run.bytes;
    const bool message = r->kind == RECORD_PUBLISH || r->kind == RECORD_MOVED;
    return message && last_ends_run && r->seq >= d->next_seq && r->seq < d->end_seq;
}

static void note_gap(struct decoder *d, uint64_t until) {
    const uint64_t from = d->next_seq > d->gaps_from ? d->next_seq : d->gaps_from;
    if (from >= until) return;
    if (d->gap_from == d->gap_until) {
        d->gap_from = from;
        d->gap_until = until;
    }
    d->missing += until - from;
}

/* Milliseconds, with as many decimals as it takes. */
static uint8_t *put_ms(uint8_t *out, uint64_t ns) {
    uint8_t *end = decimal_put(out, ns / MS_NS);
    uint32_t rest = (uint32_t)(ns % MS_NS);
    if (rest == 0) return end;
    *end++ = '.';
    for (uint32_t unit = MS_NS / 10; rest > 0; rest %= unit, unit /= 10) *end++ = (uint8_t)('0' + rest / unit);
    return end;
}

static void render_entry(struct rendered *r, uint8_t *names, const char *name, size_t name_bytes,
                         const uint8_t *value_end) {
    memcpy(names + r->name_bytes, name, name_bytes);
    r->name_bytes += (uint32_t)name_bytes;
    r->value_bytes = (uint32_t)(value_end - r->values);
    r->name_ends[r->entries] = (int32_t)r->name_bytes;
    r->value_ends[r->entries] = (int32_t)r->value_bytes;
    r->entries++;
}

static void render(struct rendered *out, const struct record *of, uint8_t *names, uint8_t *values) {
    const struct publish_attributes a = publish_attributes_of(of);
    *out = (struct rendered){.of = of, .names = names, .values = values};
    render_entry(out, names, "pri", 3, decimal_put(values, a.pri));
    render_entry(out, names, "ttr_ms", 6, put_ms(values + out->value_bytes, a.ttr_ns));
    if (a.delay_ns > 0) render_entry(out, names, "delay_ms", 8, put_ms(values + out->value_bytes, a.delay_ns));
}

static bool same_attributes(const struct record *a, const struct record *b) {
    return a && a->attribute_bytes == b->attribute_bytes &&
           memcmp(record_attributes(a), record_attributes(b), b->attribute_bytes) == 0;
}

static void put_attributes(struct decode_columns *out, const struct record *r, struct rendered *last) {
    const int32_t entry = out->attribute_offsets[out->count];
    const int32_t name = out->name_offsets[entry];
    const int32_t value = out->value_offsets[entry];
    if (same_attributes(last->of, r)) {
        memcpy(out->names + name, last->names, last->name_bytes);
        memcpy(out->values + value, last->values, last->value_bytes);
    } else {
        render(last, r, out->names + name, out->values + value);
    }
    for (uint32_t i = 0; i < last->entries; i++) {
        out->name_offsets[entry + 1 + (int32_t)i] = name + last->name_ends[i];
        out->value_offsets[entry + 1 + (int32_t)i] = value + last->value_ends[i];
    }
    out->attribute_offsets[out->count + 1] = entry + (int32_t)last->entries;
}

static void put_message(struct decode_columns *out, const struct record *r, struct rendered *last) {
    const size_t i = out->count;
    if (out->seq) out->seq[i] = (int64_t)r->seq;
    if (out->time_us) out->time_us[i] = (int64_t)(r->time_ns / US_NS);
    if (out->ids) hex_put(out->ids + i * DECODE_ID_BYTES, r->id);
    if (out->bodies) {
        const size_t bytes = record_body_bytes(r);
        memcpy(out->bodies + out->body_bytes, record_body(r), bytes);
        out->body_bytes += bytes;
        out->body_offsets[i + 1] = (int32_t)out->body_bytes;
    }
    if (out->attribute_offsets) put_attributes(out, r, last);
    out->count++;
}

static bool has_room(const struct decode_columns *out, const struct record *r) {
    if (out->count == out->capacity) return false;
    return !out->bodies || record_body_bytes(r) <= out->body_capacity - out->body_bytes;
}

enum decode_result decode_runs(struct decoder *d, const void *input, size_t bytes, size_t *used,
                               struct decode_columns *out) {
    const uint8_t *at = input;
    const uint8_t *const end = at + bytes;
    struct rendered last = {0};
    enum decode_result result = DECODE_MORE;
    assert((uintptr_t)input % 8 == 0);
    for (;;) {
        const size_t left = (size_t)(end - at);
        if (d->run.records == 0) {
            d->needs = sizeof d->run;
            if (d->run.bytes > 0) result = DECODE_MISPLACED;
            if (d->run.bytes > 0 || left < sizeof d->run) break;
            memcpy(&d->run, at, sizeof d->run);
            at += sizeof d->run;
            continue;
        }
        const struct record *r = (const struct record *)at;
        d->needs = sizeof *r;
        if (left < sizeof *r) break;
        if (!lengths_fit(&d->run, r)) {
            result = DECODE_CORRUPT;
            break;
        }
        d->needs = record_stride(r);
        if (left < d->needs) break;
        if (!has_room(out, r)) {
            d->needs = record_body_bytes(r);
            result = DECODE_FULL;
            break;
        }
        if (!is_whole(r, d->run.segment)) {
            result = DECODE_CORRUPT;
            break;
        }
        if (!is_wanted(d, r)) {
            result = DECODE_MISPLACED;
            break;
        }
        note_gap(d, r->seq);
        put_message(out, r, &last);
        d->next_seq = r->seq + 1;
        d->run.records--;
        d->run.bytes -= record_stride(r);
        at += record_stride(r);
    }
    *used = (size_t)(at - (const uint8_t *)input);
    return result;
}
