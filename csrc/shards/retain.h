/* Messages that a topic retains though nobody holds them. */
#ifndef MQ_SHARDS_RETAIN_H
#define MQ_SHARDS_RETAIN_H

#include "shards/worker_state.h"

/* After segments were dropped, forget the messages retained in them, a piece a turn. True: there is more. */
void shard_forget_retained(struct worker *w, struct shard *s);
bool shards_forget_retained(struct worker *w);

/* The topic retains messages from now on; MORE while a handover goes on, or a channel lets go of its messages. */
enum outcome topic_retain(struct worker *w, uint32_t topic, uint8_t *status);
/* The same, and the log has all messages that a client may go back to; MORE or LATER until it has. */
enum outcome topic_retain_all(struct worker *w, uint32_t topic, uint8_t *status);
/* During recovery: the topic retains; or no longer. */
void topic_retains(struct worker *w, uint32_t topic, uint64_t incarnation, uint64_t began_seq);
void topic_retains_no_more(struct worker *w, uint32_t topic);
/* The first seq that a channel may still come to, or will when the topic's pause ends. */
uint64_t topic_passed_by_all(struct worker *w, uint32_t topic);
/* The message of a job enters the stream of its topic, which retains; `passed` is topic_passed_by_all. False: it is
 * there, or cannot be read. */
bool topic_join_job(struct worker *w, uint32_t job, uint64_t passed);
/* The messages of all jobs enter, a piece a turn. */
void topic_join_jobs(struct worker *w, uint32_t topic);
/* From now on messages that only ephemeral channels or the job queue have are written to the log again, for a topic
 * that retains. */
void topic_keep_for_all(struct worker *w, uint32_t topic);
/* Each turn: goes on writing them. True if there is more. */
bool keepings_go_on(struct worker *w);
void keepings_free(struct worker *w);

#endif
