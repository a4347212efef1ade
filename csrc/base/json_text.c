#include "base/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/decimal.h"
#include "base/time_units.h"
#include "base/utf8.h"

enum { FIRST_ROOM = 512 };

/* Makes room for more text; false if that fails. */
static bool reserve(struct json_text *json, size_t bytes) {
    if (json->failed || bytes > json->limit - json->bytes) {
        json->failed = true;
        return false;
    }
    if (json->room - json->bytes >= bytes) return true;
    size_t room = json->room > 0 ? json->room : FIRST_ROOM;
    while (room < json->bytes + bytes) room *= 2;
    uint8_t *larger = realloc(json->at, room);
    if (larger == NULL) {
        json->failed = true;
        return false;
    }
    json->at = larger;
    json->room = room;
    return true;
}

void json_put(struct json_text *json, const void *text, size_t bytes) {
    if (bytes == 0 || !reserve(json, bytes)) return;
    memcpy(json->at + json->bytes, text, bytes);
    json->bytes += bytes;
}

void json_put_name(struct json_text *json, const char *text) {
    json_put(json, text, strlen(text));
}

void json_put_number(struct json_text *json, uint64_t value) {
    uint8_t digits[DECIMAL_MAX_BYTES];
    json_put(json, digits, (size_t)(decimal_put(digits, value) - digits));
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

/* How a character has to be written, or NULL: as it is. */
static const char *escape_of(uint32_t character, char room[8]) {
    switch (character) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
    }
    bool is_marked = character == '<' || character == '>' || character == '&';
    bool is_separator = character == 0x2028 || character == 0x2029;
    if (character >= ' ' && !is_marked && !is_separator) return NULL;
    (void)snprintf(room, 8, "\\u%04x", (unsigned)character & 0xffff);
    return room;
}

void json_put_string(struct json_text *json, const void *text, size_t bytes) {
    static const char UNKNOWN[] = "\\ufffd";
    const uint8_t *at = text, *end = at + bytes, *plain = at;
    char room[8];
    json_put(json, "\"", 1);
    while (at < end) {
        uint32_t character = *at;
        size_t used = 1;
        bool is_valid = *at < 0x80 || utf8_decode(at, (size_t)(end - at), &character, &used);
        const char *escape = is_valid ? escape_of(character, room) : UNKNOWN;
        if (escape != NULL) {
            json_put(json, plain, (size_t)(at - plain));
            json_put(json, escape, strlen(escape));
            plain = at + used;
        }
        at += used;
    }
    json_put(json, plain, (size_t)(end - plain));
    json_put(json, "\"", 1);
}

/* --- times -------------------------------------------------------------------------------------------------------- */

void json_put_time(struct json_text *json, uint64_t wall_ns) {
    const time_t seconds = (time_t)(wall_ns / SECOND_NS);
    struct tm parts;
    char date[32], fraction[12];
    if (gmtime_r(&seconds, &parts) == NULL) memset(&parts, 0, sizeof parts);
    size_t date_bytes = strftime(date, sizeof date, "\"%Y-%m-%dT%H:%M:%S", &parts);
    int digits = snprintf(fraction, sizeof fraction, ".%09u", (unsigned)(wall_ns % SECOND_NS));
    while (digits > 0 && fraction[digits - 1] == '0') digits--;
    json_put(json, date, date_bytes);
    if (digits > 1) json_put(json, fraction, (size_t)digits);
    json_put(json, "Z\"", 2);
}
