/* What Python calls of an acceptor: the process that owns connections. It parses requests, asks workers over channels,
 * and sends replies. It stores no messages, only bytes on their way.
 *
 * The functions are in the files of this folder that do what they ask for. None of them calls Python: acceptor_run and
 * acceptor_turn return when Python is needed, and acceptor_upcall says for what.
 *
 * A connection is identified by its number, which is not 0 and is not reused soon. A function that is given the number
 * of a closed connection does nothing.
 */
#ifndef MQ_CALLS_H
#define MQ_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/bounds.h"
#include "ringbuf/board.h"
#include "ringbuf/message.h"

struct acceptor;
struct codec_table;

enum upcall_kind {
    UPCALL_COMMAND =
        1,           /* bytes: a command of conn, in the form its codec defines; conn goes on after acceptor_resume */
    UPCALL_ANSWER,   /* a worker's reply (`answer`; bytes: its body) to a request that Python made for conn; with
                           STATUS_FAILED the worker died before it replied */
    UPCALL_CLOSED,   /* conn has closed, and Python was busy with a command of it, or it is filtered, or Python has
                           had a command of it at some time and its codec has python_keeps */
    UPCALL_CONTROL,  /* the control descriptor is readable */
    UPCALL_BROKEN,   /* conn: the number of a worker whose channel is corrupt; the worker counts as gone */
    UPCALL_INPUT,    /* bytes: input of conn, which is filtered, as it came from the socket (empty after an
                           acceptor_feed with `more`). The next one comes after the acceptor_feed that answers it */
    UPCALL_OUTPUT,   /* bytes: output for the client of conn, which is filtered. Python passes them transformed to
                           acceptor_send, before the next turn, or they may be lost when conn ends */
    UPCALL_CLOSING,  /* conn, a websocket whose frames Python makes: a last frame, to be sent behind earlier output */
    UPCALL_POKED,    /* acceptor_poke was called */
    UPCALL_GAVE_WAY, /* so many connections (conn) that had said nothing were closed for newcomers */
    UPCALL_CANNOT_ACCEPT, /* no connection is accepted for a while; conn: errno, or 0: max-connections is reached */
};

struct upcall {
    uint32_t kind;
    uint32_t conn;
    uint32_t protocol; /* 0: conn has no protocol, see acceptor_local */
    uint32_t reserved;
    struct message answer;
    const uint8_t *bytes; /* valid until the next acceptor_upcall */
    size_t bytes_count;
};

/* `codecs`, in which a protocol has its number, stays the caller's, and so does `wake_fd`, the eventfd with which
 * workers wake this process; it must be open as long as the acceptor exists. `board_fd` is mapped and not kept. NULL
 * with errno. All workers count as gone until acceptor_peer. */
struct acceptor *acceptor_new(const struct codec_table *codecs, uint32_t index, uint32_t workers, uint32_t shards,
                              int board_fd, int wake_fd);
void acceptor_free(struct acceptor *a);

/* Options: "acceptors" (how many there are, this one included), "max-connections", "max-outstanding-output"
 * (OUTPUT_HIGH_BYTES), "max-buffered-bytes" (BUFFERED_BYTES), "idle-topics" (MAX_IDLE_TOPICS), "spin-ns", or a
 * protocol's own: its name, a dot, and what its codec knows. 0, or -1 when there is no such option or the value is out
 * of range. */
int acceptor_set(struct acceptor *a, const char *option, uint64_t value);

/* Gives a protocol's codec a setting that is larger than an option and not about one connection (see each codec's
 * `configure`). -1 when it is unknown or impossible. */
int64_t acceptor_configure(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                           size_t bytes_count);

/* Attaches a worker that was started or restarted; the fds are not kept. Tells it of all topics and connections that
 * concern it, and sends waiting reserves again. 0, or -1 and errno. */
int acceptor_peer(struct acceptor *a, uint32_t worker, int out_fd, int in_fd, int peer_wake_fd);
/* A worker has died: its last replies are delivered, requests that it had not answered fail, except reserves. New
 * requests for it wait until it is back. */
