/* The limits of an acceptor, in one place. A test or an operator may lower those that acceptor_set() names.
 *
 * (Not called limits.h: with -I this directory would hide the C library's.)
 */
#ifndef MQ_BOUNDS_H
#define MQ_BOUNDS_H

#include <stddef.h>
#include <stdint.h>

#include "ringbuf/limits.h"
#include "ringbuf/message.h"

#define MAX_LISTENERS 16u

/* Requests of one connection that are not answered yet. At the limit its input waits. Below 65536: a slot is found by
 * its distance from the oldest. */
#define MAX_OUTSTANDING 256u

/* Names that nobody uses, watches or has subscribed to, but that were published to lately, stay bound. */
#define MAX_IDLE_TOPICS 1024u

/* A body of so many bytes is not copied at once, but as the ring takes it, and as the socket does. */
#define LENT_BYTES ((size_t)1 << 20)

/* Of bodies that are large to a worker, which writes them one after the other, it is asked to take so many bytes at once, or one body; of
 * a connection one. The others wait where they were received, and keep nobody else waiting. */
#define LARGE_BODY_BYTES  ((size_t)8 << 20)
#define LARGE_ASKED_BYTES ((size_t)32 << 20)

/* What one connection may read in one turn, so that none starves the others. */
#define RECEIVE_BYTES ((size_t)64 << 10)
/* ... and be received from again in it, if its codec wants that, until there is so much more output to be sent. */
#define RECEIVED_OUTPUT_BYTES ((size_t)512 << 10)

/* Up to so much of an unfinished command is moved in front of what is received next, so that it is parsed where it
 * lies; with more than that, what is received goes behind it. */
#define MAX_MOVED_BYTES ((size_t)4 << 10)

/* Replies that wait to be sent on one connection, or for their turn: above HIGH its input waits until half of them have
 * left. What has been asked for already still comes on top. */
#define OUTPUT_HIGH_BYTES ((size_t)1 << 20)

/* How large a body is, is not known before it comes: so many are asked for at once that there would be no more than this
 * if each were as large as a job may be, or as the largest that came; or one. */
#define BODIES_AHEAD_BYTES ((uint64_t)16 << 20)

/* Durations that are options are shorter than 2 to the power of this, so that sums do not overflow. */
#define LONGEST_TIME_NS_BITS 60

/* A consumer's deliveries that have left are reported when they are so many bytes: less than the shortest window, which
 * would never open again else. And so many are sent before the end of a turn, so that what is to be sent fits a block. */
#define SENT_REPORT_BYTES (SHORT_WINDOW_BYTES / 2)
#define PUSH_BYTES        (BLOCK_BYTES - ((size_t)1 << 10))

/* Of a filtered connection: in one UPCALL_OUTPUT, and how much may wait behind Python before no more are made. */
#define FILTER_CHUNK_BYTES ((size_t)64 << 10)
#define FILTER_AHEAD_BYTES ((size_t)256 << 10)

/* Of a websocket: payload in a frame of ours, at most, with its head in one block of output. */
#define FRAME_BYTES ((size_t)30 << 10)

/* Of a compressed connection: how much of what it sends is given to its codec in a turn, how much waits to be sent before no more is
 * compressed; and of all of them, how much is taken apart in a turn before the next block waits, and how much is compressed: that
 * many bytes at the level that costs the least, and at others fewer, by what they cost. */
#define COMPRESSED_GIVEN_BYTES  ((size_t)256 << 10)
#define COMPRESSED_AHEAD_BYTES  ((size_t)64 << 10)
#define COMPRESSED_OPENED_BYTES ((size_t)1 << 20)
#define COMPRESSED_MADE_BYTES   ((size_t)4 << 20)

/* What a little input stands for may be very much: so many pieces of it, of all connections together, are asked for in
 * a turn. */
#define FILTER_PIECES_PER_TURN 1u

/* Input and output buffers: one block each as a rule, from a pool that keeps this many; smaller pieces for replies whose
 * turn has not come. What is larger than MAPPED_BYTES is mapped for itself, and a few of those are kept too. */
#define BLOCK_BYTES       ((size_t)32 << 10)
#define KEEP_BLOCKS       512u
#define LARGE_BLOCK_BYTES ((size_t)64 << 10)
#define KEEP_LARGE_BLOCKS 32u
#define PAGE_BYTES        ((size_t)4 << 10)
#define KEEP_PAGES        512u
#define CELL_BYTES        ((size_t)256)
#define KEEP_CELLS        4096u
#define MAPPED_BYTES      ((size_t)256 << 10)
#define MAPPED_KEEP_BYTES ((size_t)2 << 20)
/* What all connections of an acceptor together may hold of commands that are not complete and of replies that have not
 * left, unless an option says otherwise; see room.c. At the limit less is received at once, and who moves less than
 * CROWDED_BYTES in each of so many sweeps is cut off. */
#define BUFFERED_BYTES      ((size_t)256 << 20)
#define SHORT_RECEIVE_BYTES ((size_t)4 << 10)
#define CROWDED_BYTES       ((uint32_t)64 << 10)
#define CROWDED_SWEEPS      10u
#define SWEEP_NS            1000000000u

/* Output that waits behind a first block is in blocks of this size, of which some are kept too: the kernel would clear their
 * pages each time, which costs more than filling them. And so many of its stretches are given to one system
 * call. What is shared by the outputs of many connections is no smaller than SHARE_BYTES: a stretch costs two cells. */
#define OUTPUT_BLOCK_BYTES ((size_t)128 << 10)
#define KEEP_OUTPUT_BLOCKS 32u
#define OUTPUT_PARTS       64u
#define SHARE_BYTES        ((size_t)8 << 10)

/* When so much has gone back to the heap that it may be full of holes, it is trimmed, as soon as little is in use. And so
 * is, looked at so often, what is kept for nobody: when it is so much, and twice what is in use. */
#define TRIM_BYTES      ((size_t)32 << 20)
#define IDLE_TRIM_BYTES ((size_t)8 << 20)
#define IDLE_TRIM_NS    5000000000u

/* When so much has been sent in a turn, the connections that come then are sent little each, the rest in the next turns: many that
 * are owed much do not keep the others waiting. */
#define SEND_BYTES_PER_TURN ((size_t)4 << 20)
#define SHORT_SEND_BYTES    ((size_t)64 << 10)

/* To how many connections something is sent in a turn. Who comes later in it waits for the next turns, behind those who wait already;
 * of these so many at least have their turn, however many others come before them. */
#define SENDS_PER_TURN      256u
#define LATE_SENDS_PER_TURN 128u

/* Work in one turn: little enough that what a turn has for a client, an OK among many deliveries, leaves soon. */
#define EVENTS_PER_TURN   256
#define ACCEPTS_PER_TURN  64
#define REPLIES_PER_TURN  1024 /* of one worker */
#define FEW_EVENTS        2    /* sockets that had something to say: there is time for each */
#define RECEIVES_PER_WAKE 16   /* connections read before the workers are told */
#define TURNS_PER_POLL    64

/* As long as replies that are already there wait for the next turn, output stays back of a connection that is owed some and has no
 * more than so many bytes, and for no more turns than that: a send costs as much as fifty replies. */
#define HELD_BYTES ((size_t)64 << 10)
#define HELD_TURNS 8u

/* How long run looks at the rings before it sleeps, while replies are due. */
#define DEFAULT_SPIN_NS 5000u

#endif
