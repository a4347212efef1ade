#include "acceptor/protocols/pulsar/pulsar_scan.h"

/* --- commands ----------------------------------------------------------------------------------------------------- */

bool pulsar_scan_command(struct pulsar_bytes bytes, struct pulsar_command *out) {
    struct pulsar_bytes rest = bytes;
    struct pulsar_field field;
    out->type = 0;
    out->body = (struct pulsar_bytes){0};
    /* Of several types the last counts. */
    while (pulsar_next(&rest, &field)) {
        if (field.tag == PULSAR_TAG(1, PULSAR_VARINT) && field.number < PULSAR_TYPES) {
            out->type = (uint32_t)field.number;
            out->body = (struct pulsar_bytes){0};
        } else if (field.tag == PULSAR_TAG(out->type, PULSAR_BYTES)) {
            out->body = field.bytes;
        }
    }
    if (out->type == 0) return false;
    /* The type usually comes first, but it may be anywhere. */
    if (out->body.at == NULL)
        for (rest = bytes; pulsar_next(&rest, &field);)
            if (field.tag == PULSAR_TAG(out->type, PULSAR_BYTES)) out->body = field.bytes;
    return pulsar_is_done(rest);
}

bool pulsar_scan_send(struct pulsar_bytes bytes, struct pulsar_send *out) {
    struct pulsar_field field;
    uint32_t seen = 0;
    *out = (struct pulsar_send){0};
    while (pulsar_next(&bytes, &field)) {
        switch (field.tag) {
        case PULSAR_TAG(1, PULSAR_VARINT): out->producer = field.number, seen |= 1; break;
        case PULSAR_TAG(2, PULSAR_VARINT): out->sequence = field.number, seen |= 2; break;
        case PULSAR_TAG(4, PULSAR_VARINT): out->txn_least = field.number, seen |= 4; break;
        case PULSAR_TAG(5, PULSAR_VARINT): out->txn_most = field.number, seen |= 8; break;
        case PULSAR_TAG(6, PULSAR_VARINT): out->highest = field.number, out->has_highest = true; break;
        case PULSAR_TAG(7, PULSAR_VARINT): out->is_chunk = field.number != 0; break;
        case PULSAR_TAG(8, PULSAR_VARINT): out->is_marker = field.number != 0; break;
        default: break;
        }
    }
    out->has_txn = seen >> 2 == 3;
    return pulsar_is_done(bytes) && (seen & 3) == 3;
}

bool pulsar_scan_flow(struct pulsar_bytes bytes, struct pulsar_flow *out) {
    struct pulsar_field field;
    uint32_t seen = 0;
    while (pulsar_next(&bytes, &field)) {
        if (field.tag == PULSAR_TAG(1, PULSAR_VARINT)) out->consumer = field.number, seen |= 1;
        if (field.tag == PULSAR_TAG(2, PULSAR_VARINT)) out->permits = (uint32_t)field.number, seen |= 2;
    }
    return pulsar_is_done(bytes) && seen == 3;
}

bool pulsar_scan_close(struct pulsar_bytes bytes, uint64_t *producer) {
    struct pulsar_field field;
    bool seen = false;
    while (pulsar_next(&bytes, &field))
        if (field.tag == PULSAR_TAG(1, PULSAR_VARINT)) *producer = field.number, seen = true;
    return pulsar_is_done(bytes) && seen;
}

/* Adds the words of an ack set, which may be packed or not. */
static bool add_words(struct pulsar_id *id, const struct pulsar_field *field) {
    struct pulsar_bytes rest = field->bytes;
    uint64_t word = field->number;
    bool packed = (field->tag & 7) == PULSAR_BYTES;
    while (!packed || !pulsar_is_done(rest)) {
        if (packed && !pulsar_get_varint(&rest, &word)) return false;
        if (id->words < PULSAR_ACK_WORDS) id->set[id->words] = word;
        if (id->words <= PULSAR_ACK_WORDS) id->words++;
        if (!packed) break;
    }
    return true;
}

bool pulsar_scan_id(struct pulsar_bytes bytes, struct pulsar_id *out) {
    struct pulsar_field field;
    uint32_t seen = 0;
    out->words = 0;
    while (pulsar_next(&bytes, &field)) {
        switch (field.tag) {
        case PULSAR_TAG(1, PULSAR_VARINT): out->ledger = field.number, seen |= 1; break;
        case PULSAR_TAG(2, PULSAR_VARINT): out->entry = field.number, seen |= 2; break;
        case PULSAR_TAG(5, PULSAR_VARINT):
        case PULSAR_TAG(5, PULSAR_BYTES):
            if (!add_words(out, &field)) return false;
            break;
        default: break;
        }
    }
    return pulsar_is_done(bytes) && seen == 3;
}

bool pulsar_next_id(struct pulsar_ids *ids, struct pulsar_id *out) {
    struct pulsar_field field;
    while (pulsar_next(&ids->rest, &field))
        if (field.tag == ids->tag) return pulsar_scan_id(field.bytes, out);
    return false;
}

