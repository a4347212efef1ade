/* A channel: messages over a pair of rings, in both directions, between one acceptor and one worker.
 *
 * It owns the two rings' mappings on this side, an overflow queue for what did not fit, and a buffer in which a
 * message that travelled in fragments is put together. Sending never blocks and never fails: what the ring has no room
 * for waits in the overflow queue, in order. Whoever sends must therefore look at channel_backlogged() and stop
 * taking in work that feeds this channel while it is true; that is what bounds the overflow. The side that asks (the
 * acceptor) must go on receiving all the same: that is what keeps two full rings that face each other from standing
 * still for ever.
 *
 * Nothing sent is seen by the other side before channel_publish(). `channel_tail()` and `channel_publish_to()` let a
 * worker hold back replies until the log has been synced: publish up to a tail taken earlier, and no further. A tail
 * is a place in the stream of all that was ever sent, whether it lies in the ring or in the overflow queue now.
 *
 * Fragments of one message come in a ring before those of the next, if not without others between, so one assembly buffer for each
 * direction is enough. A message
 * pointer from channel_receive() is 8-byte aligned and valid until the next channel_receive() or channel_release().
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

/* `out_fd` and `in_fd` are the memfds of the ring this side produces and the one it consumes (already formatted by
 * ring_format); `peer_wake_fd` is the eventfd (EFD_NONBLOCK; or -1: the peer polls) that wakes the other side's
 * process. None of the fds is kept: the caller may close them. NULL with errno when a ring is not what it claims to
 * be. `max_message_bytes` is the largest body that is believed, and so bounds what a peer may ask this side to
 * assemble; it must be no less than any body the peer may rightly send. */
struct channel *channel_open(int out_fd, int in_fd, int peer_wake_fd, size_t max_message_bytes);
void channel_close(struct channel *channel);

/* From now on nothing that was received is given back before channel_release(), which it otherwise is by a message in fragments:
 * one of these is not begun before that. */
void channel_hold(struct channel *channel);

/* Copies header and body. header->body_bytes must equal body_bytes. Without a body zeros at the header's end do not travel, and are
 * there again for who receives it. */
void channel_send(struct channel *channel, const struct message *header, const void *body, size_t body_bytes);

/* Memory that a body lies in, and how it is given back: by the channel, when all of it has moved into the ring. Pages of which nothing
 * is left to be moved are given back to the kernel before that (MADV_DONTNEED). */
struct lent {
    uint8_t *at;
    size_t bytes;
    void (*give_back)(void *owner, void *at, size_t bytes);
    void *owner;
};
/* As channel_send, for a body that takes several records: it is not copied now, but piece by piece as channel_publish is called, with
 * half of the ring left to others. What is sent meanwhile overtakes it, but for messages of its connection, and what follows a MSG_CLOSE.
 * False, and nothing was done: channel_send is for this one. */
bool channel_lend(struct channel *channel, const struct message *header, const void *body, size_t body_bytes,
                  const struct lent *lent);

/* As channel_send for callers that fill in the body themselves: returns where to write header+body (48 + body_bytes
 * contiguous, 8-byte aligned) or NULL if it must go through channel_send (too large or no room now). A pointer that was
 * given must be completed by channel_sent() before anything else is sent. */
struct message *channel_reserve(struct channel *channel, size_t body_bytes);
void channel_sent(struct channel *channel);

/* A message that was sent into the ring in one record and may be made longer there, as long as nothing was sent since and nobody can have
 * seen it. Whoever sends keeps this, and knows what it is; all zeros at first. */
struct growing {
    struct message *message; /* to be looked at while it grows */
    uint64_t place, tail;    /* of the stream: channel_tail() before it and behind it */
};
bool channel_grows(const struct channel *channel, const struct growing *growing);
/* Room behind the body of one that grows, which has so many bytes more from then on: both it and they are a multiple of 8. NULL, and
 * nothing changed: there is none. */
void *channel_grow(struct channel *channel, struct growing *growing, size_t bytes);

/* Moves overflow into the ring as far as there is room, and publishes of it what was to be published already. True
 * while some is left, or much waits behind what was lent. */
bool channel_backlogged(struct channel *channel);

uint64_t channel_tail(const struct channel *channel);
/* Whether what was sent from this place on may not be seen by the other side yet: it may still be written to, if it lies in the ring. */
bool channel_unseen(const struct channel *channel, uint64_t place);
/* Make what was sent visible and wake the peer if it sleeps. True if anything new became visible. What still lies in
 * the overflow queue becomes visible when it moves into the ring. */
bool channel_publish(struct channel *channel);
bool channel_publish_to(struct channel *channel, uint64_t tail);
/* Moves some of what was lent into the ring, as these do too, where nothing may be seen yet. */
void channel_move(struct channel *channel);
/* Whether something that was lent, or waits behind it, is yet to be moved: that is done as channel_publish is called. */
bool channel_lends(const struct channel *channel);

/* The next message, or NULL when there is none now: one in many fragments is put together over several calls, of which the next is
 * for the next turn. Frees the one before it (locally). */
const struct message *channel_receive(struct channel *channel);
/* The message that was received last becomes the caller's, to be given to free(), if it came in fragments; false: it did not. */
bool channel_take(struct channel *channel, const struct message *message);
/* Whether this, which was received, stays where it is until channel_release(): it lies in the ring, and the channel holds. */
bool channel_keeps(const struct channel *channel, const void *bytes);
/* Whether what was published when it was last looked has all been received: the next channel_receive() looks anew. */
bool channel_drained(const struct channel *channel);
/* Looks for what has been published since. True if there is something to receive. */
bool channel_look(struct channel *channel);
/* Gives the room of all received messages back to the producer; wakes it if it waits for room. Once per turn: what has not
 * been given back when this side dies is what the other side's channel_unreleased() has. */
void channel_release(struct channel *channel);

/* What was sent and the other side has not given back, in order, when it is gone: it was not done, or nobody knows. Messages
 * in fragments are passed over. *place is all zeros at first. NULL behind the last. */
struct channel_place {
    uint64_t in_ring;
    const void *chunk;
    size_t in_chunk;
    bool is_lent; /* among what waits for what was lent */
};
const struct message *channel_unreleased(struct channel *channel, struct channel_place *place);

/* Sleep protocol: say that this side is about to sleep; true if it may (nothing to receive; and, if backlogged, no room
 * has appeared), false if it must not. channel_awake() takes it back. */
bool channel_may_sleep(struct channel *channel);
/* The same for a side that does not receive while it is backlogged: what there is to receive does not keep it awake
 * then, only room does. */
bool channel_may_sleep_until_room(struct channel *channel);
void channel_awake(struct channel *channel);

/* A message in flight that this side could not believe (a peer gone wrong), or no memory for what had to be kept: the
 * channel is dead from then on. channel_receive returns NULL, what is sent is dropped, nothing is published. */
bool channel_broken(const struct channel *channel);
/* The peer is gone, and the channel is to be dead. */
void channel_break(struct channel *channel);

/* The epoch that the outgoing ring was formatted with. */
uint64_t channel_epoch(const struct channel *channel);

struct channel_counters {
    uint64_t wakes;          /* wake-ups sent to the peer */
    uint64_t overflow_bytes; /* in the overflow queue now */
    uint64_t overflow_peak_bytes;
    uint64_t in_bytes, in_room;   /* of the ring that this side consumes: what it has not given back, of how much */
    uint64_t out_bytes, out_room; /* of the one it produces: what the other side has not */
};
struct channel_counters channel_counters(const struct channel *channel);

#endif
