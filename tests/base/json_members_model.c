/* Texts that are JSON, or nearly: nothing is written beyond the room, and of what was written all is known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_members.h"

enum { TEXTS = 400000, ROOM = 256, GUARD = 0xa5 };

static const uint8_t NAMES[] = "\4name\2on";
static const char *PARTS[] = {
    "{", "}", "[", "]",  ",",  ":",    " ",    "\"name\"", "\"on\"",          "\"",      "\\",      "\\u00", "61",
    "1", "-", "0", ".5", "e3", "true", "null", "\xff",     "\"n\\u0061me\":", "\"x\":{", "\"a\":[", "\xe2",  "\xaa"};

static size_t some_text(uint8_t *text) {
    size_t bytes = 0;
    if (rand() % 2) text[bytes++] = '{';
    for (int left = rand() % 12; left > 0; left--) {
        const char *part = PARTS[(size_t)rand() % (sizeof PARTS / sizeof *PARTS)];
        memcpy(text + bytes, part, strlen(part));
        bytes += strlen(part);
    }
    if (rand() % 2) text[bytes++] = '}';
    return bytes;
}

int main(void) {
    uint8_t text[ROOM], out[ROOM], again[ROOM];
    size_t valid = 0;
    srand(1);
    for (int n = 0; n < TEXTS; n++) {
        size_t bytes = some_text(text);
        memset(out, GUARD, sizeof out);
        size_t found = json_members(text, bytes, NAMES, out);
        for (size_t i = bytes + 1; i < ROOM; i++)
            if (out[i] != GUARD) return fprintf(stderr, "%.*s: written beyond\n", (int)bytes, text), 1;
        if (found == 0) continue;
        valid++;
        if (json_members(out, found, NAMES, again) != found || memcmp(out, again, found) != 0)
            return fprintf(stderr, "%.*s: %.*s\n", (int)bytes, text, (int)found, out), 1;
    }
    puts(valid > TEXTS / 100 ? "ok" : "hardly any is JSON");
    return 0;
}
