/* What the files that carry out requests share; see requests.c for the dispatch. Each function that takes a message of
 * the shard protocol does what it asks for and answers it; LATER: nothing was done, ask again when there is a segment; MORE: some
 * was done, as client.done and client.sheet say, ask again in the next turn.
 */
#ifndef MQ_REQUESTS_H
#define MQ_REQUESTS_H

#include "shards/worker.h"

enum outcome { DONE, LATER, MORE };

/* Room in the log, or why not: LATER if a segment is on its way, else the status to answer with. */
enum outcome requests_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish,
                              uint8_t *status);
/* The same for what is published to a topic, and where that goes the log names it. */
enum outcome requests_reserve_named(struct worker *w, uint32_t topic, uint32_t records, uint64_t bytes,
                                    uint8_t *status);

/* Whether room that there was none for is on its way: a segment that is wanted, or that which a large message is written to. */
bool requests_await(struct worker *w, struct shard *s, enum log_result result);
/* What a try to have that has come to. */
enum outcome requests_reserved(struct worker *w, struct shard *s, enum log_result result, bool publish,
                               uint8_t *status);

/* --- large.c --- */

/* What a message counts as that stands in line, and its body with it. */
static inline uint64_t held_bytes(const struct message *m) {
    return m->body_bytes > HELD_SMALL_BYTES ? m->body_bytes : 0;
}
/* There is no room for it to stand in line; there will be, for some of those who do go on with each turn. */
bool large_waits(const struct worker *w, uint32_t client, const struct message *m);

/* Writes some of a message that is published; MORE until all of its body is in the log. Then what is to be appended at once is what
 * shard_end_large says. */
enum outcome large_write(struct worker *w, uint32_t topic, const struct message *m, const void *content,
                         uint32_t content_bytes, uint64_t beside_bytes, uint8_t *status);
/* It is not published after all, if it is this one that is being written. */
void large_forget(struct worker *w, struct shard *s, uint64_t id);
/* One that a client who goes has published is written to its end. */
void large_leave(struct worker *w, uint32_t client);

/* As channel_send, of what stands in the shard's log: what is large is read from there as it moves into the ring. */
void large_send(struct channel *channel, const struct shard *s, const struct message *m, const void *body,
                size_t body_bytes);

/* --- answers.c --- */

struct message request_answer_of(const struct worker *w, uint32_t client, const struct message *m, uint8_t status);
void request_send(struct worker *w, uint32_t client, struct message *answer, const void *body, size_t body_bytes);
/* With a body that stands in the shard's log. */
void request_send_logged(struct worker *w, uint32_t client, const struct shard *s, struct message *answer,
                         const void *body, size_t body_bytes);
/* The answer to `count` PUBLISHes that are OK, JOINED_MOST at most, together with those before them if they may be joined. */
void request_joined(struct worker *w, uint32_t client, struct message *answer, uint32_t count);
/* With the request's id. */
void request_done(struct worker *w, uint32_t client, const struct message *m, uint8_t status);

/* --- opened.c --- */

/* The topic that an acceptor means by its number; 0: none. */
uint32_t opened_find(const struct worker *w, uint32_t acceptor, const struct message *m);
void opened_open(struct worker *w, uint32_t acceptor, const struct message *m);
void opened_forget(struct worker *w, uint32_t acceptor, const struct message *m);
/* A number of an acceptor's stands for nothing any more. */
void opened_close(struct worker *w, struct opened *opened);
/* While it is held a topic is listed. */
void opened_hold(struct worker *w, uint32_t topic);
void opened_let_go(struct worker *w, uint32_t topic);
/* A client holds what it uses and watches: its acceptor may close the number before the client hears of it. */
enum outcome opened_use(struct worker *w, uint32_t client, uint32_t topic, bool asked_for);
enum outcome opened_watch(struct worker *w, uint32_t client, uint32_t topic, bool asked_for);
void opened_ignore(struct worker *w, uint32_t client, uint32_t topic);

/* --- tube.c --- */

