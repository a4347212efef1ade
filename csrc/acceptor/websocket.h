/* Frames of a websocket (RFC 6455): parses frames as they come, and makes heads for ours.
 * Knows no connection, allocates nothing, and trusts no byte. Its texts about invalid frames are those of a widespread
 * server in Go.
 *
 * The payloads of all messages form one stream of bytes; it does not matter where messages and frames end in it.
 */
#ifndef MQ_WEBSOCKET_H
#define MQ_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEBSOCKET_KEY_BYTES = 4,       /* the key that payload is masked with */
    WEBSOCKET_HEAD_BYTES = 14,     /* longest head of a frame, with its key */
    WEBSOCKET_CONTROL_BYTES = 125, /* longest payload of a control frame */
};

enum websocket_opcode {
    WEBSOCKET_CONTINUES = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

/* Bits in a frame's first byte: the last frame of a message; the message is compressed. */
#define WEBSOCKET_FINAL      0x80
#define WEBSOCKET_COMPRESSED 0x40

enum websocket_status { WEBSOCKET_PROTOCOL_ERROR = 1002, WEBSOCKET_INVALID_PAYLOAD = 1007 };

/* Why websocket_take stopped. */
enum websocket_found {
    WEBSOCKET_ALL_TAKEN, /* the input is used up */
    WEBSOCKET_MESSAGE,   /* the end of a message */
    WEBSOCKET_CONTROL,   /* a whole ping or pong: its payload is in `control` */
    WEBSOCKET_ENDED,     /* the client closed it, or made an error: `control` is the payload of our closing frame */
};

struct websocket {
    uint64_t rest;  /* payload still to come, once the frame's head has been parsed (`in_payload`) */
    uint32_t key;   /* the mask of the rest, in memory order */
    uint8_t found;  /* enum websocket_found */
    uint8_t opcode; /* of the current frame */
    uint8_t head_bytes, control_bytes;
    bool unmasked;   /* the other side need not mask its frames */
    bool compresses; /* messages may be compressed */
    bool in_payload;
    bool in_message;    /* a message has begun, and more frames of it are to come */
    bool final;         /* the current frame is the last of its message */
    bool is_compressed; /* the message is compressed, as its first frame said */
    bool ended;
    bool is_wrong;                      /* by an error, not by the client's closing frame */
    uint8_t head[WEBSOCKET_HEAD_BYTES]; /* the head of a frame, as far as it has come */
    uint8_t control[WEBSOCKET_CONTROL_BYTES];
};

/* Parses `in` up to the next reason to stop (`found`). Returns how many bytes it used. Writes `*made` bytes of message
 * payload to `out`, which may be `in` itself or lie before it. After WEBSOCKET_ENDED all input is used and nothing
 * written. */
size_t websocket_take(struct websocket *ws, const uint8_t *in, size_t bytes, uint8_t *out, size_t *made);

/* Writes the head of a frame of ours with that much payload. Returns its length. */
size_t websocket_head(uint8_t out[WEBSOCKET_HEAD_BYTES], uint8_t first, uint64_t payload_bytes);
/* Makes a whole frame, of which only the head has been written, that of a client: adds the key to its head, and masks
 * the payload, which lies WEBSOCKET_KEY_BYTES behind the head. */
void websocket_mask(uint8_t *frame, size_t head_bytes, size_t payload_bytes, uint32_t key);

/* Writes the payload of a closing frame: a status and a reason, which is cut if too long. Returns its length. */
size_t websocket_closing(uint8_t out[WEBSOCKET_CONTROL_BYTES], uint16_t status, const char *why);

#endif
