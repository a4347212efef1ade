/* An acceptor: the process that owns connections. It parses requests, asks workers over channels, and sends replies.
 *
 * It keeps no message: what it holds is bytes on their way. Its state is a struct acceptor (engine.h); this header is
 * what Python calls. Nothing here calls back: acceptor_run and acceptor_turn come back when Python is needed, and
 * acceptor_upcall tells what for.
 *
 * A connection is known by its number, which is not 0 and does not come again soon. A function that is given the number
 * of a connection that is closed does nothing.
 */
#ifndef MQ_ACCEPTOR_H
#define MQ_ACCEPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/bounds.h"
#include "ringbuf/board.h"
#include "ringbuf/message.h"

struct acceptor;

enum upcall_kind {
    UPCALL_COMMAND = 1, /* conn: bytes are a command, in the form that its codec gives it; conn is served on after
                           acceptor_resume */
    UPCALL_ANSWER,      /* conn: a worker's reply (answer and its body: bytes) to a request of Python's; or, with
                           STATUS_FAILED, the worker died before it replied */
    UPCALL_CLOSED,      /* conn is closed: while Python was busy with a command of it, or it is filtered, or Python
                           has had a command of it at some time and its codec says that it keeps something */
    UPCALL_CONTROL,     /* the control descriptor is readable */
    UPCALL_BROKEN,      /* conn: a worker, whose channel is not to be believed any more; it counts as gone */
    UPCALL_INPUT,       /* conn, which is filtered: bytes as they came from its socket (none after an acceptor_feed
                           that said there was more); no more come before the acceptor_feed that answers it */
    UPCALL_OUTPUT,      /* conn, which is filtered: bytes for its client, which acceptor_send is to be given in another
                           form, before the next turn if nothing is to be lost when conn ends */
    UPCALL_CLOSING, /* conn, a websocket whose frames Python has: a last frame, to be sent behind what was there before */
    UPCALL_POKED,   /* acceptor_poke was called */
    UPCALL_CANNOT_ACCEPT, /* no connection is accepted for a while; conn: the errno, or 0: there are max-connections */
};

struct upcall {
    uint32_t kind;
    uint32_t conn;
    uint32_t protocol; /* 0: of a connection that has none, see acceptor_local */
    uint32_t reserved;
    struct message answer;
    const uint8_t *bytes; /* until the next acceptor_upcall */
    size_t bytes_count;
};

/* `board_fd` is mapped and not kept; `wake_fd`, the eventfd that workers wake this process by, stays the caller's and
 * must be open as long as the acceptor is. NULL with errno. All workers are gone until acceptor_peer. */
struct acceptor *acceptor_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd);
void acceptor_free(struct acceptor *a);

/* The number of a wire protocol, by the name that listeners have; 0 when there is none of that name. */
uint32_t acceptor_protocol(const char *name);
/* Whether a protocol takes this for the name of a topic. */
bool acceptor_is_name(uint32_t protocol, const char *name, size_t name_bytes);

/* "acceptors" (how many serve clients, this one too: 1), "max-connections", "max-outstanding-output" (OUTPUT_HIGH_BYTES), "max-buffered-bytes" (BUFFERED_BYTES), "idle-topics" (MAX_IDLE_TOPICS), "spin-ns", or a protocol's own: its name, a dot, and
 * what its codec knows. 0, or -1 when there is no such option or the value is out of range. */
int acceptor_set(struct acceptor *a, const char *option, uint64_t value);

/* Says something to a protocol's codec that is larger than an option, and of no connection: what there is to say is the
 * codec's (see the `configure` of each). -1 when there is no such thing or it cannot be. */
int64_t acceptor_configure(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                           size_t bytes_count);

/* Attaches a worker, or one that was restarted; the fds are not kept. The worker is told of all topics and connections
 * that concern it, reserves that waited there are asked again. 0, or -1 and errno. */
int acceptor_peer(struct acceptor *a, uint32_t worker, int out_fd, int in_fd, int peer_wake_fd);
/* A worker has died: what it replied is delivered, what it did not reply has failed, reserves excepted. Requests for it
 * wait until it is back. */
void acceptor_peer_gone(struct acceptor *a, uint32_t worker);

/* Attaches (or replaces) the pair of rings to another acceptor, and loses it: see mesh.h. */
int acceptor_mesh(struct acceptor *a, uint32_t other, int out_fd, int in_fd, int peer_wake_fd);
void acceptor_mesh_gone(struct acceptor *a, uint32_t other);

/* Serve clients of a protocol on a listening socket, which the acceptor owns from then on. `filtered`: their bytes pass
 * through Python from the first one, see acceptor_filter. The listener's number, which counts from 0; or -1 and errno. */