void acceptor_peer_gone(struct acceptor *a, uint32_t worker);

/* Attaches or replaces the pair of rings to another acceptor, and drops it: see mesh.h. */
int acceptor_mesh(struct acceptor *a, uint32_t other, int out_fd, int in_fd, int peer_wake_fd);
void acceptor_mesh_gone(struct acceptor *a, uint32_t other);

/* Serves clients of a protocol on a listening socket, which the acceptor owns from then on. `filtered`: all their bytes
 * pass through Python, see acceptor_filter. Returns the listener's number, counted from 0, or -1 and errno. */
int acceptor_listen(struct acceptor *a, int fd, uint32_t protocol, bool filtered);
/* The listener that accepted a connection; 0 if none did, or the connection is closed. */
uint32_t acceptor_listener(const struct acceptor *a, uint32_t conn);
/* Stops listening for that protocol; 0: for all. */
void acceptor_stop_listening(struct acceptor *a, uint32_t protocol);
/* Serves a connected socket, which the acceptor owns from then on. Returns its number, or 0 and errno. */
uint32_t acceptor_adopt(struct acceptor *a, int fd, uint32_t protocol);
/* Treats a connection as accepted by that listener, and these bytes as received from its socket. */
void acceptor_receive(struct acceptor *a, uint32_t conn, uint32_t listener, const void *bytes, size_t bytes_count);
/* The socket of a connection whose command Python has and whose output has all left, and its unused input, which is
 * valid until any other call. -1 when the connection is closed or not in that state. What a filter keeps, such as the
 * state of TLS, does not come with it. */
int acceptor_socket(const struct acceptor *a, uint32_t conn, const uint8_t **bytes, size_t *bytes_count);
/* Another process has taken over the socket: closes it here without shutting it down. */
void acceptor_forget(struct acceptor *a, uint32_t conn);
/* Moves unused input, at most `most` bytes, of a connection whose command Python has to `room`. Returns how much. */
size_t acceptor_take(struct acceptor *a, uint32_t conn, void *room, size_t most);
/* Watches a descriptor: UPCALL_CONTROL says when it is readable. */
int acceptor_control(struct acceptor *a, int fd);
/* Stops taking input from clients, but not from other servers, which do not know yet that they should choose no client
 * here any more. */
void acceptor_quiesce(struct acceptor *a);
/* How many connections there are to other servers. */
uint32_t acceptor_servers(const struct acceptor *a);
/* Closes our side of a connection when all that is written by now has left. It is over when the other side has closed,
 * too; all that comes before that counts. */
void acceptor_part(struct acceptor *a, uint32_t conn);
/* No more input is taken from anybody: tells the other acceptors, behind all that they have been sent. */
void acceptor_say_quiet(struct acceptor *a);
/* Whether all other acceptors have said so, and have room for what they are sent. */
bool acceptor_others_are_quiet(struct acceptor *a);
/* How many connections have unanswered requests (waiting reserves excepted) or unsent output. */
uint32_t acceptor_busy(const struct acceptor *a);

/* One turn: handles all that is ready now. Never waits, reads no clock. Returns how many upcalls there are. */
int acceptor_turn(struct acceptor *a);
/* The same while Python is in the midst of something long, so that connections need not wait for its end. What Python
 * is needed for waits. */
void acceptor_pause(struct acceptor *a);
/* Sets the (monotonic) time for the following turns; acceptor_run and acceptor_poll read the clock themselves. */
void acceptor_set_now(struct acceptor *a, uint64_t now_ns);
/* Runs turns until there are upcalls or, if max_wait_ns is not negative, until about that time has passed. While
 * upcalls are left, one turn: what Python has to do keeps no connection waiting that does not need it. */
int acceptor_run(struct acceptor *a, int64_t max_wait_ns);
/* The next upcall; false when there is none. */
bool acceptor_upcall(struct acceptor *a, struct upcall *out);

/* --- about a connection whose command Python has ------------------------------------------------------------------ */

/* Sends a request to a worker; only kind, topic, id, pri, delay_ns and ttr_ns of `request` are used. Returns the slot
 * that the answer will have, or -1 when the connection is closed or has too many requests under way. */
