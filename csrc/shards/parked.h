/* A client's parked requests, byte for byte as they came over the ring: those that came while its RESERVE waits, or
 * while another request of its goes on. The acceptor's limit on outstanding requests bounds them.
 */
#ifndef MQ_PARKED_H
#define MQ_PARKED_H

#include <stdbool.h>
#include <stdint.h>

#include "ringbuf/message.h"

struct parked {
    uint8_t *bytes;
    uint32_t capacity, head, tail;
};

/* A parked request. Its topic is the worker's own number, because the acceptor may rebind its number meanwhile. */
struct parked_request {
    uint32_t topic;
    bool apart;    /* what follows is not the body, but a pointer to the whole message */
    uint16_t done; /* how many requests of a REQUEST_EACH have been done */
    struct message message;
};

/* The queue of parked requests. `apart`: the message was allocated, and the queue frees it. NULL when memory is short;
 * else the request is valid until the next parked_* call. */
struct parked_request *parked_put(struct parked *parked, uint32_t topic, const struct message *message, bool apart);
/* The oldest parked request, or NULL. Valid until the next parked_* call. */
struct parked_request *parked_first(const struct parked *parked);
/* The message of a parked request, with its body. */
const struct message *parked_message(const struct parked_request *request);
/* Takes over the message of a request that is apart; only its head stays in the queue. */
struct message *parked_take_message(struct parked_request *request);
void parked_drop_first(struct parked *parked);
/* The wait of the RESERVE in that slot, if it is parked; else NULL. */
uint64_t *parked_wait(const struct parked *parked, uint32_t slot);
void parked_free(struct parked *parked);

static inline bool parked_any(const struct parked *parked) {
    return parked->head != parked->tail;
}

#endif
