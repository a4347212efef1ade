/* A client: a socket's other end, what it has still to send and what it has received. Knows no protocol. */
#ifndef MQ_FUZZ_REMOTE_H
#define MQ_FUZZ_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *at;
    size_t count, capacity;
};

struct remote {
    int fd; /* -1: not connected */
    struct bytes unsent, got;
};

void bytes_add(struct bytes *to, const void *from, size_t count);
void bytes_drop(struct bytes *from, size_t count);
void bytes_free(struct bytes *bytes);

/* Connects; the number that the acceptor gave it. */
uint32_t remote_connect(struct remote *r, uint32_t protocol);
void remote_disconnect(struct remote *r);
void remote_say(struct remote *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends `most` bytes of what is unsent, or fewer. False if nothing was sent. */
bool remote_flush(struct remote *r, size_t most);
/* Adds what has come to `got`. False if nothing has; disconnects at the end. */
bool remote_receive(struct remote *r);

#endif
