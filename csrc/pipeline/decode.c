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

/* --- headers ------------------------------------------------------------------------------------------------------ */

/* Beyond, they are given as one attribute, as are those that cannot be told apart or are no text. */
enum { HEADERS_MOST = 64 };

struct text {
    const uint8_t *at;
    size_t bytes;
};

struct entries {
    struct text name[HEADERS_MOST], value[HEADERS_MOST];
    uint32_t count;
};

static bool is_text(struct text t) {
    const uint8_t *at = t.at, *const end = at + t.bytes;
    while (at < end) {
        const uint8_t lead = *at++;
        const uint32_t more = lead < 0x80 ? 0u : lead >= 0xc2 && lead < 0xe0 ? 1u : (lead & 0xf0) == 0xe0 ? 2u : 3u;
        if ((more == 3 && (lead < 0xf0 || lead > 0xf4)) || (size_t)(end - at) < more) return false;
        if (more == 2 && ((lead == 0xe0 && *at < 0xa0) || (lead == 0xed && *at > 0x9f))) return false;
        if (more == 3 && ((lead == 0xf0 && *at < 0x90) || (lead == 0xf4 && *at > 0x8f))) return false;
        for (uint32_t i = 0; i < more; i++)
            if ((*at++ & 0xc0) != 0x80) return false;
    }
    return true;
}

static bool is_named(struct text name, const char *word) {
    return name.bytes == strlen(word) && memcmp(name.at, word, name.bytes) == 0;
}

/* False: it cannot be an attribute. One whose name has come before is left out, as a map has each name once. */
static bool add_entry(struct entries *e, struct text name, struct text value) {
    if (!is_text(name) || !is_text(value)) return false;
    if (is_named(name, "pri") || is_named(name, "ttr_ms") || is_named(name, "delay_ms")) return true;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->name[i].bytes == name.bytes && memcmp(e->name[i].at, name.at, name.bytes) == 0) return true;
    if (e->count == HEADERS_MOST) return false;
    e->name[e->count] = name;
    e->value[e->count++] = value;
    return true;
}

static struct text trimmed(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return (struct text){at, (size_t)(end - at)};
}

/* A line that says the version, then lines of `name: value`, each ended by CR LF, and an empty one. */
static bool split_nats(const uint8_t *at, size_t bytes, struct entries *out) {
    const uint8_t *const end = at + bytes;
    bool first = true;
    while (at < end) {
        const uint8_t *const stop = memchr(at, '\r', (size_t)(end - at));
        if (!stop || end - stop < 2 || stop[1] != '\n') return false;
        if (!first && stop > at) {
            const uint8_t *const colon = memchr(at, ':', (size_t)(stop - at));
            if (!colon || colon == at) return false;
            const struct text name = {at, (size_t)(colon - at)};
            if (!add_entry(out, name, trimmed(colon + 1, stop))) return false;
        }
        first = false;
        at = stop + 2;
    }
    return !first;
}

/* For each the bytes of its name and of its value, 32 bits each, and then those. */
static bool split_spark(const uint8_t *at, size_t bytes, struct entries *out) {
    uint32_t sizes[2];
    while (bytes > 0) {
        if (bytes < sizeof sizes) return false;
        memcpy(sizes, at, sizeof sizes);
        at += sizeof sizes;
        bytes -= sizeof sizes;
        if (sizes[0] == 0 || sizes[0] > bytes || sizes[1] > bytes - sizes[0]) return false;
        if (!add_entry(out, (struct text){at, sizes[0]}, (struct text){at + sizes[0], sizes[1]})) return false;
        at += sizes[0] + sizes[1];
        bytes -= sizes[0] + sizes[1];
    }
    return true;
}

static bool split_headers(uint16_t tag, const uint8_t *at, size_t bytes, struct entries *out) {
    out->count = 0;
    if (tag == HEADERS_NATS) return split_nats(at, bytes, out);
    return tag == HEADERS_SPARK && split_spark(at, bytes, out);
}

static const char opaque_name[] = "headers.";

/* The most that an entry takes beside the bytes of the headers, when they are one: its name, and two digits a byte. */
enum { OPAQUE_NAME_BYTES = sizeof opaque_name - 1 + 5 };