/* Whether all ids are valid: checked before any of them is acted on. */
static bool ids_are_whole(struct pulsar_ids ids) {
    struct pulsar_id id;
    for (uint32_t i = 0; i < ids.count; i++)
        if (!pulsar_next_id(&ids, &id)) return false;
    return true;
}

bool pulsar_scan_ack(struct pulsar_bytes bytes, struct pulsar_ids *out) {
    struct pulsar_field field;
    uint32_t seen = 0;
    *out = (struct pulsar_ids){.rest = bytes, .tag = PULSAR_TAG(3, PULSAR_BYTES)};
    while (pulsar_next(&bytes, &field)) {
        switch (field.tag) {
        case PULSAR_TAG(1, PULSAR_VARINT): out->consumer = field.number, seen |= 1; break;
        case PULSAR_TAG(2, PULSAR_VARINT):
            if (field.number > 1) break; /* what an enumeration does not have counts as missing */
            out->cumulative = field.number == 1, seen |= 2;
            break;
        case PULSAR_TAG(3, PULSAR_BYTES): out->count++; break;
        case PULSAR_TAG(6, PULSAR_VARINT): out->txn_least = field.number, seen |= 4; break;
        case PULSAR_TAG(7, PULSAR_VARINT): out->txn_most = field.number, seen |= 8; break;
        case PULSAR_TAG(8, PULSAR_VARINT): out->request = field.number, out->has_request = true; break;
        default: break;
        }
    }
    out->has_txn = seen >> 2 == 3;
    return pulsar_is_done(bytes) && (seen & 3) == 3 && ids_are_whole(*out);
}

bool pulsar_scan_redeliver(struct pulsar_bytes bytes, struct pulsar_ids *out) {
    struct pulsar_field field;
    bool seen = false;
    *out = (struct pulsar_ids){.rest = bytes, .tag = PULSAR_TAG(2, PULSAR_BYTES)};
    while (pulsar_next(&bytes, &field)) {
        switch (field.tag) {
        case PULSAR_TAG(1, PULSAR_VARINT): out->consumer = field.number, seen = true; break;
        case PULSAR_TAG(2, PULSAR_BYTES): out->count++; break;
        case PULSAR_TAG(3, PULSAR_VARINT): out->epoch = field.number, out->has_epoch = true; break;
        default: break;
        }
    }
    return pulsar_is_done(bytes) && seen && ids_are_whole(*out);
}

/* --- the hash of a key -------------------------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t value, int by) {
    return value << by | value >> (32 - by);
}

static uint32_t mix(uint32_t hash, uint32_t word) {
    return hash ^ rotate(word * 0xcc9e2d51u, 15) * 0x1b873593u;
}

/* Murmur3 of bytes that come in pieces. */
struct murmur {
    uint32_t hash, word;
    size_t bytes;
};

static void murmur_add(struct murmur *m, const uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        m->word |= (uint32_t)data[i] << (8 * (m->bytes++ & 3));
        if ((m->bytes & 3) != 0) continue;
        m->hash = rotate(mix(m->hash, m->word), 13) * 5 + 0xe6546b64u;
        m->word = 0;
    }
}

static uint32_t murmur_end(const struct murmur *m) {
    uint32_t hash = (m->bytes & 3) != 0 ? mix(m->hash, m->word) : m->hash;
    hash ^= (uint32_t)m->bytes;
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

uint32_t pulsar_murmur(const uint8_t *data, size_t bytes) {
    struct murmur m = {0};
    murmur_add(&m, data, bytes);
    return murmur_end(&m);
}

static int base64_value(uint8_t c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Adds the bytes that the text encodes, up to the first character that is not base64. */
static void murmur_add_base64(struct murmur *m, struct pulsar_bytes text) {
    uint32_t bits = 0, count = 0;
    for (int value; text.at < text.end && (value = base64_value(*text.at)) >= 0; text.at++) {
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        uint8_t byte = (uint8_t)(bits >> count);
        murmur_add(m, &byte, 1);
    }
}

static void murmur_add_decimal(struct murmur *m, uint64_t number) {
    uint8_t digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (uint8_t)('0' + number % 10);
    while ((number /= 10) > 0);
    murmur_add(m, digits + at, sizeof digits - at);
}

uint32_t pulsar_key_hash(const struct pulsar_metadata *metadata) {
    enum { SLOTS = 65536 };
    struct murmur m = {0};
    if (metadata->ordering_key.at != NULL) {
        murmur_add(&m, metadata->ordering_key.at, pulsar_length(metadata->ordering_key));
    } else if (metadata->partition_key.at != NULL && metadata->key_is_base64) {
        murmur_add_base64(&m, metadata->partition_key);
    } else if (metadata->partition_key.at != NULL) {
        murmur_add(&m, metadata->partition_key.at, pulsar_length(metadata->partition_key));
    } else {
        murmur_add(&m, metadata->producer.at, pulsar_length(metadata->producer));
        murmur_add(&m, (const uint8_t *)"-", 1);
        murmur_add_decimal(&m, metadata->sequence);
    }
    uint32_t hash = murmur_end(&m) & INT32_MAX;
    return hash % SLOTS != 0 ? hash : hash + 1;
}
