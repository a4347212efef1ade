#include "formats/pulsar_entry.h"

/* --- protobuf ------------------------------------------------------------------------------------------------------
 * */

bool pulsar_get_varint(struct pulsar_bytes *rest, uint64_t *out) {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && rest->at < rest->end; shift += 7) {
        uint8_t byte = *rest->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Most varints have one byte. */
static inline bool get_varint(struct pulsar_bytes *rest, uint64_t *out) {
    if (rest->at == rest->end || *rest->at >= 0x80) return pulsar_get_varint(rest, out);
    *out = *rest->at++;
    return true;
}

static inline bool get_fixed(struct pulsar_bytes *rest, size_t bytes, struct pulsar_bytes *out) {
    if (pulsar_length(*rest) < bytes) return false;
    *out = (struct pulsar_bytes){rest->at, rest->at + bytes};
    rest->at += bytes;
    return true;
}

static inline bool get_value(struct pulsar_bytes *rest, struct pulsar_field *out) {
    uint64_t bytes;
    switch (out->tag & 7) {
    case PULSAR_VARINT: return get_varint(rest, &out->number);
    case PULSAR_FIXED64: return get_fixed(rest, 8, &out->bytes);
    case PULSAR_FIXED32: return get_fixed(rest, 4, &out->bytes);
    case PULSAR_BYTES:
        return get_varint(rest, &bytes) && bytes <= pulsar_length(*rest) && get_fixed(rest, (size_t)bytes, &out->bytes);
    default: return false;
    }
}

static inline bool next_field(struct pulsar_bytes *rest, struct pulsar_field *out) {
    struct pulsar_bytes after = *rest;
    uint64_t tag;
    if (!get_varint(&after, &tag) || tag > UINT32_MAX || tag < 8) return false;
    *out = (struct pulsar_field){.tag = (uint32_t)tag};
    if (!get_value(&after, out)) return false;
    *rest = after;
    return true;
}

bool pulsar_next(struct pulsar_bytes *rest, struct pulsar_field *out) {
    return next_field(rest, out);
}

/* --- an entry ------------------------------------------------------------------------------------------------------
 * */

enum { MAGIC_BYTES = 2, CHECKSUM_BYTES = 4, SIZE_BYTES = 4 };

void pulsar_split_entry(struct pulsar_bytes bytes, struct pulsar_entry *out) {
    struct pulsar_bytes rest = bytes;
    *out = (struct pulsar_entry){.all = bytes};
    if (pulsar_length(rest) >= MAGIC_BYTES + CHECKSUM_BYTES && rest.at[0] == 0x0e && rest.at[1] == 0x01) {
        out->has_checksum = true;
        out->checksum = pulsar_get_be32(rest.at + MAGIC_BYTES);
        rest.at += MAGIC_BYTES + CHECKSUM_BYTES;
    }
    out->checked = rest;
    uint32_t size = pulsar_length(rest) >= SIZE_BYTES ? pulsar_get_be32(rest.at) : UINT32_MAX;
    out->is_whole = pulsar_length(rest) >= SIZE_BYTES && size <= pulsar_length(rest) - SIZE_BYTES;
    if (out->is_whole) rest.at += SIZE_BYTES;
    const uint8_t *end = out->is_whole ? rest.at + size : rest.end;
    out->metadata = (struct pulsar_bytes){rest.at, end};
    out->payload = (struct pulsar_bytes){end, rest.end};
}

bool pulsar_scan_metadata(struct pulsar_bytes bytes, struct pulsar_metadata *out) {
    struct pulsar_field field;
    uint32_t seen = 0;
    *out = (struct pulsar_metadata){0};
    while (next_field(&bytes, &field)) {
        switch (field.tag) {
        case PULSAR_TAG(1, PULSAR_BYTES): out->producer = field.bytes, seen |= 1; break;
        case PULSAR_TAG(2, PULSAR_VARINT): out->sequence = field.number, seen |= 2; break;
        case PULSAR_TAG(3, PULSAR_VARINT): out->publish_time = field.number, seen |= 4; break;
        case PULSAR_TAG(6, PULSAR_BYTES): out->partition_key = field.bytes; break;
        case PULSAR_TAG(8, PULSAR_VARINT): out->compression = (uint32_t)field.number; break;
        case PULSAR_TAG(9, PULSAR_VARINT): out->uncompressed_bytes = (uint32_t)field.number; break;
        case PULSAR_TAG(11, PULSAR_VARINT): out->messages = (uint32_t)field.number; break;
        case PULSAR_TAG(12, PULSAR_VARINT): out->event_time = field.number; break;
        case PULSAR_TAG(13, PULSAR_BYTES): out->is_encrypted = true; break;
        case PULSAR_TAG(17, PULSAR_VARINT): out->key_is_base64 = field.number != 0; break;
        case PULSAR_TAG(18, PULSAR_BYTES): out->ordering_key = field.bytes; break;
        case PULSAR_TAG(19, PULSAR_VARINT): out->deliver_at = field.number; break;
        case PULSAR_TAG(20, PULSAR_VARINT): out->is_marker = true; break;
        case PULSAR_TAG(22, PULSAR_VARINT):
        case PULSAR_TAG(23, PULSAR_VARINT): out->has_txn = true; break;
        case PULSAR_TAG(24, PULSAR_VARINT): out->highest_sequence = field.number; break;
        case PULSAR_TAG(27, PULSAR_VARINT):
            out->chunks = (uint32_t)field.number;
            out->is_chunk = field.number > 1;
            break;
        case PULSAR_TAG(29, PULSAR_VARINT): out->chunk = (uint32_t)field.number; break;
        default: break;
        }
    }
    return pulsar_is_done(bytes) && seen == 7;
}

/* --- a batch -------------------------------------------------------------------------------------------------------
 * */

/* Mostly the metadata is only the size, so that case is tried first. */
static inline bool get_payload_bytes(struct pulsar_bytes metadata, uint64_t *out) {
    const uint32_t size_tag = PULSAR_TAG(3, PULSAR_VARINT);
    struct pulsar_field field;
    bool seen = false;
    while (!pulsar_is_done(metadata)) {
        if (*metadata.at == size_tag) {
            metadata.at++;
            if (!get_varint(&metadata, out)) return false;
            seen = true;
            continue;
        }
        if (!pulsar_next(&metadata, &field)) return false;
        if (field.tag == size_tag) *out = field.number, seen = true;
    }
    return seen;
}

static inline bool next_single(struct pulsar_bytes *rest, struct pulsar_single *out) {
    struct pulsar_bytes after = *rest;
    uint64_t payload_bytes = 0;
    if (pulsar_length(after) < SIZE_BYTES) return false;
    uint32_t size = pulsar_get_be32(after.at);
    after.at += SIZE_BYTES;
    if (!get_fixed(&after, size, &out->metadata) || !get_payload_bytes(out->metadata, &payload_bytes)) return false;
    if (payload_bytes > pulsar_length(after) || !get_fixed(&after, (size_t)payload_bytes, &out->payload)) return false;
    *rest = after;
    return true;
}

bool pulsar_next_single(struct pulsar_bytes *rest, struct pulsar_single *out) {
    return next_single(rest, out);
}

bool pulsar_is_batch(struct pulsar_bytes payload, uint32_t messages) {
    struct pulsar_single single;
    uint32_t count = 0;
    while (count < messages && next_single(&payload, &single)) count++;
    return count == messages && pulsar_is_done(payload);
}
