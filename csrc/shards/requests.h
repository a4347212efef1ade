/* Shared by the files that carry out requests; requests.c calls them. Each function that takes a message of the shard
 * protocol carries it out and answers it. LATER: nothing was done; call again when there is a segment. MORE: some was
 * done, as client.done and client.sheet say; call again in the next turn.
 */
#ifndef MQ_REQUESTS_H
#define MQ_REQUESTS_H

#include <string.h>

#include "shards/handover.h"
#include "shards/worker.h"

enum outcome { DONE, LATER, MORE };

/* --- room.c --- */

/* Reserves room in the log. If there is none: LATER if a segment is on its way, else the status to answer with. */
enum outcome room_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish,
                          uint8_t *status);
/* The same for a publish; the segment it goes to will name the topic. */
enum outcome room_reserve_named(struct worker *w, uint32_t topic, uint32_t records, uint64_t bytes, uint8_t *status);

/* Whether room will come: a segment that was asked for, or the one that a large message is being written to. */
bool room_await(struct worker *w, struct shard *s, enum log_result result);
/* The outcome of an attempt to reserve. */
enum outcome room_reserved(struct worker *w, struct shard *s, enum log_result result, bool publish, uint8_t *status);

/* --- large.c --- */

/* What a waiting message and its body count as. */
static inline uint64_t held_bytes(const struct message *m) {
    return m->body_bytes > HELD_SMALL_BYTES ? m->body_bytes : 0;
}
/* Whether there is no room for another large message to wait; with each turn some of the waiting ones get done. */
bool large_waits(const struct worker *w, uint32_t client, const struct message *m);

struct large_message {
    uint64_t id;
    const uint8_t *content;
    uint32_t content_bytes;
    uint8_t attribute_bytes; /* of its record */
    bool is_staged;          /* the content is that of a transaction's record in the log, not of a request */
    log_position from;       /* where it stands in the log, if it is to be moved; 0: it is not there yet */
    uint64_t beside_bytes;   /* of the record of its producer; 0: none */
    uint64_t behind_bytes;   /* of the records that follow it when it is moved */
};
/* Writes a piece of a large message; MORE until all of its content is in the log. Then the records that shard_end_large
 * has made room for must be appended at once. */
enum outcome large_write(struct worker *w, uint32_t topic, const struct large_message *large, uint8_t *status);
/* How much of the message's content is in the log. */
uint64_t large_written(const struct shard *s, uint64_t id);
/* Gives the pages of a body that has been used back to the kernel. */
void large_give_back(const uint8_t *from, const uint8_t *until);
/* Gives up a large publish, if it is the one being written. */
void large_forget(struct worker *w, struct shard *s, uint64_t id);

/* --- large_left.c --- */

/* The client has gone: its large publish is still written to its end. */
void large_leave(struct worker *w, uint32_t client);

/* --- compact.c --- */

/* Moves the message at a position, if still alive: its record must be readable. LATER: no room, or it must wait. MORE:
 * it is large, and moves a piece a turn. */
enum outcome shard_move_from(struct worker *w, struct shard *s, log_position position);
/* Moves a message of the topic's stream, as if its segment were to be dropped; `r` must be readable. As above. */
enum outcome shard_move_message(struct worker *w, struct shard *s, uint32_t topic, const struct record *r);
/* Each turn, while s->large_from says that a message is being moved: moves a piece of it, or gives it up. */
void shard_move_piece(struct worker *w, struct shard *s);

/* --- answers.c --- */

struct message request_answer_of(const struct worker *w, uint32_t client, const struct message *m, uint8_t status);
void request_send(struct worker *w, uint32_t client, struct message *answer, const void *body, size_t body_bytes);
/* As channel_send for a body in the shard's log: a large one is read from there as it moves into the ring. */
void request_send_lent(struct channel *channel, const struct shard *s, const struct message *m, const void *body,
                       size_t body_bytes);
/* Answers with a body that is in the shard's log. */
void request_send_logged(struct worker *w, uint32_t client, const struct shard *s, struct message *answer,
                         const void *body, size_t body_bytes);
/* Answers `count` PUBLISHes with OK, JOINED_MOST at most, joined with the answers before them if possible. */
void request_joined(struct worker *w, uint32_t client, struct message *answer, uint32_t count);
/* Answers with a status and the request's id. */
void request_done(struct worker *w, uint32_t client, const struct message *m, uint8_t status);

/* --- opened.c --- */

