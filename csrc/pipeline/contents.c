/* See contents.h. */
#include "pipeline/contents.h"

#include <stdbool.h>
#include <string.h>

#include "formats/entries.h"
#include "log/records.h"

static const char version[] = "NATS/1.0\r\n";
enum { VERSION_BYTES = sizeof version - 1, END_BYTES = 2 };
_Static_assert(CONTENTS_ROW_BYTES == sizeof(struct headers) + VERSION_BYTES + END_BYTES, "of a row without entries");

struct pair {
    struct text name, value;
};

struct pairs {
    struct pair all[HEADERS_MOST];
    uint32_t count;
    bool for_nats;
};

static bool text_at(const int32_t *offsets, size_t i, const uint8_t *data, size_t bytes, struct text *out) {
    const int32_t from = offsets[i], until = offsets[i + 1];
    if (from < 0 || until < from || (size_t)until > bytes) return false;
    *out = (struct text){data + from, (size_t)(until - from)};
    return true;
}

static bool is_named(struct text name, const char *word) {
    return name.bytes == strlen(word) && memcmp(name.at, word, name.bytes) == 0;
}

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t';
}

static bool is_nats(const struct pair *one) {
    const struct text name = one->name, value = one->value;
    for (size_t i = 0; i < name.bytes; i++)
        if (name.at[i] <= ' ' || name.at[i] > '~' || name.at[i] == ':') return false;
    for (size_t i = 0; i < value.bytes; i++)
        if (value.at[i] == '\r' || value.at[i] == '\n' || value.at[i] == 0) return false;
    return value.bytes == 0 || (!is_blank(value.at[0]) && !is_blank(value.at[value.bytes - 1]));
}

static int64_t pairs_of(const struct encode_attributes *a, size_t row, struct pairs *out) {
    const int32_t begin = a->begins[row], end = a->ends[row];
    out->count = 0;
    out->for_nats = true;
    if (begin < 0 || end < begin || (size_t)end > a->entries) return CONTENTS_UNSOUND;
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        struct pair one;
        if (!text_at(a->name_offsets, i, a->names, a->name_bytes, &one.name) ||
            !text_at(a->value_offsets, i, a->values, a->value_bytes, &one.value))
            return CONTENTS_UNSOUND;
        if (is_named(one.name, "pri") || is_named(one.name, "ttr_ms") || is_named(one.name, "delay_ms")) continue;
        if (one.name.bytes == 0) return CONTENTS_NAMELESS;
        if (out->count == HEADERS_MOST) return CONTENTS_TOO_MANY;
        out->for_nats = out->for_nats && is_nats(&one);
        out->all[out->count++] = one;
    }
    return 0;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t count) {
    if (count > 0) memcpy(at, bytes, count);
    return at + count;
}

static uint8_t *put_nats(uint8_t *at, const struct pairs *pairs) {
    at = put(at, version, VERSION_BYTES);
    for (uint32_t i = 0; i < pairs->count; i++) {
        at = put(at, pairs->all[i].name.at, pairs->all[i].name.bytes);
        at = put(at, ": ", 2);
        at = put(at, pairs->all[i].value.at, pairs->all[i].value.bytes);
        at = put(at, "\r\n", 2);
    }
    return put(at, "\r\n", END_BYTES);
}

static uint8_t *put_spark(uint8_t *at, const struct pairs *pairs) {
    for (uint32_t i = 0; i < pairs->count; i++) {
        const struct pair *one = &pairs->all[i];
        const uint32_t sizes[2] = {(uint32_t)one->name.bytes, (uint32_t)one->value.bytes};
        at = put(put(put(at, sizes, sizeof sizes), one->name.at, one->name.bytes), one->value.at, one->value.bytes);
    }
    return at;
}

static size_t most_bytes(const struct pairs *pairs) {
    size_t bytes = CONTENTS_ROW_BYTES;
    for (uint32_t i = 0; i < pairs->count; i++)
        bytes += CONTENTS_ENTRY_BYTES + pairs->all[i].name.bytes + pairs->all[i].value.bytes;
    return bytes;
}

int64_t encode_contents(const struct encode_column *bodies, const struct encode_attributes *attributes,
                        int64_t *offsets, uint8_t *out, size_t room, size_t *row) {
    uint8_t *at = out;
    for (*row = 0; *row < bodies->rows; ++*row) {
        struct pairs pairs;
        const uint8_t *body;
        size_t body_bytes;
        const int64_t failed = pairs_of(attributes, *row, &pairs);
        if (failed != 0) return failed;
        if (!encode_find(bodies, *row, &body, &body_bytes)) return CONTENTS_UNSOUND;
        const size_t most = most_bytes(&pairs), left = room - (size_t)(at - out);
        if (most > HEADERS_MAX_BYTES) return CONTENTS_TOO_MANY;
        if (left < most || left - most < body_bytes) return CONTENTS_UNSOUND;
        struct headers head = {.tag = pairs.count && pairs.for_nats ? HEADERS_NATS : HEADERS_SPARK};
        if (attributes->key_hashes != NULL) head.key_hash = attributes->key_hashes[*row];
        uint8_t *const begin = at + sizeof head;
        uint8_t *const end = head.tag == HEADERS_NATS ? put_nats(begin, &pairs) : put_spark(begin, &pairs);
        head.bytes = (uint32_t)(end - begin);
        memcpy(at, &head, sizeof head);
        offsets[*row] = at - out;
        at = put(end, body, body_bytes);
    }
    offsets[bodies->rows] = at - out;
    return at - out;
}
