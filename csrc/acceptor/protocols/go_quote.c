#include "acceptor/protocols/go_quote.h"

#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

static const char HEX[] = "0123456789abcdef";

static bool printable(uint32_t character) {
    static const uint32_t not[][2] = {
        {0x80, 0xa0},     {0xad, 0xad},     {0x600, 0x605},     {0x61c, 0x61c},      {0x1680, 0x1680}, {0x180e, 0x180e},
        {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f},   {0x3000, 0x3000},    {0xe000, 0xf8ff}, {0xfdd0, 0xfdef},
        {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xe0000, 0xe00ff}, {0xe01f0, 0x10ffff},
    };
    if ((character & 0xfffe) == 0xfffe) return false;
    for (size_t i = 0; i < sizeof not / sizeof *not; i++)
        if (character >= not[i][0] && character <= not[i][1]) return false;
    return true;
}

static uint8_t *put_hex(uint8_t *out, char kind, uint32_t value, int digits) {
    *out++ = '\\';
    *out++ = (uint8_t)kind;
    while (digits-- > 0) *out++ = (uint8_t)HEX[value >> (4 * digits) & 0xf];
    return out;
}

static uint8_t *put_ascii(uint8_t *out, uint8_t byte) {
    static const char named[] = "\aa\bb\ff\nn\rr\tt\vv\\\\\"\"";
    for (size_t i = 0; i < sizeof named - 1; i += 2) {
        if ((uint8_t)named[i] != byte) continue;
        *out++ = '\\';
        *out++ = (uint8_t)named[i + 1];
        return out;
    }
    if (byte < ' ' || byte == 0x7f) return put_hex(out, 'x', byte, 2);
    *out++ = byte;
    return out;
}

uint8_t *go_quote(uint8_t *out, const uint8_t *text, size_t bytes) {
    *out++ = '"';
    while (bytes > 0) {
        uint32_t character;
        size_t length = 1;
        if (*text < 0x80) {
            out = put_ascii(out, *text);
        } else if (!utf8_decode(text, bytes, &character, &length)) {
            out = put_hex(out, 'x', *text, 2);
            length = 1;
        } else if (printable(character)) {
            memcpy(out, text, length);
            out += length;
        } else {
            out = character > 0xffff ? put_hex(out, 'U', character, 8) : put_hex(out, 'u', character, 4);
        }
        text += length;
        bytes -= length;
    }
    *out++ = '"';
    return out;
}