/* The topic that is bound to an acceptor's number; 0: none. */
uint32_t opened_find(const struct worker *w, uint32_t acceptor, const struct message *m);
void opened_open(struct worker *w, uint32_t acceptor, const struct message *m);
void opened_forget(struct worker *w, uint32_t acceptor, const struct message *m);
/* Unbinds an acceptor's number. */
void opened_close(struct worker *w, struct opened *opened);
/* Adds a reference to a topic, which is listed while it has any. */
void opened_hold(struct worker *w, uint32_t topic);
void opened_let_go(struct worker *w, uint32_t topic);
/* A client has references to the topics it uses and watches, because its acceptor may close a number before the client
 * learns of it. */
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

/* --- enter.c: a logged message enters its topic --- */

/* WITH_MORE: further messages follow at once; subscriptions that are due, or too far behind, are looked for after the
 * last one. */
enum stream_entry { ENTER_DELAYED = 1, ENTER_UNAWAITED = 2, ENTER_WITH_MORE = 4 };
/* Puts a message into its topic's stream, if it belongs there. */
void stream_enter(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id, log_position position,
                  enum stream_entry how);
static inline bool goes_to_queue(const struct topic *t) {
    return !t->durable || t->tube;
}
/* Puts it into the topic's job queue, if it belongs there. There must be room for its jobs. */
void queue_enter(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri, uint64_t delay_ns,
                 log_position position);
static inline bool goes_to_stream(const struct topic *t) {
    return t->durable && (t->subscription_count > 0 || !t->tube || t->stream.retains || t->keeps);
}
/* Whether the topic itself keeps a message, as it is paused. `unawaited`: the message waits for no first subscription,
 * and is only kept if there are subscriptions or a tube. */
static inline bool topic_keeps(const struct topic *t, uint64_t seq, bool unawaited) {
    return t->keeps && seq >= t->stopped_seq && (t->subscription_count || t->tube || !unawaited);
}
/* Whether all its subscriptions are ephemeral, so that the log does not know them. */
static inline bool only_ephemeral(const struct topic *t) {
    return t->ephemeral_count > 0 && t->subscription_count == t->ephemeral_count;
}

/* --- drain.c: releasing messages piece by piece, before an EMPTY, a SEEK or a DELETE --- */

/* Releases some of a channel's messages: those ahead of it before `until`, and its deliveries, except those that a SEEK
 * to `from` keeps. MORE, or DONE when few are left. */
enum outcome subscription_drain(struct worker *w, uint32_t client, uint32_t subscription, uint64_t until,
                                uint64_t from);
/* The same for the deliveries of all channels of a topic. */
enum outcome topic_drain(struct worker *w, uint32_t client, uint32_t topic);

/* --- many.c --- */

/* Whether a PUBLISH_MANY has begun to be written as a group, so that it goes on even if the client leaves. */
bool many_is_begun(const struct client *c);

/* --- backlog.c --- */

/* Makes a job of a message that waited for a first channel, or that its topic keeps. */
void topic_waiting_becomes_job(struct worker *w, uint32_t topic, uint64_t seq);
/* Gives a job's message to the topic's first subscription, made at `wall_ns`, as well. */
void subscription_adopt(struct worker *w, uint32_t subscription, uint32_t job, uint64_t wall_ns);

/* --- durable.c --- */

/* Whether the name says that its topic or channel is ephemeral. */
static inline bool topic_ends_ephemeral(const char *name, size_t bytes) {
    static const char END[] = "#ephemeral";
    return bytes > sizeof END - 1 && memcmp(name + bytes - (sizeof END - 1), END, sizeof END - 1) == 0;
}
enum outcome topic_make_durable(struct worker *w, uint32_t topic, uint8_t *status);
/* Reserves room to write the topic's record again, the last of which counts; `more`: as for a publish, since it will
 * free none on a full disk. */
enum outcome topic_reserve(struct worker *w, uint32_t topic, bool more, uint8_t *status);
/* During recovery: the topic is durable. */
void replay_durable(struct worker *w, uint32_t topic, bool ephemeral);

/* --- topic_life.c --- */

/* Makes the topic a tube, as a client wants one: messages that wait for a first subscription become jobs. It is no tube
 * yet if the log has no room for the record; LATER: room will come. MORE: nothing was done, as others have used up this
 * turn. */
enum outcome topic_make_tube(struct worker *w, uint32_t topic);
static inline enum outcome topic_want_tube(struct worker *w, uint32_t topic) {
    return topic_at(&w->topics, topic)->tube ? DONE : topic_make_tube(w, topic);
}
/* A channel that is asked for; `start` NULL: it begins as NSQ's channels do. */
struct channel_wish {
    const char *name;
    size_t name_bytes;
    bool ephemeral;
    bool to_join; /* without consumers it is not wanted */
    const struct subscribe_start *start;
};
/* Finds or makes the channel of that name. */
enum outcome topic_subscription(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                uint32_t *subscription, uint8_t *status);
/* The channel has no consumers any more: an ephemeral one is removed, and its topic if that is ephemeral too. */
void subscription_idle(struct worker *w, uint32_t subscription);
/* Removes a topic's messages, jobs and subscriptions. */
void topic_end(struct worker *w, uint32_t topic);
/* Releases messages that wait for the first subscription, or are kept by the topic itself, from *from, which advances,
 * and before `until`, `most` at most. False: there are more. */
