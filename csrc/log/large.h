/* One record whose body is written to the log in pieces, while others are appended. */
#ifndef MQ_LOG_LARGE_H
#define MQ_LOG_LARGE_H

#include "log/log.h"

/* Makes room for the record in the segment that waits, which is then used for nothing else until the record is appended
 * or cleared away. `before`: the most that the records before it in that segment will take, headers and padding
 * included. LOG_NO_SPACE: as log_reserve. */
enum log_result log_large_begin(struct log *log, uint64_t before, uint8_t attribute_bytes, uint64_t body_bytes,
                                uint64_t keep_bytes);
/* Writes the next piece of the body. False: see log_errno(). */
bool log_large_write(struct log *log, const void *data, size_t bytes);
/* Whether a large record (or a group) has been begun and is not appended or cleared away: no segment can be added. */
bool log_large_goes_on(const struct log *log);
uint64_t log_large_left(const struct log *log);
uint64_t log_large_written(const struct log *log);
/* Switches the log to the segment of the body, which must be whole. The caller then fills log_large_room() bytes before
 * the record with appends, under one reservation that includes the record without its body. */
enum log_result log_large_switch(struct log *log, uint64_t now_wall_ns);
bool log_large_switched(const struct log *log);
uint64_t log_large_room(const struct log *log);
/* Appends the record, and writes out all appended before it. 0: writing failed; nothing else can be appended. */
log_position log_large_append(struct log *log, const struct record *head, const void *attributes);
/* Gives the record up. log_large_clear then cuts off what was written of it, a piece at a time: what is left must not
 * be taken for records. *more: there is more. LOG_FAILING: the file cannot be cut, and nothing was done. */
void log_large_drop(struct log *log);
enum log_result log_large_clear(struct log *log, bool *more);

#endif
