/* Bodies in chunks, and bodies of many messages. Pure: bytes in, figures and bytes out. */
#include <string.h>

#include "acceptor/protocols/nsq/nsq_http_body.h"

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* What the gateway takes too: of a line, of what follows the last chunk, and of lines beyond 14 bytes and twice what
 * their chunks hold. */
enum { CHUNK_LINE_BYTES = 4096, CHUNK_WASTE_BYTES = 16 << 10, LINE_USUAL_BYTES = 14, MOST_DIGITS = 15 };

/* Without those at its end. */
static struct text without_blanks(struct text line) {
    while (line.bytes > 0 && memchr(" \t\r\n", line.at[line.bytes - 1], 4) != NULL) line.bytes--;
    return line;
}

/* Reads the size in a chunk's first line. */
static bool read_size(struct text line, size_t *size) {
    line = without_blanks(line);
    const uint8_t *extension = memchr(line.at, ';', line.bytes);
    if (extension != NULL) {
        size_t left = line.bytes - (size_t)(extension - line.at);
        if (memchr(extension, '\r', left) != NULL) return false; /* to some it ends the line */
        line.bytes -= left;
        line = without_blanks(line);
    }
    if (line.bytes == 0 || line.bytes > MOST_DIGITS) return false;
    *size = 0;
    for (size_t i = 0; i < line.bytes; i++) {
        uint8_t letter = line.at[i] | 0x20;
        bool is_digit = line.at[i] >= '0' && line.at[i] <= '9';
        if (!is_digit && (letter < 'a' || letter > 'f')) return false;
        *size = *size << 4 | (size_t)(is_digit ? line.at[i] - '0' : letter - 'a' + 10);
    }
    return true;
}

/* Cuts off a line with its end, of limited length. */
static enum nsq_http_walk cut_line(struct text input, size_t at, size_t *line_bytes) {
    size_t left = input.bytes - at, most = left < CHUNK_LINE_BYTES ? left : CHUNK_LINE_BYTES;
    const uint8_t *feed = most > 0 ? memchr(input.at + at, '\n', most) : NULL;
    if (feed == NULL) return left >= CHUNK_LINE_BYTES ? NSQ_HTTP_WRONG : NSQ_HTTP_INCOMPLETE;
    *line_bytes = (size_t)(feed + 1 - (input.at + at));
    return NSQ_HTTP_WHOLE;
}

/* Skips the trailers behind the last chunk, up to an empty line. */
static enum nsq_http_walk walk_trailers(struct text input, size_t *at) {
    size_t here = *at, line_bytes;
    for (;;) {
        enum nsq_http_walk found = cut_line(input, here, &line_bytes);
        if (found != NSQ_HTTP_WHOLE) return here - *at > CHUNK_LINE_BYTES ? NSQ_HTTP_WRONG : found;
        bool is_empty = line_bytes == 1 || (line_bytes == 2 && input.at[here] == '\r');
        bool is_header = memchr(input.at + here, ':', line_bytes) != NULL && input.at[here] != ':';
        if (!is_empty && !is_header) return NSQ_HTTP_WRONG;
        here += line_bytes;
        if (is_empty) break;
        if (here - *at > CHUNK_LINE_BYTES) return NSQ_HTTP_WRONG;
    }
    *at = here;
    return NSQ_HTTP_WHOLE;
}

/* Skips the line end behind a chunk; WRONG if there is something else. */
static enum nsq_http_walk pass_line_end(struct text input, size_t *at) {
    size_t left = input.bytes - *at;
    if (left > 0 && input.at[*at] != '\r') return NSQ_HTTP_WRONG;
    if (left > 1 && input.at[*at + 1] != '\n') return NSQ_HTTP_WRONG;
    if (left < 2) return NSQ_HTTP_INCOMPLETE;
    *at += 2;
    return NSQ_HTTP_WHOLE;
}