static uint8_t *put_hex(uint8_t *out, const uint8_t *at, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        *out++ = (uint8_t)digits[at[i] >> 4];
        *out++ = (uint8_t)digits[at[i] & 15];
    }
    return out;
}

static void put_entry(struct decode_columns *out, struct text name, struct text value) {
    const int32_t entry = out->attribute_offsets[out->count + 1]++;
    const int32_t names = out->name_offsets[entry], values = out->value_offsets[entry];
    memcpy(out->names + names, name.at, name.bytes);
    if (value.bytes) memcpy(out->values + values, value.at, value.bytes);
    out->name_offsets[entry + 1] = names + (int32_t)name.bytes;
    out->value_offsets[entry + 1] = values + (int32_t)value.bytes;
}

static void put_opaque(struct decode_columns *out, uint16_t tag, const uint8_t *at, size_t bytes) {
    uint8_t name[OPAQUE_NAME_BYTES];
    memcpy(name, opaque_name, sizeof opaque_name - 1);
    const uint8_t *const end = decimal_put(name + sizeof opaque_name - 1, tag);
    const int32_t entry = out->attribute_offsets[out->count + 1];
    const int32_t values = out->value_offsets[entry];
    uint8_t *const stop = put_hex(out->values + values, at, bytes);
    put_entry(out, (struct text){name, (size_t)(end - name)}, (struct text){0});
    out->value_offsets[entry + 1] = (int32_t)(stop - out->values);
}

/* Behind the other attributes of the message that is being put. */
static void put_headers(struct decode_columns *out, const struct record *r) {
    struct entries entries;
    struct headers h;
    const uint8_t *const at = (const uint8_t *)record_body(r) + sizeof h;
    memcpy(&h, record_body(r), sizeof h);
    if (!split_headers(h.tag, at, h.bytes, &entries)) {
        put_opaque(out, h.tag, at, h.bytes);
        return;
    }
    for (uint32_t i = 0; i < entries.count; i++) put_entry(out, entries.name[i], entries.value[i]);
}

/* Each message that may come has its share without headers; what is left beyond that is for them. */
static bool headers_have_room(const struct decode_columns *out, const struct record *r) {
    const size_t bytes = message_headers_bytes(r), left = out->capacity - out->count, all = out->capacity;
    const size_t entries = (size_t)out->attribute_offsets[out->count];
    const size_t names = (size_t)out->name_offsets[entries], values = (size_t)out->value_offsets[entries];
    return entries + left * DECODE_MAX_ATTRIBUTES + HEADERS_MOST <=
               all * DECODE_MAX_ATTRIBUTES + DECODE_HEADERS_ENTRIES &&
           names + left * DECODE_ATTRIBUTE_NAME_BYTES + OPAQUE_NAME_BYTES + bytes <=
               all * DECODE_ATTRIBUTE_NAME_BYTES + DECODE_HEADERS_NAME_BYTES &&
           values + left * DECODE_ATTRIBUTE_VALUE_BYTES + 2 * bytes <=
               all * DECODE_ATTRIBUTE_VALUE_BYTES + DECODE_HEADERS_VALUE_BYTES;
}

/* --- a message ---------------------------------------------------------------------------------------------------- */

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
    if (out->ids) {
        uint8_t *id = out->ids + i * DECODE_ID_BYTES;
        memcpy(id, out->id_prefix, DECODE_ID_PREFIX_BYTES);
        hex_put(id + DECODE_ID_PREFIX_BYTES, r->id);
    }
    if (out->bodies) {
        const size_t before = message_headers_bytes(r), bytes = record_body_bytes(r) - before;
        memcpy(out->bodies + out->body_bytes, (const uint8_t *)record_body(r) + before, bytes);
        out->body_bytes += bytes;
        out->body_offsets[i + 1] = (int32_t)out->body_bytes;
    }
    if (out->attribute_offsets) put_attributes(out, r, last);
    if (out->attribute_offsets && message_headers_bytes(r)) put_headers(out, r);
    out->count++;
}

static bool has_room(const struct decode_columns *out, const struct record *r) {
    if (out->count == out->capacity) return false;
    if (out->attribute_offsets && message_headers_bytes(r) && !headers_have_room(out, r)) return false;
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