int64_t acceptor_request(struct acceptor *a, uint32_t worker, uint32_t conn, const struct message *request,
                         const void *body, size_t body_bytes);
void acceptor_reply(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
/* Bytes that are sent to several connections but stored once, until they are unshared and sent. NULL when memory is
 * short. */
struct shared_bytes *acceptor_share(struct acceptor *a, const void *bytes, size_t bytes_count);
void acceptor_reply_shared(struct acceptor *a, uint32_t conn, struct shared_bytes *const *shared, size_t count);
void acceptor_unshare(struct acceptor *a, struct shared_bytes *shared);
/* Python is done with the command: the connection goes on. */
void acceptor_resume(struct acceptor *a, uint32_t conn);
/* Closes the connection when its output has been sent. */
void acceptor_close(struct acceptor *a, uint32_t conn);

/* Calls the connection's codec with a setting or a question (see each codec's `call`). `out` has room for `out_limit`
 * numbers. 0 when the connection is closed, -1 when the call is unknown or a value out of range; else what the codec
 * returns. */
int64_t acceptor_call(struct acceptor *a, uint32_t conn, const char *what, uint64_t value, const void *bytes,
                      size_t bytes_count, uint32_t *out, size_t out_limit);
/* Asks a protocol's codec about all its connections (see each codec's `ask`). Returns how many bytes were written to
 * `out`, or -1 when the question is unknown. */
int64_t acceptor_ask(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                     size_t bytes_count, void *out, size_t out_limit);
/* How often clients of a protocol asked for what they have no right to, as far as its codec decides that itself. */
uint64_t acceptor_refused(const struct acceptor *a, uint32_t protocol);
/* Tells live subscribers here of a message that was published to a topic elsewhere in the broker: see bridge.h. */
void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes);
/* Copies a topic's name (at most TOPIC_NAME_BYTES) and returns its length; 0 when the number is not bound. */
size_t acceptor_topic_name(const struct acceptor *a, uint32_t topic, char *out);
/* The same for many topics, each name with a line feed behind it; `out` has room for the longest. */
size_t acceptor_topic_names(const struct acceptor *a, const uint32_t *topics, size_t count, char *out);
uint32_t acceptor_shard_of_name(const struct acceptor *a, const char *name, size_t name_bytes);
uint32_t acceptor_worker_of_topic(const struct acceptor *a, uint32_t topic);

/* The number of a topic, bound for good; 0 when the limit is reached. */
uint32_t acceptor_bind(struct acceptor *a, const char *topic, size_t topic_bytes);

/* --- filters: TLS and compression, between the socket and the codec ----------------------------------------------- */

/* From now on input (including what has come and is unused) goes through UPCALL_INPUT, and output through
 * UPCALL_OUTPUT. */
void acceptor_filter(struct acceptor *a, uint32_t conn);
/* Answers an UPCALL_INPUT with what it became: the codec's input, perhaps empty. `more`: the filter can make more of
 * that input; an empty UPCALL_INPUT asks for it when the codec has used this one and other connections have had their
 * turn. */
void acceptor_feed(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count, bool more);
/* Whether the connection is filtered. */
bool acceptor_is_filtered(const struct acceptor *a, uint32_t conn);
/* Says that the connection has completed its handshake: from now on Python's commands are answered even after the
 * client has hung up, which is reported by an empty UPCALL_INPUT. */