int acceptor_listen(struct acceptor *a, int fd, uint32_t protocol, bool filtered);
/* By which a connection came; 0 for one that came by none, or is closed. */
uint32_t acceptor_listener(const struct acceptor *a, uint32_t conn);
/* Not of that protocol any more; 0: of none. */
void acceptor_stop_listening(struct acceptor *a, uint32_t protocol);
/* Serve a connected socket, which the acceptor owns from then on. Its number; 0 with errno if it could not. */
uint32_t acceptor_adopt(struct acceptor *a, int fd, uint32_t protocol);
/* As if it had come by that listener, and these from its socket. */
void acceptor_receive(struct acceptor *a, uint32_t conn, uint32_t listener, const void *bytes, size_t bytes_count);
/* Of a connection whose command Python has, and all of whose output has left: its socket, and what has come and was not
 * taken, until anything else is called. -1 when it is closed, or not to be had. */
int acceptor_socket(const struct acceptor *a, uint32_t conn, const uint8_t **bytes, size_t *bytes_count);
/* Another process has that socket: here it is closed without being ended. */
void acceptor_forget(struct acceptor *a, uint32_t conn);
/* Of a connection whose command Python has: moves what has come and was not taken, at most so much of it. How much that is. */
size_t acceptor_take(struct acceptor *a, uint32_t conn, void *room, size_t most);
/* A descriptor whose readability is an upcall. */
int acceptor_control(struct acceptor *a, int fd);
/* Take no more input. */
void acceptor_quiesce(struct acceptor *a);
/* How many connections have replies to come (reserves that wait excepted) or to be sent. */
uint32_t acceptor_busy(const struct acceptor *a);

/* One turn: all that is ready now. Never waits, reads no clock. Returns how many upcalls there are. */
int acceptor_turn(struct acceptor *a);
/* What time it is (monotonic) from then on, until told again; acceptor_run and acceptor_poll read the clock. */
void acceptor_set_now(struct acceptor *a, uint64_t now_ns);
/* Turns until there are upcalls or, if max_wait_ns is not negative, about that time is over. */
int acceptor_run(struct acceptor *a, int64_t max_wait_ns);
/* The next upcall; false when there is none. */
bool acceptor_upcall(struct acceptor *a, struct upcall *out);

/* --- about a connection whose command Python has ------------------------------------------------------------------ */

/* Asks a worker: kind, topic, id, pri, delay_ns and ttr_ns of `request` count. Returns the slot that the answer will
 * bear, or -1 when the connection is closed or has too many requests under way. */
int64_t acceptor_request(struct acceptor *a, uint32_t worker, uint32_t conn, const struct message *request,
                         const void *body, size_t body_bytes);
void acceptor_reply(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
/* Bytes that several are replied with: held once, until they are unshared and have been sent. NULL when memory is short. */
struct shared_bytes *acceptor_share(struct acceptor *a, const void *bytes, size_t bytes_count);
void acceptor_reply_shared(struct acceptor *a, uint32_t conn, struct shared_bytes *const *shared, size_t count);
void acceptor_unshare(struct acceptor *a, struct shared_bytes *shared);
/* The command is done. */
void acceptor_resume(struct acceptor *a, uint32_t conn);
/* Close it when its output is sent. */
void acceptor_close(struct acceptor *a, uint32_t conn);

/* Says something to the connection's codec, or asks it: what there is to say is the codec's (see the `call` of each).
 * `out` has room for `out_limit` numbers. 0 when the connection is closed, -1 when there is no such thing or the value is out
 * of range; else what the codec returns. */
int64_t acceptor_call(struct acceptor *a, uint32_t conn, const char *what, uint64_t value, const void *bytes,
                      size_t bytes_count, uint32_t *out, size_t out_limit);
/* Asks the codec of a protocol something of all its connections; what is up to the codec (the `ask` of each). The bytes put to
 * `out`, or -1 when there is no such thing. */
int64_t acceptor_ask(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                     size_t bytes_count, void *out, size_t out_limit);
/* What was published to a topic elsewhere in the broker is told to whoever listens here and now: see bridge.h. */
void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes);
/* Copies a topic's name (at most TOPIC_NAME_BYTES) and returns its length; 0 when the number is not bound. */
size_t acceptor_topic_name(const struct acceptor *a, uint32_t topic, char *out);
uint32_t acceptor_shard_of_name(const struct acceptor *a, const char *name, size_t name_bytes);
uint32_t acceptor_worker_of_topic(const struct acceptor *a, uint32_t topic);

/* The number of a topic, bound for good; 0 when there can be no more. */
uint32_t acceptor_bind(struct acceptor *a, const char *topic, size_t topic_bytes);

/* --- filters: TLS and compression, between the socket and the codec ------------------------------------------------ */

/* From now on what comes from the socket (and what has come and was not taken yet) goes through UPCALL_INPUT, and what
 * is to be sent through UPCALL_OUTPUT. */
