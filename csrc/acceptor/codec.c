#include "acceptor/codec.h"

#include <string.h>

uint32_t codec_number(const struct codec_table *codecs, const char *name, size_t name_bytes) {
    for (uint32_t i = 0; i < codecs->count; i++) {
        const char *other = codecs->items[i]->name;
        if (strlen(other) == name_bytes && memcmp(other, name, name_bytes) == 0) return i + 1;
    }
    return 0;
}