enum nsq_http_walk nsq_http_walk_chunks(struct nsq_http_chunks *chunks, struct text input, size_t most) {
    for (;;) {
        size_t at = chunks->at, line_bytes, size;
        enum nsq_http_walk found = chunks->begun ? pass_line_end(input, &at) : NSQ_HTTP_WHOLE;
        if (found == NSQ_HTTP_WHOLE) found = cut_line(input, at, &line_bytes);
        if (found != NSQ_HTTP_WHOLE) return found;
        if (!read_size((struct text){input.at + at, line_bytes}, &size)) return NSQ_HTTP_WRONG;
        at += line_bytes;
        if (size == 0) {
            found = walk_trailers(input, &at);
            chunks->end = at;
            return found;
        }
        size_t waste = chunks->waste + line_bytes, usual = LINE_USUAL_BYTES + 2 * size;
        waste = waste > usual ? waste - usual : 0;
        if (waste > CHUNK_WASTE_BYTES) return NSQ_HTTP_WRONG;
        size_t there = input.bytes - at < size ? input.bytes - at : size;
        if (chunks->bytes + there > most) return NSQ_HTTP_OVER;
        if (there < size) return NSQ_HTTP_INCOMPLETE;
        *chunks =
            (struct nsq_http_chunks){.at = at + size, .bytes = chunks->bytes + size, .waste = waste, .begun = true};
    }
}

size_t nsq_http_join_chunks(struct text input, uint8_t *out, size_t most) {
    size_t at = 0, bytes = 0, line_bytes, size;
    while (bytes < most && cut_line(input, at, &line_bytes) == NSQ_HTTP_WHOLE) {
        if (!read_size((struct text){input.at + at, line_bytes}, &size) || size == 0) break;
        at += line_bytes;
        size_t there = input.bytes - at < size ? input.bytes - at : size;
        if (there > most - bytes) there = most - bytes;
        memcpy(out + bytes, input.at + at, there);
        bytes += there;
        if (input.bytes - at < size + 2) break;
        at += size + 2; /* with the line end */
    }
    return bytes;
}

/* --- many messages ------------------------------------------------------------------------------------------------ */

enum { LEAST_MESSAGE_BYTES = SIZE_BYTES + 1 };

struct nsq_http_many nsq_http_look_at_binary(struct text body, struct nsq_http_limits limits) {
    const struct nsq_http_many bad_body = {.wrong = "BAD_BODY"}, bad_message = {.wrong = "BAD_MESSAGE"};
    if (body.bytes < SIZE_BYTES) return bad_body;
    uint32_t count = get_be32(body.at);
    size_t room = limits.body_bytes > SIZE_BYTES ? limits.body_bytes - SIZE_BYTES : 0;
    if (count == 0 || count > INT32_MAX || count > room / LEAST_MESSAGE_BYTES) return bad_body;
    size_t at = SIZE_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        if (body.bytes - at < SIZE_BYTES) return bad_message;
        size_t size = get_be32(body.at + at);
        at += SIZE_BYTES;
        if (size == 0 || size > limits.message_bytes || size > body.bytes - at) return bad_message;
        at += size;
    }
    return (struct nsq_http_many){.count = count, .bytes = at - SIZE_BYTES};
}

/* The next line without its end. */
static struct text next_line(struct text body, size_t *at) {
    const uint8_t *begin = body.at + *at, *feed = memchr(begin, '\n', body.bytes - *at);
    size_t bytes = feed != NULL ? (size_t)(feed - begin) : body.bytes - *at;
    *at += bytes + (feed != NULL ? 1 : 0);
    return (struct text){begin, bytes};
}

struct nsq_http_many nsq_http_look_at_lines(struct text body, struct nsq_http_limits limits) {
    struct nsq_http_many many = {0};
    for (size_t at = 0; at < body.bytes;) {
        struct text line = next_line(body, &at);
        if (at > limits.body_bytes) return (struct nsq_http_many){.wrong = "BODY_TOO_BIG"};
        if (line.bytes > limits.message_bytes) return (struct nsq_http_many){.wrong = "MSG_TOO_BIG"};
        if (line.bytes == 0) continue;
        many.count++;
        many.bytes += SIZE_BYTES + line.bytes;
    }
    return many;
}

void nsq_http_put_lines(struct text body, uint8_t *out) {
    for (size_t at = 0; at < body.bytes;) {
        struct text line = next_line(body, &at);
        if (line.bytes == 0) continue;
        out = put_be32(out, (uint32_t)line.bytes);
        memcpy(out, line.at, line.bytes);
        out += line.bytes;
    }
}
