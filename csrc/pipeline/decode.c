/* See decode.h. Each record is checked and copied before the next is touched, while it is in the cache. */
#include "pipeline/decode.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hex.h"
#include "base/time_units.h"
#include "formats/entries.h"
#include "log/records.h"

/* Where the attributes of the previous message have been written. Those of the next message are mostly the same. */
struct rendered {
    const struct record *of;
    const uint8_t *names, *values;
    uint32_t name_bytes, value_bytes;
    uint32_t entries;
    int32_t name_ends[DECODE_MAX_ATTRIBUTES], value_ends[DECODE_MAX_ATTRIBUTES]; /* relative to `names` and `values` */
};

static bool is_whole(const struct record *r, uint32_t segment) {
    const uint32_t seeded[2] = {r->bytes, segment};
    const uint32_t crc = crc32c_extend(0, seeded, sizeof seeded);
    return crc32c_extend(crc, &r->kind, r->bytes - offsetof(struct record, kind)) == r->crc;
}

/* Whether the record's lengths agree with each other and with what is left of the run. */
static bool lengths_fit(const struct run *run, const struct record *r) {
    return r->bytes >= sizeof *r + r->attribute_bytes && record_stride(r) <= run->bytes;
}

static bool is_wanted(const struct decoder *d, const struct record *r) {
    const bool last_ends_run = d->run.records != 1 || record_stride(r) == d->run.bytes;
    const bool known = r->kind == RECORD_PUBLISH || r->kind == RECORD_MOVED || r->kind == RECORD_STAGED;
    return known && last_ends_run && r->seq >= d->next_seq && r->seq < d->end_seq;
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

/* Writes a time in milliseconds, with as many decimals as it needs. */
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

/* --- a row -------------------------------------------------------------------------------------------------------- */

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

static const char opaque_name[] = "headers.";

/* The longest name of the single attribute that holds headers which cannot be attributes themselves: with their tag.
 * Its value has two digits for each of their bytes. */
enum { OPAQUE_NAME_BYTES = sizeof opaque_name - 1 + 5 };

/* A row made of a record, or of one message of a batch. */
struct row {
    const uint8_t *body;
    size_t body_bytes;
    int32_t batch_index;       /* -1: it is in no batch */
    uint16_t tag;              /* of its headers: enum headers_tag; 0: it has none */
    struct text opaque;        /* headers that cannot be attributes; `at` is NULL if there are none */
    struct entries attributes; /* made of its headers */
};

static uint8_t *put_hex(uint8_t *out, struct text text) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < text.bytes; i++) {
        *out++ = (uint8_t)digits[text.at[i] >> 4];
        *out++ = (uint8_t)digits[text.at[i] & 15];
    }
    return out;
}

static uint8_t *put_bytes(uint8_t *out, const void *at, size_t bytes) {
    if (bytes) memcpy(out, at, bytes);
    return out + bytes;
}

static void put_entry(struct decode_columns *out, const struct entry *one) {
    const int32_t entry = out->attribute_offsets[out->count + 1]++;
    uint8_t *name = out->names + out->name_offsets[entry], *value = out->values + out->value_offsets[entry];
    name = put_bytes(name, ENTRY_PREFIX, one->prefixed ? sizeof ENTRY_PREFIX - 1 : 0);
    name = put_bytes(name, one->name.at, one->name.bytes);
    value = put_bytes(value, one->value.at, one->value.bytes);
    out->name_offsets[entry + 1] = (int32_t)(name - out->names);
    out->value_offsets[entry + 1] = (int32_t)(value - out->values);
}

static void put_opaque(struct decode_columns *out, uint16_t tag, struct text text) {
    const int32_t entry = out->attribute_offsets[out->count + 1]++;
    uint8_t *name = out->names + out->name_offsets[entry], *value = out->values + out->value_offsets[entry];
    name = decimal_put(put_bytes(name, opaque_name, sizeof opaque_name - 1), tag);
    out->name_offsets[entry + 1] = (int32_t)(name - out->names);
    out->value_offsets[entry + 1] = (int32_t)(put_hex(value, text) - out->values);
}

static void put_id(struct decode_columns *out, uint64_t id, int32_t batch_index) {
    const int32_t at = out->id_offsets[out->count];
    uint8_t *end = put_bytes(out->ids + at, out->id_prefix, DECODE_ID_PREFIX_BYTES);
    hex_put(end, id);
    end += DECODE_ID_BYTES - DECODE_ID_PREFIX_BYTES;
    if (batch_index >= 0) {
        *end++ = '.';
        end = decimal_put(end, (uint64_t)batch_index);
    }
    out->id_offsets[out->count + 1] = (int32_t)(end - out->ids);
}

