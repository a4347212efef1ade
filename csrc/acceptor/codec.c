#include "acceptor/codec.h"

#include <string.h>

uint32_t codec_number(const char *name, size_t name_bytes) {
    for (uint32_t i = 0; i < codec_count; i++)
        if (strlen(codecs[i]->name) == name_bytes && memcmp(codecs[i]->name, name, name_bytes) == 0) return i + 1;
    return 0;
}
