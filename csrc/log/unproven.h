/* Sealed segments that recovery has not read, as it had their heads (heads.h): while it goes on, a position in one
 * means a head; afterwards the record. Its head is compared with the one in the heads each time that the record is
 * asked for, and its CRC is checked when somebody is about to use its body for the first time. One that is not what it
 * was, or whose head cannot be read, is a record of no bytes, which no caller takes for a message (log_read_head).
 */
#ifndef MQ_UNPROVEN_H
#define MQ_UNPROVEN_H

#include "log/heads.h"
#include "log/log.h"

struct segment;
struct unproven;

/* At recovery, instead of log_scan and log_truncate, when all segments have been added: has a segment before the last
 * read from its heads, if the file has them. The descriptor remains the caller's. */
enum heads_found log_use_heads(struct log *log, int fd, uint32_t segment);
bool log_has_heads(const struct log *log, uint32_t segment);
/* Walks its heads: the next record from *at on (0: the first), and its position; NULL: there is none. */
const struct record *log_next_head(const struct log *log, uint32_t segment, uint64_t *at, log_position *position);
/* Recovery is over. */
void log_heads_over(struct log *log);

/* For log.c. The record at an offset of such a segment. */
const struct record *unproven_record(const struct segment *s, uint64_t offset);
/* Whether a record of the log, all of which can be read, is whole, if it is in such a segment. */
bool unproven_is_whole(const struct log *log, const struct record *r);
void unproven_free(struct unproven *u);

#endif
