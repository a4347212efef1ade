/* A paused topic keeps its messages, which its subscriptions get when the pause ends. */
#ifndef MQ_SHARDS_PAUSE_H
#define MQ_SHARDS_PAUSE_H

#include "shards/worker_state.h"

/* Releases a message that the topic kept and no subscription has. The job queue may still have it. */
void topic_drop_kept(struct worker *w, uint32_t topic, uint64_t seq);
/* Pauses the topic, or ends the pause and gives the messages it kept to its subscriptions. */
enum outcome topic_pause(struct worker *w, uint32_t topic, bool stop, uint8_t *status);
/* Each turn: goes on giving them. True if there is more. */
bool releases_go_on(struct worker *w);
/* Gives nothing in this turn: those messages are being released by a request. */
void release_wait(struct worker *w, uint32_t topic);
/* Forgets the release of a deleted topic. */
void release_forget(struct worker *w, uint32_t topic);
void releases_free(struct worker *w);
/* During recovery: what a TOPIC record says about a pause. */
void replay_pause(struct worker *w, uint32_t topic, uint16_t flags, uint64_t stopped_seq);
/* During recovery: a record is about the delivery of a message that the topic keeps; the release that wrote it gave
 * such messages at once. */
void replay_release(struct worker *w, uint32_t topic, uint64_t seq);

#endif
