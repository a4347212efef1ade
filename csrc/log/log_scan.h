/* Walks the records of a segment: at recovery, to find damage and the end, and later, of a segment that is sealed. */
#ifndef MQ_LOG_SCAN_H
#define MQ_LOG_SCAN_H

#include "log/log.h"

/* Walks a segment at recovery. Start with offset 0.
 *    1: *record is the next record; it begins at *offset - record_stride(*record).
 *    0: the end. *offset is where to append, and what to pass to log_truncate. *bad is 0 if only zeros follow, else
 *       equal to *offset: a record torn by a crash in the middle of a write, or damage with no whole record after it.
 *   -1: damage from *bad to *offset. The segment continues at *offset with a whole record, or ends there, if the header
 *       of the next segment says that this one was longer. (So all segments are added before the first is scanned.)
 * Takes time linear in the segment's size, whatever it contains. What cannot be read is damage too. At the end of a log
 * such damage is not taken for the trace of a crash: the log continues behind it, in a new segment. */
int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);
/* The same for a sealed segment while the log is in use. A record that is returned can be read. -1: something cannot be
 * read or is damaged, and *offset is behind it: behind one record, if its head can be read, else at the next whole
 * record. 2: LOG_SCAN_PIECE bytes of a larger record, or of what is behind damage, have been looked at; call again for
 * the next ones. Once the record has been returned, it is not checked again until another one is, or log_check_again
 * was called. */
#define LOG_SCAN_PIECE ((uint32_t)1 << 20)
int log_scan_sealed(struct log *log, uint32_t segment, uint64_t *offset, const struct record **record);
void log_check_again(struct log *log);
/* For how many missing segments this one was put there. */
uint32_t log_missing(const struct log *log, uint32_t segment);
/* The end of what is not zeros at or behind `offset`, a multiple of 8; `offset`: all are zeros. */
uint64_t log_written_until(const struct log *log, uint32_t segment, uint64_t offset);
/* Whether what lies from `offset`, where the whole records end, to `until` looks like a write that a killed process has
 * not finished: one record, of which the kernel has taken whole pages. *head is its head, or zeros if that is not
 * there. It is not checked but for its length. Damage looks so too if it is zeros, from the end of a page on, in the
 * last record. */
bool log_cut_short(const struct log *log, uint32_t segment, uint64_t offset, uint64_t until, struct record *head);
/* Before log_truncate: writes a record without body to where the log ends, and syncs it, so that it stands in the place
 * of what is cut off. False: nothing can be written to that segment. */
bool log_put_end(const struct log *log, uint64_t offset, struct record *head, const void *attributes);
/* Cuts a segment at recovery where log_scan said that it ends, so that nothing stale can follow what is appended. If
 * the file cannot be cut (XFS reads its last block for that, which may fail), zeros are written there instead, and the
 * log continues in a new segment (see log_uncut). False with errno if that fails too. */
bool log_truncate(struct log *log, uint32_t segment, uint64_t offset);
/* At recovery, instead of log_scan and log_truncate: a segment before the last is not read. Its records end where the
 * header of the next one says, or its file. */
void log_pass_over(struct log *log, uint32_t segment);
/* Why the segment could not be cut, an errno; 0: it was cut. */
int log_uncut(const struct log *log, uint32_t segment);

#endif
