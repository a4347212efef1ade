/* JSON that is being written: a text that grows up to a limit. When the limit is passed or memory is short it is marked
 * as failed, and takes nothing more; so a writer looks once, at the end. */
#ifndef MQ_JSON_TEXT_H
#define MQ_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_text {
    uint8_t *at; /* freed by the owner */
    size_t bytes, room;
    size_t limit;
    bool failed;
};

/* Appends text as it is, ... */
void json_put(struct json_text *json, const void *text, size_t bytes);
void json_put_name(struct json_text *json, const char *text);
/* ... as a string, with the escapes of Go's encoder; what is not UTF-8 becomes U+FFFD, ... */
void json_put_string(struct json_text *json, const void *text, size_t bytes);
void json_put_number(struct json_text *json, uint64_t value);
/* ... and a time since 1970 as a string: RFC 3339 in UTC, with as many digits behind the point as it has. */
void json_put_time(struct json_text *json, uint64_t wall_ns);

#endif