static void put_row(struct decode_columns *out, const struct record *r, const struct row *row, struct rendered *last) {
    const size_t i = out->count;
    if (out->seq) out->seq[i] = (int64_t)r->seq;
    if (out->time_us) out->time_us[i] = (int64_t)(r->time_ns / US_NS);
    if (out->batch_index) out->batch_index[i] = row->batch_index;
    if (out->ids) put_id(out, r->id, row->batch_index);
    if (out->bodies) {
        put_bytes(out->bodies + out->body_bytes, row->body, row->body_bytes);
        out->body_bytes += row->body_bytes;
        out->body_offsets[i + 1] = (int32_t)out->body_bytes;
    }
    if (out->attribute_offsets) {
        put_attributes(out, r, last);
        for (uint32_t n = 0; row->tag && n < row->attributes.count; n++) put_entry(out, &row->attributes.all[n]);
        if (row->opaque.at) put_opaque(out, row->tag, row->opaque);
    }
    out->count++;
}

/* Each message still to come keeps the room it needs without headers; only what is left beyond that is for headers. */
static bool headers_have_room(const struct decode_columns *out, const struct row *row) {
    const size_t left = out->capacity - out->count, all = out->capacity;
    const size_t entries = (size_t)out->attribute_offsets[out->count];
    const size_t names = (size_t)out->name_offsets[entries], values = (size_t)out->value_offsets[entries];
    return entries + left * DECODE_MAX_ATTRIBUTES + row->attributes.count + 1 <=
               all * DECODE_MAX_ATTRIBUTES + DECODE_HEADERS_ENTRIES &&
           names + left * DECODE_ATTRIBUTE_NAME_BYTES + row->attributes.name_bytes + OPAQUE_NAME_BYTES <=
               all * DECODE_ATTRIBUTE_NAME_BYTES + DECODE_HEADERS_NAME_BYTES &&
           values + left * DECODE_ATTRIBUTE_VALUE_BYTES + row->attributes.value_bytes + 2 * row->opaque.bytes <=
               all * DECODE_ATTRIBUTE_VALUE_BYTES + DECODE_HEADERS_VALUE_BYTES;
}

static bool has_room(const struct decode_columns *out, const struct row *row) {
    if (out->count == out->capacity) return false;
    if (out->attribute_offsets && row->tag && !headers_have_room(out, row)) return false;
    return !out->bodies || row->body_bytes <= out->body_capacity - out->body_bytes;
}

/* --- a record as rows --------------------------------------------------------------------------------------------- */

static bool split_headers(const struct headers *h, const uint8_t *at, struct entries *out) {
    out->count = 0;
    if (h->tag == HEADERS_NATS) return entries_of_nats(at, h->bytes, out);
    return h->tag == HEADERS_SPARK && entries_of_spark(at, h->bytes, out);
}

/* Writes a record as one row. row->attributes has what could be made of its headers; if that is not all of them
 * (!are_entries), the headers also become a single opaque attribute. */
static enum decode_result put_whole(struct decoder *d, const struct record *r, struct row *row, bool are_entries,
                                    struct decode_columns *out, struct rendered *last) {
    const size_t before = message_headers_bytes(r);
    const uint8_t *const at = (const uint8_t *)record_body(r);
    if (before && !are_entries)
        row->opaque = (struct text){at + sizeof(struct headers), before - sizeof(struct headers)};
    d->needs = row->body_bytes;
    d->rows = 1;
    if (!has_room(out, row)) return DECODE_FULL;
    put_row(out, r, row, last);
    return DECODE_MORE;
}

/* The longest metadata that one message of a batch may have, so that it can become attributes. */
enum { SINGLE_MOST = HEADERS_MAX_BYTES };

/* Whether a batch consists of exactly that many messages. */
static bool is_sound(struct pulsar_bytes batch, uint32_t messages) {
    struct pulsar_single single;
    uint32_t count = 0;
    while (count < messages && pulsar_next_single(&batch, &single) && pulsar_length(single.metadata) <= SINGLE_MOST)
        count++;
    return count == messages && pulsar_is_done(batch);
}

