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

/* Unanswered requests of one connection; at the limit its input waits. Must be below 65536: a slot is found by its
 * distance from the oldest. */
#define MAX_OUTSTANDING 256u

/* Names that stay bound because they were published to recently, though no connection uses or watches them. */
#define MAX_IDLE_TOPICS 1024u

/* A body of at least this size is copied piece by piece, as the ring or the socket has room. */
#define LENT_BYTES ((size_t)1 << 20)

/* A body of at least this size that comes from a worker is sent from where it lies in the ring; smaller ones are copied
 * to the output, which costs no more. */
#define BORROWED_BYTES ((size_t)8 << 10)

/* A worker writes bodies of at least LARGE_BODY_BYTES one after the other. At a time it is sent at most
 * LARGE_ASKED_BYTES of them, or a single larger one, and only one from each connection; the others wait in the buffers
 * where they were received. */
#define LARGE_BODY_BYTES  ((size_t)8 << 20)
#define LARGE_ASKED_BYTES ((size_t)32 << 20)

/* How much is received from a connection at a time, so that none starves the others. */
#define RECEIVE_BYTES ((size_t)64 << 10)
/* When the work on what a turn has received took longer than LONG_RECEIVING_NS, half as much is received from each
 * connection in the next turn, and otherwise more again, a LEAST_RECEIVE_BYTES each turn: so many connections with much
 * input do not keep the others waiting. */
#define LEAST_RECEIVE_BYTES ((size_t)1 << 10)
#define LONG_RECEIVING_NS   4000000u
/* When few connections have input, this much is received from each at a time: there are fewer calls, what it makes
 * leaves in larger pieces, and a long command is whole before its worker has looked for it in vain. It is RECEIVE_BYTES
 * after a time that made more than RECEIVED_OUTPUT_BYTES of output, which would not fit the cache. */
#define RECEIVE_ALONE_BYTES   ((size_t)256 << 10)
#define RECEIVED_OUTPUT_BYTES ((size_t)2 << 20)

/* Up to this much of an incomplete command is moved in front of the next input, so that the command is parsed in place;
 * a longer one stays, and the next input is appended to it. */
#define MAX_MOVED_BYTES ((size_t)16 << 10)

/* Replies of one connection that wait to be sent, or for their turn. Above this its input waits until half of them have
 * left. Replies to requests already made still come on top. */
#define OUTPUT_HIGH_BYTES ((size_t)1 << 20)

/* A body's size is unknown before it comes. So no more bodies are requested at a time than would stay below this if
 * each were as large as the largest job allowed, or the largest seen; but at least one. */
#define BODIES_AHEAD_BYTES ((uint64_t)16 << 20)

/* Options that are durations are below 2 to this power, so that sums do not overflow. */
#define LONGEST_TIME_NS_BITS 60

/* Deliveries that have left are reported to the worker in portions of SENT_REPORT_BYTES, less than the shortest window,
 * which would otherwise never open again. With PUSH_BYTES of deliveries output is sent before the end of a turn, so
 * that it fits a block. */
#define SENT_REPORT_BYTES (SHORT_WINDOW_BYTES / 2)
#define PUSH_BYTES        (BLOCK_BYTES - ((size_t)1 << 10))

/* Filtered connections: bytes in one UPCALL_OUTPUT, and how many may wait behind Python before no more are made. */
#define FILTER_CHUNK_BYTES ((size_t)64 << 10)
#define FILTER_AHEAD_BYTES ((size_t)256 << 10)

/* Websockets: the largest payload of a frame of ours, which with its head fits one block of output; how many random
 * keys for masking are asked of the kernel at once. */
#define FRAME_BYTES ((size_t)30 << 10)
#define MASK_KEYS   64

/* Compressed connections. For one connection: how much decompressed input its codec gets in a turn, and how much output
 * may wait to be sent before no more is compressed. For all together: how much is decompressed in a turn before the
 * next block waits, and how much is compressed in a turn, at the cheapest level (at others less). */
#define COMPRESSED_GIVEN_BYTES  ((size_t)256 << 10)
#define COMPRESSED_AHEAD_BYTES  ((size_t)64 << 10)
#define COMPRESSED_OPENED_BYTES ((size_t)1 << 20)
#define COMPRESSED_MADE_BYTES   ((size_t)4 << 20)

/* How many pieces of decompressed input Python is asked for in a turn, over all connections, as a little compressed
 * input may expand to very much. */
#define FILTER_PIECES_PER_TURN 1u

