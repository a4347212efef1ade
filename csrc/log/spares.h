/* Segments in memory in which nothing is alive any more, kept for a while so that the next segments can be made of
 * them.
 *
 * The kernel takes and clears a page for each 4 KiB of a file in memory that are written for the first time, which
 * takes some ten times as long as copying a record there (docs/costs.md). A segment that was another before has its
 * pages.
 *
 * It also has the bytes of before, and what follows a log's end must be zeros. So they are cleared piece by piece, just
 * before records are written there. How far, the offset of the file's descriptor tells, which outlives the process:
 * who takes over such a segment cuts it there first (shards/memory.py). An offset of 0: the file holds nothing stale.
 *
 * Owns: the files and mappings that it keeps. Must never: keep a segment that is mapped elsewhere too (log_map_apart).
 */
#ifndef MQ_SPARES_H
#define MQ_SPARES_H

#include <stdbool.h>
#include <stdint.h>

enum { SPARES_MOST = 16 };
/* One that was not needed for so long is given back to the system; so are pages of segments that fill slowly. */
#define SPARES_KEPT_NS ((uint64_t)4000000000)

struct segment;
struct log;

struct spares {
    struct spare {
        int fd;
        uint8_t *map;
        uint64_t map_bytes;
        uint64_t bytes; /* of the file: all stale */
    } items[SPARES_MOST];
    uint32_t count;
    uint32_t least; /* the fewest there were since then: so many were not needed */
    uint64_t since_ns;
    uint32_t going; /* so many, the first ones, are being given back */
};

void spares_free(struct spares *spares);

/* Keeps the file and the mapping of a segment that its log closes. False: the caller must close them. `spares` may be
 * NULL. */
bool spares_keep(struct spares *spares, const struct segment *s);
/* Returns the descriptor of a file that the next segment can be made of, or -1. It remains a spare until it is used.
 * The file begins with zeros, so that it counts as a segment that nothing was written to. */
int spares_next(struct spares *spares);
/* Makes a segment of a spare with this descriptor. False: there is none. `spares` may be NULL. */
bool spares_use(struct spares *spares, int fd, struct segment *s);
/* Gives back what was not needed, a piece at a time; true: there is more. */
bool spares_trim(struct spares *spares, uint64_t now_ns);
/* The same for what a log's last segments have that is stale, when it would take long to reach it. */
bool spares_trim_log(struct log *log, uint64_t now_ns);

/* Moves what is allocated of a segment up to `target`, or to the end of what is stale, and clears that part. */
void spares_clear(struct segment *s, uint64_t target);
/* Frees what is stale in a segment, `most` bytes of it at most. False with errno. */
bool spares_cut(struct segment *s, uint64_t most);

#endif