static enum decode_result put_batch(struct decoder *d, const struct record *r, struct pulsar_bytes rest,
                                    uint32_t messages, struct row *row, struct decode_columns *out,
                                    struct rendered *last) {
    struct pulsar_single single;
    for (uint32_t part = 0; part < messages && pulsar_next_single(&rest, &single); part++) {
        if (part < d->next_part) continue;
        row->body = single.payload.at;
        row->body_bytes = pulsar_length(single.payload);
        row->batch_index = (int32_t)part;
        row->opaque = (struct text){0};
        if (out->attribute_offsets && !entries_of_pulsar(single.metadata, PULSAR_SINGLE, &row->attributes))
            row->opaque = (struct text){single.metadata.at, pulsar_length(single.metadata)};
        d->needs = row->body_bytes;
        d->rows = messages - part;
        if (!has_room(out, row)) return DECODE_FULL;
        put_row(out, r, row, last);
        d->next_part = part + 1;
    }
    return DECODE_MORE;
}

/* Writes a record of a Pulsar client. An encrypted message or a chunk of a larger one cannot be read here: it becomes a
 * row as it is, with its metadata. */
static enum decode_result put_pulsar(struct decoder *d, const struct record *r, struct row *row,
                                     struct decode_columns *out, struct rendered *last) {
    struct pulsar_metadata metadata;
    struct pulsar_entry entry;
    const uint8_t *const at = (const uint8_t *)record_body(r), *const end = at + record_body_bytes(r);
    pulsar_split_entry((struct pulsar_bytes){at + sizeof(struct headers), end}, &entry);
    if (!entry.is_whole || entry.payload.at != row->body || !pulsar_scan_metadata(entry.metadata, &metadata))
        return put_whole(d, r, row, false, out, last);
    bool opens = !metadata.is_encrypted && !metadata.is_chunk && !metadata.is_marker && metadata.messages <= INT32_MAX;
    if (opens && metadata.compression != 0 && !d->was_opened) {
        d->compression = metadata.compression;
        d->opened_size = metadata.uncompressed_bytes;
        d->packed_at = (uint64_t)(entry.payload.at - (const uint8_t *)r);
        d->packed_bytes = pulsar_length(entry.payload);
        return DECODE_PACKED;
    }
    struct pulsar_bytes payload = entry.payload;
    if (d->was_opened && d->opened) payload = (struct pulsar_bytes){d->opened, d->opened + d->opened_size};
    opens = opens && (!d->was_opened || d->opened);
    const bool is_batch = metadata.messages > 0;
    if (opens && is_batch && (d->next_part || is_sound(payload, metadata.messages)))
        return put_batch(d, r, payload, metadata.messages, row, out, last);
    const bool are_entries =
        !out->attribute_offsets || entries_of_pulsar(entry.metadata, PULSAR_ENTRY, &row->attributes);
    if (opens && !is_batch) {
        row->body = payload.at;
        row->body_bytes = pulsar_length(payload);
    }
    return put_whole(d, r, row, opens && !is_batch && are_entries, out, last);
}

static enum decode_result put_record(struct decoder *d, const struct record *r, struct decode_columns *out,
                                     struct rendered *last) {
    const size_t before = message_headers_bytes(r);
    struct headers h = {0};
    struct row row;
    row.body = (const uint8_t *)record_body(r) + before;
    row.body_bytes = record_body_bytes(r) - before;
    row.batch_index = -1;
    row.opaque = (struct text){0};
    row.attributes.count = 0;
    row.attributes.name_bytes = row.attributes.value_bytes = 0;
    if (before) memcpy(&h, record_body(r), sizeof h);
    row.tag = h.tag;
    if (d->within != r->seq + 1) {
        d->within = r->seq + 1;
        d->next_part = d->was_opened = 0;
        d->opened = NULL;
    }
    if (before && h.tag == HEADERS_PULSAR) return put_pulsar(d, r, &row, out, last);
    const uint8_t *const at = (const uint8_t *)record_body(r) + sizeof h;
    const bool are_entries = !before || !out->attribute_offsets || split_headers(&h, at, &row.attributes);
    if (!are_entries) row.attributes.count = 0;
    return put_whole(d, r, &row, are_entries, out, last);
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
        if (!is_whole(r, d->run.segment)) {
            result = DECODE_CORRUPT;
            break;
        }
        if (!is_wanted(d, r)) {
            result = DECODE_MISPLACED;
            break;
        }
        result = r->kind == RECORD_STAGED ? DECODE_MORE : put_record(d, r, out, &last);
        if (result == DECODE_PACKED) d->packed_at += (uint64_t)(at - (const uint8_t *)input);
        if (result != DECODE_MORE) break;
        note_gap(d, r->seq);
        d->within = 0;
        d->next_seq = r->seq + 1;
        d->run.records--;
        d->run.bytes -= record_stride(r);
        at += record_stride(r);
    }
    *used = (size_t)(at - (const uint8_t *)input);
    return result;
}