enum outcome tube_reserve(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_probe(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_take(struct worker *w, uint32_t client, const struct message *m);
void tube_reserve_id(struct worker *w, uint32_t client, const struct message *m);
void tube_give_back(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_delete(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_release(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_bury(struct worker *w, uint32_t client, const struct message *m);
void tube_touch(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_kick_id(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_kick(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void tube_peek_id(struct worker *w, uint32_t client, const struct message *m);
void tube_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- publish.c --- */

enum outcome publish(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome publish_each(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome publish_many(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
/* WITH_MORE: others follow at once, and who is due for them, or has too many by then, is looked for behind the last. */
enum stream_entry { ENTER_DELAYED = 1, ENTER_UNAWAITED = 2, ENTER_WITH_MORE = 4 };
/* A message that is in the log comes into its topic's stream, if that is where it goes. */
void stream_enter(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id, log_position position,
                  enum stream_entry how);
static inline bool goes_to_queue(const struct topic *t) {
    return !t->durable || t->tube;
}
/* ... and its job queue, if it goes there: there is room for its jobs. */
void queue_enter(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri, uint64_t delay_ns,
                 log_position position);
static inline bool goes_to_stream(const struct topic *t) {
    return t->durable && (t->subscription_count > 0 || !t->tube || t->stream.retains || t->keeps);
}
/* It keeps what is published there itself; what waits for no first subscription only for those that it has, or for whom its jobs come
 * to. */
static inline bool topic_keeps(const struct topic *t, uint64_t seq, bool unawaited) {
    return t->keeps && seq >= t->stopped_seq && (t->subscription_count || t->tube || !unawaited);
}
/* Those that there are the log does not know. */
static inline bool only_ephemeral(const struct topic *t) {
    return t->ephemeral_count > 0 && t->subscription_count == t->ephemeral_count;
}

/* --- drain.c: what an EMPTY, a SEEK or a DELETE would have to let go of in one turn --- */

/* A channel's: what lies ahead of it before `until`, and its deliveries; those that a SEEK to `from` keeps stay. MORE, or little
 * is left. */
enum outcome subscription_drain(struct worker *w, uint32_t client, uint32_t subscription, uint64_t until,
                                uint64_t from);
/* The deliveries of all channels of a topic. */
enum outcome topic_drain(struct worker *w, uint32_t client, uint32_t topic);

/* --- handover.c: a backlog comes to a first channel, or to a tube, piece by piece --- */

/* The subscription is made, and its number is nobody's else's. */
void handover_to_channel(struct worker *w, uint32_t topic, uint32_t subscription, bool to_join);
/* What is there from a seq on; when channels that go have let go of what they had. */
void handover_to_queue(struct worker *w, uint32_t topic, uint64_t from);
/* What asks for the topic's channels, or changes them or it, has to wait (MORE). */
bool handover_goes_on(const struct topic *t);
/* Of a channel that is unlinked: what it had is let go of. */
void handover_from_channel(struct worker *w, uint32_t topic, uint32_t subscription);
/* Its topic is gone; or the channel that this is, if it is to that one. */
void handover_forget(struct worker *w, uint32_t topic, uint32_t subscription);
/* In each turn, after those who wait have been asked again. True if there is more. */
bool handovers_go_on(struct worker *w);
void handovers_free(struct worker *w);

/* --- topic_life.c --- */

/* A message that waited for a first channel is the job queue's now; one that its topic keeps is that too. */
void waiting_becomes_job(struct worker *w, uint32_t topic, uint64_t seq);

enum outcome topic_make_durable(struct worker *w, uint32_t topic, uint8_t *status);
/* Room for its record, which is to be written anew; `more`: as a publish has it, what comes of it frees none on a full disk. */
enum outcome topic_reserve(struct worker *w, uint32_t topic, bool more, uint8_t *status);
/* Somebody wants its job queue: what waits for a first subscription goes there. It is no tube yet if the log has no room to say so; LATER:
 * that is on its way. MORE: others have had what this turn may touch, and nothing has changed. */
enum outcome topic_make_tube(struct worker *w, uint32_t topic);
static inline enum outcome topic_want_tube(struct worker *w, uint32_t topic) {
    return topic_at(&w->topics, topic)->tube ? DONE : topic_make_tube(w, topic);
}
/* A channel that is asked for; `start` NULL: it begins as a channel does. */
struct channel_wish {
    const char *name;
    size_t name_bytes;
    bool ephemeral;
    bool to_join; /* without consumers it is not wanted */
    const struct subscribe_start *start;
};
/* The channel of that name, made if there is none. */
enum outcome topic_subscription(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                uint32_t *subscription, uint8_t *status);
/* Nobody consumes from it any more: an ephemeral one goes, and its topic if that is too. */
void subscription_idle(struct worker *w, uint32_t subscription);
/* All that it holds, its jobs and its subscriptions go. */
void topic_end(struct worker *w, uint32_t topic);
/* What waits for the first subscription, or is kept by the topic itself, goes: from *from, which is moved on, and before
 * `until`, so many at most. False: there is more. */
bool topic_empty(struct worker *w, uint32_t topic, uint64_t *from, uint64_t until, uint32_t most);
/* A message of the job queue that the topic's first subscription, made at `wall_ns`, gets too. */
void subscription_adopt(struct worker *w, uint32_t subscription, uint32_t job, uint64_t wall_ns);
/* Job gone (out of every state), and the message with it unless a subscription holds it. */
void job_done(struct worker *w, uint32_t job, uint64_t seq);
/* While the log is read back: a message is, and with it all that is left of its jobs. */
void jobs_done(struct worker *w, uint32_t job, uint64_t seq);
enum outcome change(struct worker *w, uint32_t client, const struct message *m);

/* --- pause.c --- */

/* One of the topic's own is so no more, and no subscription's. The job queue may have it, which needs no stream for it. */
void topic_drop_kept(struct worker *w, uint32_t topic, uint64_t seq);
/* What it keeps is given to who is there now; or it is paused. */
enum outcome topic_pause(struct worker *w, uint32_t topic, bool stop, uint8_t *status);
/* In each turn. True if there is more. */
bool releases_go_on(struct worker *w);
/* Not in this turn: what it would give is being let go of. */
void release_wait(struct worker *w, uint32_t topic);
/* Its topic is gone. */
void release_forget(struct worker *w, uint32_t topic);
void releases_free(struct worker *w);
/* While the log is read back: what a TOPIC says. */
void replay_pause(struct worker *w, uint32_t topic, uint16_t flags, uint64_t stopped_seq);
/* A record is about a delivery of a message that the topic keeps: who wrote it gave that at once. */
void replay_release(struct worker *w, uint32_t topic, uint64_t seq);

/* --- retain.c --- */

/* It retains from now on. */
enum outcome topic_retain(struct worker *w, uint32_t topic, uint8_t *status);
/* The same, and the log has all that somebody may go back to: MORE, or LATER, as long as it has not. */
enum outcome topic_retain_all(struct worker *w, uint32_t topic, uint8_t *status);
/* It does so no more, or not yet: while the log is read back. */
void topic_retains(struct worker *w, uint32_t topic, uint64_t incarnation, uint64_t began_seq);
void topic_retains_no_more(struct worker *w, uint32_t topic);
/* Of one that retains: what only ephemeral channels have, and the job queue, is written anew from now on. */
void topic_keep_for_all(struct worker *w, uint32_t topic);
/* In each turn. True if there is more. */
bool keepings_go_on(struct worker *w);
void keepings_free(struct worker *w);

/* --- position.c --- */

/* The seq that is meant. */
uint64_t position_find(const struct worker *w, uint32_t topic, uint32_t start, uint64_t at);
enum outcome seek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome tell_position(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void peek_seq(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- compacted.c --- */

void scan(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome compact(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
/* Where the topic's compacted view ends, to a client that may have to wait (MORE). */
enum outcome compacted_position(struct worker *w, uint32_t client, const struct topic *t, struct position *out);

/* --- transactions.c --- */

/* What a PUBLISH brings; there is room for it. */
void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t id, const void *content,
                       uint32_t content_bytes);
enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- acknowledge.c --- */

enum outcome transaction_acknowledge(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void transaction_pending(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- consume.c --- */

enum outcome subscribe(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void consumer_close(struct worker *w, uint32_t client, const struct message *m);
/* All that a client is. */
void consumers_gone(struct worker *w, uint32_t client);
/* Its channel is gone. */
void consumer_dismiss(struct worker *w, uint32_t consumer, enum dismissed why);
void consumer_credit(struct worker *w, uint32_t client, const struct message *m);
void consumer_sent(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_finish(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_requeue(struct worker *w, uint32_t client, const struct message *m);
void consumer_extend(struct worker *w, uint32_t client, const struct message *m);

/* --- attach.c --- */

enum outcome attach(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void detach(struct worker *w, uint32_t client, const struct message *m);

/* --- stats.c --- */

void tube_pause(struct worker *w, uint32_t client, const struct message *m);
void stats_topic(struct worker *w, uint32_t client, const struct message *m);
void stats_id(struct worker *w, uint32_t client, const struct message *m);

/* --- oldest.c --- */

enum outcome oldest(struct worker *w, uint32_t client, const struct message *m);

/* --- catalog.c --- */

enum outcome catalog(struct worker *w, uint32_t client, const struct message *m);
void list(struct worker *w, uint32_t client, const struct message *m);
enum outcome transactions_list(struct worker *w, uint32_t client, const struct message *m);
void rings(struct worker *w, uint32_t client, const struct message *m);
/* What is counted of topics and channels from now on is told apart from what was read back. */
void catalog_begins(struct worker *w);
void sheet_free(struct client *c);
/* What is made or deleted is to be noticed by who follows it. */
void catalog_changed(struct worker *w);
/* A topic has its first messages. */
void catalog_heard(struct worker *w, uint32_t topic);

#endif
