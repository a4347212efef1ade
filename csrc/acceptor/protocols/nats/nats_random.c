/* Random numbers, of which none has to be secret. */
#include "acceptor/protocols/nats/nats_random.h"

/* xorshift64*: any generator will do to be fair among members. */
uint64_t nats_random(struct nats_server *server) {
    uint64_t x = server->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    server->random = x;
    return x * 0x2545f4914f6cdd1dULL >> 16;
}
