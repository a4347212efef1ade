/* A channel: messages over a pair of rings, in both directions, between one acceptor and one worker.
 *
 * Owns the mappings of the two rings on this side, an overflow queue for messages that did not fit, and a buffer in
 * which a message that was sent in fragments is assembled. Sending never blocks and never fails: messages that the ring
 * has no room for wait in the overflow queue, in order. The sender must therefore check channel_backlogged(), and
 * accept no work that feeds this channel while it is true; that bounds the overflow. The side that sends requests (the
 * acceptor) must continue to receive all the same. Otherwise two full rings that face each other would stand still for
 * ever.
 *
 * The other side sees nothing of what was sent before channel_publish(). `channel_tail()` and `channel_publish_to()`
 * let a worker hold back replies until the log has been synced: it publishes up to a tail taken earlier, and no
 * further. A tail is a position in the stream of all that was ever sent, whether it now lies in the ring or in the
 * overflow queue.
 *
 * All fragments of one message come before those of the next; other messages may come between. So one assembly buffer
 * for each direction is enough. A message pointer from channel_receive() is 8-byte aligned and valid until the next
 * channel_receive() or channel_release().
 *
 * A turn of a process's loop over its channels:
 *
 *     drain the wake eventfd (before looking at any ring: a wake-up drained after the look would be lost)
 *     channel_backlogged(), then channel_receive() ... channel_send() ... of every channel
 *     channel_release(), channel_publish()
 *     channel_may_sleep() of every channel; epoll_wait, without a timeout if all said true, else with 0
 *     channel_awake() of every channel
 */
#ifndef MQ_CHANNEL_H
#define MQ_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ringbuf/message.h"

struct channel;

/* `out_fd` and `in_fd` are the memfds of the rings that this side produces to and consumes from (formatted by
 * ring_format before); `peer_wake_fd` is the eventfd (EFD_NONBLOCK; or -1: the peer polls) that wakes the other side's
 * process. None of the fds is kept: the caller may close them. NULL with errno when a ring is not valid.
 * `max_message_bytes` is the largest body that is accepted, which bounds what a peer can make this side assemble; no
 * body that the peer rightly sends may be larger. */
struct channel *channel_open(int out_fd, int in_fd, int peer_wake_fd, size_t max_message_bytes);
void channel_close(struct channel *channel);

/* From now on received messages stay in place until channel_release(). Otherwise receiving a message in fragments gives
 * the room of earlier ones back; with this, the receiver does not begin such a message before channel_release(). */
void channel_hold(struct channel *channel);

/* Sends a copy of header and body. header->body_bytes must equal body_bytes. Without a body, zeros at the header's end
 * are not put in the ring; the receiver gets the whole header all the same. */
void channel_send(struct channel *channel, const struct message *header, const void *body, size_t body_bytes);

/* Memory with a body that is lent to the channel. When the whole body has moved into the ring, the channel calls
 * give_back. Before that, pages that have been moved completely are returned to the kernel (MADV_DONTNEED). */
struct lent {
    uint8_t *at;
    size_t bytes;
    void (*give_back)(void *owner, void *at, size_t bytes);
    void *owner;
};
/* As channel_send, for a body that takes several records: it is copied piece by piece, in each channel_publish, into
 * half of the ring; the other half is left to other messages. Messages sent meanwhile overtake it, except those of its
 * connection and those behind a waiting MSG_CLOSE or MSG_OPEN. False, with nothing done: the caller must use
 * channel_send. */
bool channel_lend(struct channel *channel, const struct message *header, const void *body, size_t body_bytes,
                  const struct lent *lent);

/* As channel_send, for callers that write the message themselves: returns where to write header and body (48 +
 * body_bytes contiguous bytes, 8-byte aligned), or NULL if the caller must use channel_send (too large, or no room
 * now). The message must be completed with channel_sent() before anything else is sent. */
struct message *channel_reserve(struct channel *channel, size_t body_bytes);
void channel_sent(struct channel *channel);

/* As channel_send, for a body in two pieces: header->body_bytes must be the sum of both. Asks for memory only if there
 * is no room in the ring now. */
void channel_send_prefixed(struct channel *channel, const struct message *header, const void *prefix,
                           size_t prefix_bytes, const void *body, size_t body_bytes);

/* A message in one record of the ring that may still be made longer: possible as long as nothing was sent since and the
 * other side cannot have seen it. Kept by the sender, who knows what the message is; all zeros at first. */
struct growing {
    struct message *message; /* valid while channel_grows() */
    uint64_t place, tail;    /* channel_tail() before and after the message */
};
bool channel_grows(const struct channel *channel, const struct growing *growing);
/* Makes the body of a growing message `bytes` bytes longer, and returns where these begin. The body's length and
 * `bytes` are multiples of 8. NULL, with nothing changed: there is no room. */
void *channel_grow(struct channel *channel, struct growing *growing, size_t bytes);