void acceptor_filter(struct acceptor *a, uint32_t conn);
/* What an UPCALL_INPUT turned out to be (or nothing): the codec's input. With `more`, something of that INPUT is left:
 * the next one is empty, and comes when the codec has done with this one and others have had their turn. */
void acceptor_feed(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count, bool more);
/* Whether what it says passes through Python: from the beginning, where its listener says so. */
bool acceptor_is_filtered(const struct acceptor *a, uint32_t conn);
/* It is introduced: what it asks of Python is no handshake, and is answered also when it has hung up, of which an UPCALL_INPUT of
 * nothing tells. */
void acceptor_hear_out(struct acceptor *a, uint32_t conn);
/* The filter has found that nothing follows, as if its client had hung up. */
void acceptor_end_input(struct acceptor *a, uint32_t conn);
/* To the socket as it is. */
void acceptor_send(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
/* A filtered connection is a websocket from now on: what follows is in frames, in both directions, of `frame_bytes` at most where
 * they are ours. It is filtered no more, unless something is left to do for that. False when it cannot be: nothing has
 * changed then. */
enum websocket_flag {
    WEBSOCKET_UNMASKED = 1,  /* the client does not mask */
    WEBSOCKET_BY_FILTER = 2, /* frames are filtered: they are encrypted */
    WEBSOCKET_BY_PYTHON = 4, /* the filter has to do with frames itself: they are compressed */
};
bool acceptor_websocket(struct acceptor *a, uint32_t conn, size_t frame_bytes, uint32_t flags);
/* What is said to it from now on is compressed at such a level (enum s2_level), and what comes is taken for compressed: in streams of
 * S2. Later: the level is another. False when it cannot be, or the connection is gone. */
bool acceptor_compress(struct acceptor *a, uint32_t conn, uint32_t level);
/* The client's address as text: "127.0.0.1:40960" or "[::1]:40960"; its length, 0 when closed. */
size_t acceptor_remote(const struct acceptor *a, uint32_t conn, char *out, size_t limit);

/* --- requests of no client's ----------------------------------------------------------------------------------------- */

/* A connection without a socket, whose command Python has for good: acceptor_request works on it, acceptor_close ends
 * it. 0 when there can be no more. */
uint32_t acceptor_local(struct acceptor *a);
/* Ids for messages of one topic: the first; each next is `shards` higher. */
uint64_t acceptor_take_ids(struct acceptor *a, uint32_t topic, uint32_t count);
/* For a process that waits in a loop of its own: the descriptor that becomes readable when a turn is due, ... */
int acceptor_fd(const struct acceptor *a);
/* ... and what to call then: turns until there is nothing to do, and from then on workers wake it. Returns how many
 * upcalls there are. */
int acceptor_poll(struct acceptor *a);
/* Makes acceptor_run come back with UPCALL_POKED. The one function that another thread may call. */
void acceptor_poke(struct acceptor *a);

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Counts one more of what a protocol counts; false when it has no counter of that name. */
bool acceptor_count(struct acceptor *a, uint32_t protocol, const char *counter);
/* What all acceptors have counted of a protocol: the name of its counter of that place, and the sum; NULL behind the last. */
const char *acceptor_counter(const struct acceptor *a, uint32_t protocol, uint32_t place, uint64_t *sum);

/* The board's blocks added up; the oldest segment is the least, the current the greatest of the workers'. */
struct broker_totals {
    uint64_t total_connections, connections;
    uint64_t urgent, ready, reserved, delayed, buried, topics, timeouts, total_jobs, published;
    uint64_t oldest_segment, current_segment, records_written, records_migrated, unreadable;
    bool draining;
};
void acceptor_totals(const struct acceptor *a, struct broker_totals *out);
/* What an acceptor, or a worker, counts of its loop. */
void acceptor_loop(const struct acceptor *a, bool of_worker, uint32_t index, struct loop_figures *out);
/* As acceptor_totals, of one worker alone. */
void acceptor_worker_totals(const struct acceptor *a, uint32_t worker, struct broker_totals *out);
/* How long what a worker measures took (enum board_duration): HISTOGRAM_BUCKETS counts, and the sum. */
void acceptor_durations(const struct acceptor *a, uint32_t worker, uint32_t what, uint64_t *counts, uint64_t *sum_ns);
/* Those of all processes; as long as this is there. */
struct login_attempts *acceptor_logins(struct acceptor *a);
/* What the connections hold of commands that are not complete, and of replies. */
size_t acceptor_buffered_bytes(const struct acceptor *a);
/* For each worker a number that rises when a topic or a subscription is made or deleted there, and begins anew with its
 * process. */
void acceptor_catalog_versions(const struct acceptor *a, uint64_t *out);
/* Whether there is a topic that comes and goes with its jobs: of those no version tells. */
bool acceptor_topics_pass(const struct acceptor *a);

#endif
