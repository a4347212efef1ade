#include "pulsar/frames.h"

#include <string.h>

#include "big_endian.h"
#include "measure.h"

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static uint64_t get_varint(struct bytes *rest) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && rest->at < rest->end; shift += 7) {
        uint8_t byte = *rest->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    die("a varint that does not end");
}

bool next_field(struct bytes *rest, struct field *field) {
    if (rest->at == rest->end) return false;
    uint64_t tag = get_varint(rest);
    size_t fixed = (tag & 7) == FIXED64 ? 8 : (tag & 7) == FIXED32 ? 4 : 0;
    *field = (struct field){.number = (unsigned)(tag >> 3)};
    if ((tag & 7) == VARINT) {
        field->value = get_varint(rest);
        return true;
    }
    uint64_t bytes = (tag & 7) == LENGTH ? get_varint(rest) : fixed;
    if ((bytes == 0 && (tag & 7) != LENGTH) || bytes > (uint64_t)(rest->end - rest->at)) die("no protobuf");
    field->bytes = (struct bytes){rest->at, rest->at + bytes};
    rest->at += bytes;
    return true;
}

uint64_t number_in(struct bytes body, unsigned field, uint64_t otherwise) {
    for (struct field f; next_field(&body, &f);)
        if (f.number == field && f.bytes.at == NULL) return f.value;
    return otherwise;
}

struct bytes bytes_in(struct bytes body, unsigned field) {
    for (struct field f; next_field(&body, &f);)
        if (f.number == field && f.bytes.at != NULL) return f.bytes;
    return (struct bytes){NULL, NULL};
}

size_t read_frame(const uint8_t *at, const uint8_t *end, size_t limit, struct frame *frame) {
    if (end - at < 8) return 0;
    size_t bytes = 4 + (size_t)read_u32(at), command = read_u32(at + 4);
    if (bytes < 8 || bytes > limit || command > bytes - 8) die("a frame of %zu bytes", bytes);
    if (bytes > (size_t)(end - at)) return 0;
    struct bytes rest = {at + 8, at + 8 + command};
    *frame = (struct frame){.entry = {rest.end, at + bytes}};
    for (struct field f; next_field(&rest, &f);) {
        if (f.number == 1) frame->type = (enum command)f.value;
        if (f.number == (unsigned)frame->type && f.number > 1) frame->body = f.bytes;
    }
    return bytes;
}

static uint8_t *put_varint(uint8_t *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

uint8_t *put_number(uint8_t *to, unsigned field, uint64_t value) {
    return put_varint(put_varint(to, field << 3 | VARINT), value);
}

static uint8_t *put_length(uint8_t *to, unsigned field, size_t bytes) {
    return put_varint(put_varint(to, field << 3 | LENGTH), bytes);
}

uint8_t *put_bytes(uint8_t *to, unsigned field, const void *data, size_t bytes) {
    to = put_length(to, field, bytes);
    if (bytes > 0) memcpy(to, data, bytes);
    return to + bytes;
}

uint8_t *put_text(uint8_t *to, unsigned field, const char *text) {
    return put_bytes(to, field, text, strlen(text));
}

uint8_t *put_frame_head(uint8_t *to, enum command type, size_t bytes, size_t behind) {
    uint8_t head[16], *end = put_length(put_number(head, 1, type), type, bytes);
    size_t command = (size_t)(end - head) + bytes;
    to = write_u32(write_u32(to, 4 + command + behind), command);
    memcpy(to, head, (size_t)(end - head));
    return to + (end - head);
}

uint8_t *put_frame(uint8_t *to, enum command type, const uint8_t *body, size_t bytes) {
    to = put_frame_head(to, type, bytes, 0);
    if (bytes > 0) memcpy(to, body, bytes);
    return to + bytes;
}
