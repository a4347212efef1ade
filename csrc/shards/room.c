/* Room in the log for what a request writes; else whether the request waits for a segment, or what it is answered. */
#include "shards/room.h"

#include "log/large.h"
#include "shards/naming.h"

bool room_await(struct worker *w, struct shard *s, enum log_result result) {
    /* Whether a segment will come: also when a large message or group is complete. */
    bool comes = log_large_goes_on(s->log) || (log_wants_segment(s->log) && !s->refused);
    if (result != LOG_NO_SPACE || !comes) return false;
    w->wanting = s;
    return true;
}

enum outcome room_reserved(struct worker *w, struct shard *s, enum log_result result, bool publish, uint8_t *status) {
    *status = STATUS_OK;
    if (result == LOG_OK) return DONE;
    if (room_await(w, s, result)) return LATER;
    w->no_space = true;
    *status = publish ? STATUS_NO_SPACE : STATUS_FAILED;
    return DONE;
}

enum outcome room_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish,
                          uint8_t *status) {
    return room_reserved(w, s, shard_reserve(w, s, records, bytes, publish), publish, status);
}

enum outcome room_reserve_named(struct worker *w, uint32_t topic, uint32_t records, uint64_t bytes, uint8_t *status) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    return room_reserved(w, s, shard_reserve_named(w, s, topic, records, bytes), true, status);
}
