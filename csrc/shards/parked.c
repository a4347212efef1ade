#include "shards/parked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ringbuf/request_each.h"

enum { FIRST_PARKED_BYTES = 1024 };

static size_t behind_bytes(const struct message *m, bool apart) {
    return apart ? sizeof m : m->body_bytes;
}

static uint32_t padded(const struct message *m, bool apart) {
    return (uint32_t)((sizeof(struct parked_request) + behind_bytes(m, apart) + 7) & ~(size_t)7);
}

struct parked_request *parked_put(struct parked *parked, uint32_t topic, const struct message *message, bool apart) {
    uint32_t bytes = padded(message, apart);
    if (parked->capacity - parked->tail < bytes && parked->head > 0) {
        memmove(parked->bytes, parked->bytes + parked->head, parked->tail - parked->head);
        parked->tail -= parked->head;
        parked->head = 0;
    }
    if (parked->capacity - parked->tail < bytes) {
        uint64_t capacity = parked->capacity ? parked->capacity : FIRST_PARKED_BYTES;
        while (capacity - parked->tail < bytes) capacity *= 2;
        if (capacity > UINT32_MAX) return NULL;
        uint8_t *larger = realloc(parked->bytes, capacity);
        if (!larger) return NULL;
        parked->bytes = larger;
        parked->capacity = (uint32_t)capacity;
    }
    struct parked_request *request = (struct parked_request *)(void *)(parked->bytes + parked->tail);
    *request = (struct parked_request){.topic = topic, .apart = apart, .message = *message};
    const void *behind = apart ? (const void *)&message : message + 1;
    if (apart || message->body_bytes > 0) memcpy(&request->message + 1, behind, behind_bytes(message, apart));
    parked->tail += bytes;
    return request;
}

const struct message *parked_message(const struct parked_request *request) {
    const struct message *message = &request->message;
    if (request->apart) memcpy(&message, &request->message + 1, sizeof message);
    return message;
}

struct message *parked_take_message(struct parked_request *request) {
    struct message *message;
    assert(request->apart);
    memcpy(&message, &request->message + 1, sizeof message);
    memset(&request->message + 1, 0, sizeof(void *)); /* which free() takes */
    return message;
}

struct parked_request *parked_first(const struct parked *parked) {
    return parked->head == parked->tail ? NULL : (struct parked_request *)(void *)(parked->bytes + parked->head);
}

void parked_drop_first(struct parked *parked) {
    struct parked_request *first = parked_first(parked);
    parked->head += padded(&first->message, first->apart);
    if (first->apart) free(parked_take_message(first));
    if (parked->head < parked->tail) return;
    parked->head = parked->tail = 0;
    /* An idle client keeps little. */
    if (parked->capacity > 8 * FIRST_PARKED_BYTES) {
        free(parked->bytes);
        *parked = (struct parked){0};
    }
}

/* The wait of a RESERVE among the requests of a REQUEST_EACH that are not done yet. */
static uint64_t *wait_of_each(struct parked_request *request, uint32_t slot) {
    if (request->apart || !request_each_is_whole(&request->message)) return NULL;
    struct request_each *each = (struct request_each *)(void *)(&request->message + 1);
    for (uint32_t n = request->done; n < request->message.several; n++)
        if (each[n].kind == MSG_RESERVE && each[n].slot == slot) return &each[n].value;
    return NULL;
}

uint64_t *parked_wait(const struct parked *parked, uint32_t slot) {
    for (uint32_t at = parked->head; at < parked->tail;) {
        struct parked_request *request = (struct parked_request *)(void *)(parked->bytes + at);
        struct message *m = &request->message;
        if (m->kind == MSG_RESERVE && m->slot == slot) return &m->wait_ns;
        uint64_t *wait_ns = m->kind == MSG_REQUEST_EACH ? wait_of_each(request, slot) : NULL;
        if (wait_ns) return wait_ns;
        at += padded(m, request->apart);
    }
    return NULL;
}

void parked_free(struct parked *parked) {
    while (parked_any(parked)) parked_drop_first(parked);
    free(parked->bytes);
    *parked = (struct parked){0};
}
