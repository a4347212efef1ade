/* One connection to the server under load: a socket in an epoll set, the output that it has not taken yet, and an
 * incomplete end of the input. Knows no protocol. A connection that fails ends the program. */
#ifndef MQ_PERF_STREAM_H
#define MQ_PERF_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream {
    int fd;
    int epoll_fd;
    bool is_blocked; /* the socket has not taken all output */
    char *output;
    size_t output_begin, output_end, output_bytes;
    char *carry;
    size_t carry_bytes, carry_limit;
};

/* Returns a connected socket, which still blocks. */
int stream_connect(const char *host, uint16_t port);

/* Takes over a socket and puts it into the epoll set, with the stream's address as data. `output_bytes` is the most
 * that may wait to be sent, `carry_limit` the longest incomplete input. */
void stream_open(struct stream *s, int fd, int epoll_fd, size_t output_bytes, size_t carry_limit);

void stream_close(struct stream *s);

/* Sends what the socket takes now, and keeps the rest. */
void stream_send(struct stream *s, const char *data, size_t bytes);

/* Sends output that was kept; call it when the socket is writable. */
void stream_flush(struct stream *s);

/* Receives input, after the part that was kept, and puts a zero byte behind it. Returns the number of bytes, 0 if
 * nothing came. `in_bytes` is the room in `in`, more than carry_limit. */
size_t stream_receive(struct stream *s, char *in, size_t in_bytes);

/* Keeps the end of the input for the next stream_receive(). */
void stream_keep(struct stream *s, const char *rest, size_t bytes);

#endif
