#define _GNU_SOURCE
#include "log/scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/layout.h"
#include "log/records.h"

/* --- one record --------------------------------------------------------------------------------------------------- */

static bool sound(const struct record *r) {
    return r->kind != 0 && r->bytes >= sizeof *r + r->attribute_bytes;
}

static bool crc_right(const uint8_t *at, const struct record *r, uint32_t segment) {
    uint32_t seed[2] = {r->bytes, segment};
    uint32_t crc = crc32c_extend(0, seed, sizeof seed);
    return crc32c_extend(crc, at + sizeof seed, r->bytes - sizeof seed) == r->crc;
}

static size_t stride(const struct record *r) {
    return ((size_t)r->bytes + 7) & ~(size_t)7;
}

static void note(const struct scan_columns *out, size_t i, const struct record *r, size_t offset) {
    if (out->kind) out->kind[i] = r->kind;
    if (out->attribute_bytes) out->attribute_bytes[i] = r->attribute_bytes;
    if (out->flags) out->flags[i] = r->flags;
    if (out->topic) out->topic[i] = r->topic;
    if (out->seq) out->seq[i] = r->seq;
    if (out->time_ns) out->time_ns[i] = r->time_ns;
    if (out->id) out->id[i] = r->id;
    if (out->offset) out->offset[i] = offset;
    if (out->bytes) out->bytes[i] = r->bytes;
}

static bool wanted(uint64_t kinds, uint8_t kind) {
    return kind < 64 && (kinds >> kind & 1);
}

/* --- many --------------------------------------------------------------------------------------------------------- */

void scan_records(const uint8_t *base, size_t bytes, uint32_t segment, bool check, uint64_t kinds,
                  const struct scan_columns *out, size_t room, struct scan_result *result) {
    const struct scan_columns columns = *out; /* a copy, as the compiler must assume that stores change *out */
    size_t offset = 0, records = 0;
    uint32_t stop;
    *result = (struct scan_result){0};
    for (;;) {
        struct record r = {0};
        size_t left = bytes - offset;
        memcpy(&r, base + offset, left < sizeof r ? left : sizeof r);
        if (left >= sizeof r.bytes && r.bytes == 0) {
            stop = SCAN_END;
            break;
        }
        if (left < sizeof r) {
            stop = SCAN_PART;
            result->needs = r.bytes > sizeof r ? r.bytes : sizeof r;
            break;
        }
        stop = SCAN_BAD;
        if (!sound(&r)) break;
        if (stride(&r) > left) {
            stop = SCAN_PART;
            result->needs = stride(&r);
            break;
        }
        if (check && !crc_right(base + offset, &r, segment)) break;
        if (wanted(kinds, r.kind)) {
            if (records == room) {
                stop = SCAN_FULL;
                break;
            }
            note(&columns, records++, &r, offset);
        }
        offset += stride(&r);
    }
    result->records = records;
    result->offset = offset;
    result->stop = stop;
}

bool scan_plausible(const struct record *r, size_t left) {
    return sound(r) && stride(r) <= left && r->kind < RECORD_KINDS && r->flags < 2 * TOPIC_RELEASES &&
           r->attribute_bytes <= sizeof(struct moved_attributes);
}

size_t scan_find(const uint8_t *base, size_t bytes, size_t from, uint32_t segment) {
    size_t effort = bytes * SCAN_EFFORT;
    for (size_t offset = from; offset + sizeof(struct record) <= bytes; offset += 8) {
        struct record r;
        memcpy(&r, base + offset, sizeof r);
        if (!scan_plausible(&r, bytes - offset)) continue;
        if (crc_right(base + offset, &r, segment)) return offset;
        if (r.bytes > effort) return bytes;
        effort -= r.bytes;
    }
    return bytes;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static bool read_all(int fd, uint8_t *out, size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        ssize_t n = pread(fd, out, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        out += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* Reading a gap of this size between two pieces costs less than another system call. */
enum { GAP_BYTES = 16 << 10 };

/* How many pieces, from the first on, are read with one call. */
static size_t together(const uint64_t *offset, const uint32_t *length, size_t count, size_t scratch_bytes) {
    size_t n = 1;
    while (n < count && offset[n] >= offset[n - 1] + length[n - 1] &&
           offset[n] - (offset[n - 1] + length[n - 1]) <= GAP_BYTES &&
           offset[n] + length[n] - offset[0] <= scratch_bytes)
        n++;
    return n;
}

bool scan_gather_file(int fd, const uint64_t *offset, const uint32_t *length, size_t count, uint8_t *out,
                      uint8_t *scratch, size_t scratch_bytes) {
    while (count > 0) {
        size_t n = together(offset, length, count, scratch_bytes);
        if (n == 1) {
            if (!read_all(fd, out, length[0], offset[0])) return false;
            out += length[0];
        } else {
            uint64_t from = offset[0];
            if (!read_all(fd, scratch, offset[n - 1] + length[n - 1] - from, from)) return false;
            for (size_t i = 0; i < n; i++) {
                memcpy(out, scratch + (offset[i] - from), length[i]);
                out += length[i];
            }
        }
        offset += n;
        length += n;
        count -= n;
    }
    return true;
}
