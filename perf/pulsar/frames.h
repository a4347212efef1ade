/* Pulsar's frames, as a load generator and the bare server write and read them: just the commands that they need.
 * Any wrong frame ends the program. */
#ifndef MQ_PERF_PULSAR_FRAMES_H
#define MQ_PERF_PULSAR_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BaseCommand.Type: the number of a type is also that of the field with its message. */
enum command {
    CONNECT = 2,
    CONNECTED = 3,
    SUBSCRIBE = 4,
    PRODUCER = 5,
    SEND = 6,
    SEND_RECEIPT = 7,
    MESSAGE = 9,
    ACK = 10,
    FLOW = 11,
    SUCCESS = 13,
    ERROR = 14,
    CLOSE_CONSUMER = 16,
    PRODUCER_SUCCESS = 17,
    PING = 18,
    PONG = 19,
    LOOKUP = 23,
    LOOKUP_RESPONSE = 24,
};

/* More than a frame of any command that is written here, apart from those with a list or a payload. */
#define COMMAND_BYTES 512u

struct bytes {
    const uint8_t *at, *end;
};

struct field {
    unsigned number;
    uint64_t value;
    struct bytes bytes; /* at is NULL if the field is a number */
};

struct frame {
    enum command type;
    struct bytes body;
    struct bytes entry; /* what comes after the command */
};

/* ---- reading ---- */

/* Returns the length of the frame at `at`; 0 if it is not whole. `limit` is the longest that may come. */
size_t read_frame(const uint8_t *at, const uint8_t *end, size_t limit, struct frame *frame);

/* Reads the next field of a message; false at its end. */
bool next_field(struct bytes *rest, struct field *field);

/* Returns the number in a field of a message, or `otherwise`. */
uint64_t number_in(struct bytes body, unsigned field, uint64_t otherwise);
struct bytes bytes_in(struct bytes body, unsigned field);

/* ---- writing: each returns where it ends ---- */

uint8_t *put_number(uint8_t *to, unsigned field, uint64_t value);
uint8_t *put_bytes(uint8_t *to, unsigned field, const void *data, size_t bytes);
uint8_t *put_text(uint8_t *to, unsigned field, const char *text);

/* Writes a frame of a command whose message is `body`. */
uint8_t *put_frame(uint8_t *to, enum command type, const uint8_t *body, size_t bytes);

/* Writes the head of such a frame. The caller writes the message of `bytes` after it, and `behind` bytes after that. */
uint8_t *put_frame_head(uint8_t *to, enum command type, size_t bytes, size_t behind);

#endif
