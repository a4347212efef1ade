/* What clients and servers call themselves. */
#include "acceptor/protocols/nats/nats_name.h"

#include <stdlib.h>

void nats_set_name(struct nats_name **name, const void *text, size_t bytes) {
    free(*name);
    *name = bytes > 0 ? malloc(sizeof **name + bytes) : NULL;
    if (*name == NULL) return;
    (*name)->bytes = (uint32_t)bytes;
    memcpy((*name)->text, text, bytes);
}