void acceptor_hear_out(struct acceptor *a, uint32_t conn);
/* The filter has found the end of the input; this counts as the client hanging up. */
void acceptor_end_input(struct acceptor *a, uint32_t conn);
/* Sends bytes to the socket as they are. */
void acceptor_send(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
/* Makes a connection a websocket: from now on both directions are in frames, ours of at most `frame_bytes`. It is no
 * longer filtered, unless the flags require it. False, with nothing changed: it cannot be, or it has unused input. */
enum websocket_flag {
    WEBSOCKET_UNMASKED = 1,  /* the other side does not mask its frames */
    WEBSOCKET_BY_FILTER = 2, /* the filter still encrypts the frames */
    WEBSOCKET_BY_PYTHON = 4, /* the filter makes the frames itself, because they are compressed */
    WEBSOCKET_MASKS = 8,     /* our frames are masked: this side has connected */
};
bool acceptor_websocket(struct acceptor *a, uint32_t conn, size_t frame_bytes, uint32_t flags);
/* The closing frame of a client has come whose frames are Python's. Ours, with that payload, is handed over when all
 * that came before has been answered. */
void acceptor_websocket_ended(struct acceptor *a, uint32_t conn, const uint8_t *payload, size_t bytes);
/* From now on output is compressed at a level (enum s2_level) and input is decompressed, both as streams of S2. A later
 * call changes the level. False when that is impossible, or the connection is closed. */
bool acceptor_compress(struct acceptor *a, uint32_t conn, uint32_t level);
/* Writes the client's address as text, "127.0.0.1:40960" or "[::1]:40960". Returns its length; 0 when closed. */
size_t acceptor_remote(const struct acceptor *a, uint32_t conn, char *out, size_t limit);

/* --- requests without a client ------------------------------------------------------------------------------------ */

/* Makes a connection without a socket, on which Python makes requests with acceptor_request until acceptor_close. 0
 * when the limit is reached. */
uint32_t acceptor_local(struct acceptor *a);
/* Takes ids for `count` messages of a topic. Returns the first; each next one is `shards` higher. */
uint64_t acceptor_take_ids(struct acceptor *a, uint32_t topic, uint32_t count);
/* For a process with an event loop of its own: a descriptor that becomes readable when a turn is due. */
int acceptor_fd(const struct acceptor *a);
/* To be called by such a process when that is readable: runs turns until there is nothing to do; after that, workers
 * wake the process. Returns how many upcalls there are. */
int acceptor_poll(struct acceptor *a);
/* Gives back to the system what the whole process has allocated and does not use. */
void acceptor_trim(struct acceptor *a);
/* Makes acceptor_run return with UPCALL_POKED. The only function that another thread may call. */
void acceptor_poke(struct acceptor *a);

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Adds one to a counter of a protocol; false when it has no counter of that name. */
bool acceptor_count(struct acceptor *a, uint32_t protocol, const char *counter);
/* A protocol's counter by its place: returns its name, *sum is its sum over all acceptors. NULL behind the last. */
const char *acceptor_counter(const struct acceptor *a, uint32_t protocol, uint32_t place, uint64_t *sum);

/* Sums over the board's blocks; oldest_segment is the smallest, current_segment the largest of the workers'. */
struct broker_totals {
    uint64_t total_connections, connections, gave_way;
    uint64_t urgent, ready, reserved, delayed, buried, topics, timeouts, total_jobs, published;
    uint64_t oldest_segment, current_segment, records_written, records_migrated, unreadable;
    bool draining;
};
void acceptor_totals(const struct acceptor *a, struct broker_totals *out);
/* The loop figures of an acceptor or a worker. */
void acceptor_loop(const struct acceptor *a, bool of_worker, uint32_t index, struct loop_figures *out);
/* The same as acceptor_totals for a single worker. */
void acceptor_worker_totals(const struct acceptor *a, uint32_t worker, struct broker_totals *out);
/* A histogram of durations that a worker measures (enum board_duration): HISTOGRAM_BUCKETS counts, and the sum. */
void acceptor_durations(const struct acceptor *a, uint32_t worker, uint32_t what, uint64_t *counts, uint64_t *sum_ns);
/* The login attempts of all processes, mapped as long as this acceptor exists. */
struct login_attempts *acceptor_logins(struct acceptor *a);
/* Bytes that all connections hold in incomplete commands and unsent replies. */
size_t acceptor_buffered_bytes(const struct acceptor *a);
/* For each worker a number that rises when a topic or a subscription is made or deleted there. It restarts with the
 * worker. */
void acceptor_catalog_versions(const struct acceptor *a, uint64_t *out);
/* The same, but it also rises when a tube joins the catalog or leaves it. */
void acceptor_names_versions(const struct acceptor *a, uint64_t *out);

#endif