bool topic_empty(struct worker *w, uint32_t topic, uint64_t *from, uint64_t until, uint32_t most);
/* Each turn, after parked requests have been tried again: goes on with handovers. True if there is more. */
bool handovers_go_on(struct worker *w);
/* A job in no state is done: frees it, and the message unless a subscription refers to it. */
void job_done(struct worker *w, uint32_t job, uint64_t seq);
/* During recovery: a message is done, with all its remaining jobs. */
void jobs_done(struct worker *w, uint32_t job, uint64_t seq);
enum outcome topic_change(struct worker *w, uint32_t client, const struct message *m);

/* --- pause.c --- */

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

/* --- retain.c --- */

/* The topic retains messages from now on. */
enum outcome topic_retain(struct worker *w, uint32_t topic, uint8_t *status);
/* The same, and the log has all messages that a client may go back to; MORE or LATER until it has. */
enum outcome topic_retain_all(struct worker *w, uint32_t topic, uint8_t *status);
/* During recovery: the topic retains; or no longer. */
void topic_retains(struct worker *w, uint32_t topic, uint64_t incarnation, uint64_t began_seq);
void topic_retains_no_more(struct worker *w, uint32_t topic);
/* From now on messages that only ephemeral channels or the job queue have are written to the log again, for a topic
 * that retains. */
void topic_keep_for_all(struct worker *w, uint32_t topic);
/* Each turn: goes on writing them. True if there is more. */
bool keepings_go_on(struct worker *w);
void keepings_free(struct worker *w);

/* --- position.c --- */

enum outcome position_seek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome position_tell(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void position_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome position_backlog(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- compacted.c --- */

void compacted_scan(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome compacted_make(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
/* Where the topic's compacted view ends, to a client that may have to wait (MORE). */
enum outcome compacted_position(struct worker *w, uint32_t client, const struct topic *t, struct position *out);

/* --- commit.c --- */

/* Stages the message of a PUBLISH, for which there must be room. */
void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t id, const void *content,
                       uint32_t content_bytes);
enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- acknowledge.c --- */

enum outcome transaction_acknowledge(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void transaction_pending(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* --- consume.c --- */

enum outcome consumer_subscribe(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void consumer_close(struct worker *w, uint32_t client, const struct message *m);
/* Removes the next consumer of a client that has left. False: it has none. */
bool consumer_leave_client(struct worker *w, uint32_t client);
/* Delivers nothing more to a client's consumers. What is in flight to them no longer counts for its acceptor. */
void consumers_stop(struct worker *w, uint32_t client);
void consumer_credit(struct worker *w, uint32_t client, const struct message *m);
void consumer_sent(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_finish(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_requeue(struct worker *w, uint32_t client, const struct message *m);
void consumer_extend(struct worker *w, uint32_t client, const struct message *m);

/* --- dismiss.c --- */

/* Removes a consumer; another may be the active one now. */
void consumer_leave(struct worker *w, uint32_t consumer);
/* Ends a consumer whose channel is gone or was moved. */
void consumer_dismiss(struct worker *w, uint32_t consumer, enum dismissed why);

/* --- attach.c --- */

enum outcome attach(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void attach_end(struct worker *w, uint32_t client, const struct message *m);

/* --- stats.c --- */

void tube_pause(struct worker *w, uint32_t client, const struct message *m);
void stats_topic(struct worker *w, uint32_t client, const struct message *m);
void stats_id(struct worker *w, uint32_t client, const struct message *m);

/* --- oldest.c --- */

enum outcome oldest(struct worker *w, uint32_t client, const struct message *m);

/* --- catalog.c --- */

enum outcome catalog(struct worker *w, uint32_t client, const struct message *m);
void catalog_list(struct worker *w, uint32_t client, const struct message *m);
enum outcome transactions_list(struct worker *w, uint32_t client, const struct message *m);
void catalog_rings(struct worker *w, uint32_t client, const struct message *m);
/* Recovery is over: from now on topics and channels count new messages apart from recovered ones. */
void catalog_begins(struct worker *w);
void sheet_free(struct client *c);
/* The topic has got its first messages. */
void catalog_heard(struct worker *w, uint32_t topic);

#endif
