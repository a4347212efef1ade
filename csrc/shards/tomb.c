/* Tombs: streams of topics that were deleted or emptied, which are freed piece by piece. Until then their messages count as alive,
 * so their segments stay; nobody can get them, and after a crash they are gone, as the log says. */
#include <stdlib.h>

#include "shards/requests.h"

struct tomb {
    struct tomb *next;
    struct worker *worker;
    struct shard *shard;
    struct stream stream;
};

static void let_go(void *context, uint64_t position) {
    const struct tomb *tomb = context;
    worker_step(tomb->worker);
    shard_count_out(tomb->shard, position);
}

bool tombs_clear(struct worker *w, uint32_t pages) {
    struct tomb *tomb = w->tombs;
    if (!tomb || stream_dismantle(&tomb->stream, pages, let_go, tomb)) return tomb != NULL;
    w->tombs = tomb->next;
    free(tomb);
    return w->tombs != NULL;
}

void tombs_free(struct worker *w) {
    for (struct tomb *tomb = w->tombs, *next; tomb; tomb = next) {
        next = tomb->next;
        stream_free(&tomb->stream);
        free(tomb);
    }
    w->tombs = NULL;
}

void stream_bury(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct tomb *tomb = malloc(sizeof *tomb);
    if (!tomb) worker_die("out of memory");
    *tomb = (struct tomb){.next = w->tombs, .worker = w, .shard = shard_of_topic(w, t), .stream = t->stream};
    bool retains = t->stream.retains;
    t->stream = (struct stream){.retains = retains};
    w->tombs = tomb;
    /* While the log is read back segments may be given up at once, and damage may have counts made anew. */
    while (w->replaying && w->tombs) (void)tombs_clear(w, UINT32_MAX);
}