/* Input and output buffers: mostly one block each, from a pool that keeps this many; smaller pieces for replies whose
 * turn has not come. Anything larger than MAPPED_BYTES has a mapping of its own, a few of which are kept too. */
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
/* How much all connections of an acceptor together may hold in incomplete commands and unsent replies, unless an option
 * says otherwise; see room.c. At the limit less is received at a time, and a connection that moves less than
 * CROWDED_BYTES in each of CROWDED_SWEEPS sweeps is closed. */
#define BUFFERED_BYTES      ((size_t)256 << 20)
#define SHORT_RECEIVE_BYTES ((size_t)4 << 10)
#define CROWDED_BYTES       ((uint32_t)64 << 10)
#define CROWDED_SWEEPS      10u
#define SWEEP_NS            1000000000u

/* Output behind a first block is in blocks of this size. Some are kept for reuse, because the kernel clears the pages
 * of new ones, which costs more than filling them. One system call gets up to OUTPUT_PARTS pieces. Bytes shared by
 * several outputs are at least SHARE_BYTES, since a shared piece costs two cells. */
#define OUTPUT_BLOCK_BYTES ((size_t)128 << 10)
#define KEEP_OUTPUT_BLOCKS 64u /* what eight connections may leave unsent */
#define OUTPUT_PARTS       64u
#define SHARE_BYTES        ((size_t)8 << 10)

/* Of the memory that is kept for reuse, in pools and by the heap, what was not needed in IDLE_TRIM_NS is given back,
 * when it is IDLE_TRIM_BYTES or more. */
#define IDLE_TRIM_BYTES ((size_t)8 << 20)
#define IDLE_TRIM_NS    5000000000u

/* How often what channels keep for overflow is looked at. */
#define TRIM_CHANNELS_NS 1000000000u

/* When this much has been sent in a turn, further connections are sent only SHORT_SEND_BYTES each and the rest in later
 * turns, so that many connections with much output do not keep the others waiting. */
#define SEND_BYTES_PER_TURN ((size_t)4 << 20)
#define SHORT_SEND_BYTES    ((size_t)64 << 10)

/* To how many connections output is sent in a turn. Others wait for the next turns, in a queue; at least
 * LATE_SENDS_PER_TURN of the queue are served in each turn, however many connections come before them. */
#define SENDS_PER_TURN      256u
#define LATE_SENDS_PER_TURN 128u

/* After so long without a look at the sockets, they are looked at before timers that are due. */
#define STALL_NS 100000000u

/* Where no further connection can be accepted, one that has sent no whole command for SILENT_NS gives its place to the
 * newcomer, unless SILENT_BYTES or more have come or gone meanwhile. That Python is told, at most every SILENT_SAID_NS.
 */
#define SILENT_NS      1000000000u
#define SILENT_BYTES   4096u
#define SILENT_LOOKS   16 /* at connections, to find one that may go */
#define SILENT_SAID_NS 1000000000u

/* Work in one turn: little enough that an answer among many deliveries leaves soon. */
#define EVENTS_PER_TURN   256
#define ACCEPTS_PER_TURN  64
#define REPLIES_PER_TURN  1024     /* of one worker */
#define FEW_EVENTS        2        /* with no more sockets than this, there is time for each */
#define UNHURRIED_NS      1000000u /* after which a worker is woken for what nobody waits for */
#define RECEIVES_PER_WAKE 16       /* connections read before the workers are told */
#define TURNS_PER_POLL    64

/* Python takes some 25 ms for each MB of a command. So it is given one larger than this a turn, and all other clients
 * are served between two of them. */
#define LARGE_COMMAND_BYTES ((size_t)64 << 10)

/* With so many commands before it, or so many bytes of them, Python takes the next ones from each connection in turn, a
 * share at a time: who asks for little does not wait for all that others have asked for. */
#define MANY_COMMANDS      256u
#define MANY_COMMAND_BYTES ((size_t)1 << 20)
#define COMMANDS_SHARE     8u

/* While upcalls that hold this much wait for Python, connections wait too: they could add to them without a limit. */
#define UPCALLS_BYTES ((size_t)16 << 20)

/* While received replies wait for the next turn, output of at most HELD_BYTES is held back if its connection is owed
 * more replies, for at most HELD_TURNS turns: a send costs as much as fifty replies. */
#define HELD_BYTES ((size_t)64 << 10)
#define HELD_TURNS 8u

/* How long run looks at the rings before it sleeps, while replies are due. */
#define DEFAULT_SPIN_NS 5000u

#endif
