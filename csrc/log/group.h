/* Records that count together, all or none. They are written as the body of a large record is (large.h). */
#ifndef MQ_LOG_GROUP_H
#define MQ_LOG_GROUP_H

#include "log/large.h"

/* As log_large_begin. `bytes`: what the records of the group take, heads and padding included. */
enum log_result log_group_begin(struct log *log, uint64_t before, uint64_t bytes, uint64_t keep_bytes);
/* Where the next record of the group will begin. */
log_position log_group_next(const struct log *log);
/* Appends the next record of the group, which takes LOG_GROUP_PIECE bytes at most. It may be gathered in memory until
 * log_group_write, which must be called before the turn ends. False, for both: see log_errno(). */
#define LOG_GROUP_PIECE ((size_t)256 << 10)
bool log_group_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                      size_t body_bytes);
bool log_group_write(struct log *log);
/* The same for a larger record: its body is passed to log_large_write between these two calls. */
bool log_group_open(struct log *log, uint8_t attribute_bytes);
bool log_group_close(struct log *log, const struct record *head, const void *attributes, size_t body_bytes);
/* Writes the header of the segment, so that the `records` records of the group count. Called after log_large_switch,
 * when log_large_room() has been filled. False: nothing else can be appended. */
bool log_group_end(struct log *log, uint64_t records);

#endif
