/* Frames of a websocket (RFC 6455), the server's side: what a client sends, taken apart as it comes, and heads of what is
 * sent to it. Knows no connection, allocates nothing, and trusts no byte; what it says of a frame that is wrong is
 * what a widespread server in Go says.
 *
 * A message of the stream may end anywhere: payloads of messages are one stream of bytes, whatever frames they came in.
 */
#ifndef MQ_WEBSOCKET_H
#define MQ_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEBSOCKET_HEAD_BYTES = 10,     /* of a frame of ours, at most */
    WEBSOCKET_CONTROL_BYTES = 125, /* of the payload of a frame that is no message's */
};

enum websocket_opcode {
    WEBSOCKET_CONTINUES = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

/* The first byte of a frame that is a message by itself; a compressed message has the other bit too. */
#define WEBSOCKET_FINAL      0x80
#define WEBSOCKET_COMPRESSED 0x40

enum websocket_status { WEBSOCKET_PROTOCOL_ERROR = 1002, WEBSOCKET_INVALID_PAYLOAD = 1007 };

/* What websocket_take stopped at. */
enum websocket_found {
    WEBSOCKET_ALL_TAKEN, /* the end of what there was */
    WEBSOCKET_MESSAGE,   /* the end of a message */
    WEBSOCKET_CONTROL,   /* a ping or pong, whole: its payload is in `control` */
    WEBSOCKET_ENDED, /* it is over, by the client or for a mistake of its: `control` is the payload of our last frame */
};

struct websocket {
    uint64_t rest;  /* of a frame's payload to come; its head has been taken if `in_payload` */
    uint32_t key;   /* that the rest is masked with, as it lies in memory */
    uint8_t found;  /* enum websocket_found */
    uint8_t opcode; /* of the frame */
    uint8_t head_bytes, control_bytes;
    bool unmasked;   /* the client has been allowed not to mask */
    bool compresses; /* messages may be compressed */
    bool in_payload;
    bool in_message;    /* and more frames of it are to come */
    bool final;         /* the frame is the last of its message */
    bool is_compressed; /* the message, whose first frame said so */
    bool ended;
    uint8_t head[14]; /* of a frame, as far as it has come */
    uint8_t control[WEBSOCKET_CONTROL_BYTES];
};

/* Takes from `in` up to the first thing worth stopping at (`found`); how much that was. Payload of messages goes to `out`, which
 * may be `in` itself or lie before it: `*made` bytes. After WEBSOCKET_ENDED everything is taken, and nothing made of it. */
size_t websocket_take(struct websocket *ws, const uint8_t *in, size_t bytes, uint8_t *out, size_t *made);

/* The head of a frame of ours with a payload of so many bytes; how long it is. */
size_t websocket_head(uint8_t out[WEBSOCKET_HEAD_BYTES], uint8_t first, uint64_t payload_bytes);

/* The payload of a closing frame: a status and why, cut if that is too long. Its length. */
size_t websocket_closing(uint8_t out[WEBSOCKET_CONTROL_BYTES], uint16_t status, const char *why);

#endif
