/* See entries.h. */
#include "formats/entries.h"

#include <string.h>

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

static bool is_every_messages(struct text name) {
    return is_named(name, "pri") || is_named(name, "ttr_ms") || is_named(name, "delay_ms");
}

/* The entry with that name among those from `from` up to `until`. */
static struct entry *find(struct entries *e, struct text name, uint32_t from, uint32_t until) {
    for (struct entry *one = e->all + from; one < e->all + until; one++)
        if (one->name.bytes == name.bytes && memcmp(one->name.at, name.at, name.bytes) == 0) return one;
    return NULL;
}

/* False: the entry cannot be made an attribute. */
static bool append(struct entries *e, struct entry one) {
    if (e->count == HEADERS_MOST || !is_text(one.name) || !is_text(one.value)) return false;
    e->name_bytes += one.name.bytes + (one.prefixed ? sizeof ENTRY_PREFIX - 1 : 0);
    e->value_bytes += one.value.bytes;
    e->all[e->count++] = one;
    return true;
}

static bool replace(struct entries *e, struct entry *before, struct text value) {
    if (!is_text(value)) return false;
    e->value_bytes = e->value_bytes - before->value.bytes + value.bytes;
    before->value = value;
    return true;
}

/* An entry whose name is already there is left out: the result is a map, which has each name once. */
static bool add(struct entries *e, struct text name, struct text value) {
    if (!is_text(name) || !is_text(value)) return false;
    if (is_every_messages(name) || find(e, name, 0, e->count) != NULL) return true;
    return append(e, (struct entry){name, value, false});
}

static void clear(struct entries *e) {
    e->count = 0;
    e->name_bytes = e->value_bytes = 0;
}

/* --- NATS --------------------------------------------------------------------------------------------------------- */

static struct text trimmed(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return (struct text){at, (size_t)(end - at)};
}

/* NATS: a version line, then `name: value` lines, then an empty line, each ended by CR LF. */
bool entries_of_nats(const uint8_t *at, size_t bytes, struct entries *out) {
    const uint8_t *const end = at + bytes;
    bool first = true;
    clear(out);
    while (at < end) {
        const uint8_t *const stop = memchr(at, '\r', (size_t)(end - at));
        if (!stop || end - stop < 2 || stop[1] != '\n') return false;
        if (!first && stop > at) {
            const uint8_t *const colon = memchr(at, ':', (size_t)(stop - at));
            if (!colon || colon == at) return false;
            const struct text name = {at, (size_t)(colon - at)};
            if (!add(out, name, trimmed(colon + 1, stop))) return false;
        }
        first = false;
        at = stop + 2;
    }
    return !first;
}

/* --- Spark -------------------------------------------------------------------------------------------------------- */

/* Spark: for each entry the lengths of its name and value, 32 bits each, then the name and the value. */
bool entries_of_spark(const uint8_t *at, size_t bytes, struct entries *out) {
    uint32_t sizes[2];
    clear(out);
    while (bytes > 0) {
        if (bytes < sizeof sizes) return false;
        memcpy(sizes, at, sizeof sizes);
        at += sizeof sizes;
        bytes -= sizeof sizes;
        if (sizes[0] == 0 || sizes[0] > bytes || sizes[1] > bytes - sizes[0]) return false;
        if (!add(out, (struct text){at, sizes[0]}, (struct text){at + sizes[0], sizes[1]})) return false;
        at += sizes[0] + sizes[1];
        bytes -= sizes[0] + sizes[1];
    }
    return true;
}

/* --- Pulsar ------------------------------------------------------------------------------------------------------- */

/* The attribute that a field of Pulsar's metadata becomes; NULL: it becomes none. */
static const char *name_of(uint32_t tag, enum pulsar_level level) {
    static const struct {
        uint32_t tags[2]; /* at each level */
        const char *name;
    } named[] = {
        {{PULSAR_TAG(6, PULSAR_BYTES), PULSAR_TAG(2, PULSAR_BYTES)}, "key"},
        {{PULSAR_TAG(12, PULSAR_VARINT), PULSAR_TAG(5, PULSAR_VARINT)}, "event_time_ms"},
        {{PULSAR_TAG(17, PULSAR_VARINT), PULSAR_TAG(6, PULSAR_VARINT)}, "key_encoding"},
        {{PULSAR_TAG(18, PULSAR_BYTES), PULSAR_TAG(7, PULSAR_BYTES)}, "ordering_key"},
        {{PULSAR_TAG(25, PULSAR_VARINT), PULSAR_TAG(9, PULSAR_VARINT)}, "null_value"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].tags[level] == tag) return named[i].name;
    return NULL;
}

static struct text literal(const char *word) {
    return (struct text){(const uint8_t *)word, strlen(word)};
}

static struct text text_of(struct pulsar_bytes bytes) {
    return (struct text){bytes.at, pulsar_length(bytes)};
}

/* Adds a field that becomes an attribute and has a value. When a field is repeated the last value counts. */
static bool add_field(struct entries *e, const char *name, const struct pulsar_field *field) {
    const bool is_bytes = (field->tag & 7) == PULSAR_BYTES, is_time = strcmp(name, "event_time_ms") == 0;
    struct text value = is_bytes ? text_of(field->bytes) : literal(strcmp(name, "key_encoding") ? "true" : "base64");
    struct entry *before = find(e, literal(name), 0, e->count);
    if (!is_bytes && field->number == 0) return true;
    if (is_time) value = (struct text){e->number, (size_t)(decimal_put(e->number, field->number) - e->number)};
    if (before == NULL) return append(e, (struct entry){literal(name), value, false});
    return replace(e, before, value);
}

/* Adds a KeyValue that has both halves. When a key is repeated the last value counts, as in a client's map. */
static bool add_property(struct entries *e, uint32_t ours, struct pulsar_bytes pair) {
    struct pulsar_field field;
    struct entry one = {.name = {.at = NULL}};
    while (pulsar_next(&pair, &field)) {
        if (field.tag == PULSAR_TAG(1, PULSAR_BYTES)) one.name = text_of(field.bytes);
        if (field.tag == PULSAR_TAG(2, PULSAR_BYTES)) one.value = text_of(field.bytes);
    }
    if (!pulsar_is_done(pair) || one.name.at == NULL || one.value.at == NULL) return false;
    one.prefixed = is_every_messages(one.name) || find(e, one.name, 0, ours) != NULL;
    struct entry *before = find(e, one.name, ours, e->count);
    return before != NULL ? replace(e, before, one.value) : append(e, one);
}

bool entries_of_pulsar(struct pulsar_bytes metadata, enum pulsar_level level, struct entries *out) {
    const uint32_t property = level == PULSAR_ENTRY ? PULSAR_TAG(4, PULSAR_BYTES) : PULSAR_TAG(1, PULSAR_BYTES);
    struct pulsar_field field;
    bool all = true;
    clear(out);
    for (struct pulsar_bytes rest = metadata; pulsar_next(&rest, &field);) {
        const char *name = name_of(field.tag, level);
        if (name != NULL) all &= add_field(out, name, &field);
    }
    const uint32_t ours = out->count;
    for (struct pulsar_bytes rest = metadata; pulsar_next(&rest, &field);)
        if (field.tag == property) all &= add_property(out, ours, field.bytes);
    return all;
}