/* Moves overflow into the ring as far as there is room, and publishes those parts that channel_publish() covered
 * already. True while some overflow is left, or much waits behind lent bodies. */
bool channel_backlogged(struct channel *channel);
/* Frees memory that was kept for the overflow and that nothing needed for a second. Returns how many bytes. */
size_t channel_trim(struct channel *channel, uint64_t now_ns);
/* How many bytes wait in the overflow queue. */
uint64_t channel_overflow(const struct channel *channel);

uint64_t channel_tail(const struct channel *channel);
/* Whether the other side cannot see yet what was sent from `place` on: what of it lies in the ring may be changed. */
bool channel_unseen(const struct channel *channel, uint64_t place);
/* Makes what was sent visible and wakes the peer if it sleeps. True if anything new became visible. What still lies in
 * the overflow queue becomes visible when it moves into the ring. */
bool channel_publish(struct channel *channel);
bool channel_publish_to(struct channel *channel, uint64_t tail);
/* Makes what was sent visible to a peer that is awake, and wakes none: it hears of it when something else wakes it, or
 * by channel_wake. False: it was published, as the ring has no room for all. */
bool channel_show(struct channel *channel);
void channel_wake(struct channel *channel);
/* When the peer is gone: channel_receive() goes on with what it had sent and not published, as far as it has noted that
 * and it is whole. False if there is nothing. */
bool channel_take_unpublished(struct channel *channel);
/* Moves some of the lent bodies into the ring, as the two above do too, without making them visible. */
void channel_move(struct channel *channel);
/* Whether lent bodies, or messages behind them, are still to be moved into the ring, as channel_publish does. */
bool channel_lends(const struct channel *channel);

/* Returns the next message, or NULL when there is none now. A message in many fragments is assembled over several
 * calls: NULL may also mean that the rest is left for the next turn. The previous message becomes invalid. */
const struct message *channel_receive(struct channel *channel);
/* Hands over the memory of the message received last, in which `bytes` lie, if it came in fragments: the caller must
 * free() it. NULL: they lie elsewhere. */
void *channel_take(struct channel *channel, const void *bytes);
/* Whether received bytes stay in place until channel_release(): they lie in the ring, and channel_hold() was called. */
bool channel_keeps(const struct channel *channel, const void *bytes);
/* Whether all has been received that was published at the last look; the next channel_receive() looks again. */
bool channel_drained(const struct channel *channel);
/* Looks for newly published messages. True if there is something to receive. */
bool channel_look(struct channel *channel);
/* Gives the room of all received messages back to the producer, and wakes it if it waits for room. To be called once
 * per turn: messages not given back when this side dies are what the other side's channel_unreleased() returns. */
void channel_release(struct channel *channel);
/* The same in two steps, for who has answered what was received, but not published the answers. The first notes, for a
 * peer that outlives this process, what lies in its ring (channel_take_unpublished) and what was received
 * (channel_unreleased). If the message received last goes on later, it `stays` valid; `begun` of its parts are done. */
void channel_note(struct channel *channel, bool stays, uint32_t begun);
void channel_release_noted(struct channel *channel);

/* When the other side is gone: returns one after the other, in order, the messages that it has neither given back nor
 * noted as done. It has not done what they ask, or nobody knows. Messages in fragments are skipped. *place is all zeros
 * at first. NULL after the last. */
struct channel_place {
    uint64_t in_ring;
    const void *chunk;
    size_t in_chunk;
    bool is_lent;   /* among messages that wait behind lent bodies */
    uint32_t begun; /* so many parts of the message returned last have been done */
};
const struct message *channel_unreleased(struct channel *channel, struct channel_place *place);

/* Sleep protocol: tells the peer that this side is about to sleep. True if it may (nothing to receive; and, if
 * backlogged, no room has appeared), false if it must not. channel_awake() takes it back. */
bool channel_may_sleep(struct channel *channel);
/* The same for a side that receives nothing now: messages to receive do not keep it awake, only room does. */
bool channel_may_sleep_deaf(struct channel *channel);
void channel_awake(struct channel *channel);

/* Whether the channel is dead, since this side found a message invalid (a peer gone wrong) or had no memory for what it
 * had to keep. channel_receive returns NULL, what is sent is dropped, nothing is published. */
bool channel_broken(const struct channel *channel);
/* Makes the channel dead, as the peer is gone. */
void channel_break(struct channel *channel);

/* The epoch that the outgoing ring was formatted with. */
uint64_t channel_epoch(const struct channel *channel);

struct channel_counters {
    uint64_t wakes;          /* wake-ups sent to the peer */
    uint64_t overflow_bytes; /* in the overflow queue now */
    uint64_t overflow_peak_bytes;
    uint64_t in_bytes, in_room; /* the ring this side consumes from: bytes not given back yet, and its size */
    uint64_t out_bytes,
        out_room; /* the ring it produces to: bytes that the other side has not given back, and its size */
};
struct channel_counters channel_counters(const struct channel *channel);

#endif
