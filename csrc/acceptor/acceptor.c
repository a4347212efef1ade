/* The functions that Python calls: the life of an acceptor, its upcalls, and work on a connection whose command Python
 * has.
 */
#define _GNU_SOURCE

#include "acceptor/calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/bridge.h"
#include "acceptor/filter.h"
#include "acceptor/life.h"
#include "acceptor/listeners.h"
#include "acceptor/lists.h"
#include "acceptor/members.h"
#include "acceptor/mesh.h"
#include "acceptor/packed.h"
#include "acceptor/requests.h"
#include "acceptor/socket.h"
#include "acceptor/topics.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"
#include "acceptor/workers.h"
#include "base/process.h"

/* --- life --------------------------------------------------------------------------------------------------------- */

static bool map_board(struct acceptor *a, int board_fd) {
    a->board = board_map(board_fd);
    if (a->board == NULL) return false;
    a->count = &a->board->acceptors[a->index];
    /* The connections of an earlier acceptor with this index are gone; its counters go on. */
    a->count->connections = 0;
    members_begin(a);
    for (uint32_t i = 0; i < a->codecs->count; i++) {
        const struct codec *codec = a->codecs->items[i];
        for (uint32_t k = codec->first_gauge; k < codec->counter_count; k++) a->count->counters[i][k] = 0;
    }
    return true;
}

static bool open_tables(struct acceptor *a) {
    a->table = calloc(MAX_CONNECTIONS, sizeof *a->table);
    a->generations = calloc(MAX_CONNECTIONS, sizeof *a->generations);
    a->free_indexes = calloc(MAX_CONNECTIONS, sizeof *a->free_indexes);
    a->scratch = malloc(MAX_MOVED_BYTES + RECEIVE_ALONE_BYTES);
    a->timer_places = calloc(MAX_CONNECTIONS, sizeof *a->timer_places);
    a->silent.places = calloc(MAX_CONNECTIONS, sizeof *a->silent.places);
    if (a->timer_places == NULL || a->silent.places == NULL || a->table == NULL || a->generations == NULL ||
        a->free_indexes == NULL || a->scratch == NULL)
        return false;
    a->free_count = MAX_CONNECTIONS;
    return bindings_open(&a->bindings, a->shards, a->workers, MAX_TOPICS, MAX_IDLE_TOPICS);
}

static bool open_epoll(struct acceptor *a) {
    a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->epoll_fd < 0) return false;
    /* Edge-triggered: every wake-up is reported once, so the eventfd never needs to be read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = EVENT_POKE};
    a->poke_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (a->poke_fd < 0 || epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->poke_fd, &event) != 0) return false;
    if (a->wake_fd < 0) return true;
    event.data.u64 = EVENT_WAKE;
    return epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, a->wake_fd, &event) == 0;
}

static bool start_codecs(struct acceptor *a) {
    for (uint32_t i = 0; i < a->codecs->count; i++) {
        const struct codec *codec = a->codecs->items[i];
        assert(codec->counter_count <= BOARD_COUNTERS);
        if (codec->acceptor_bytes > 0 && (a->codec_states[i] = calloc(1, codec->acceptor_bytes)) == NULL) return false;
        if (codec->started != NULL && !codec->started(a, a->codec_states[i])) return false;
    }
    return true;
}

struct acceptor *acceptor_new(const struct codec_table *codecs, uint32_t index, uint32_t workers, uint32_t shards,
                              int board_fd, int wake_fd) {
    if (index >= BOARD_MAX_ACCEPTORS || workers == 0 || workers > BOARD_MAX_WORKERS || shards < workers) {
        errno = EINVAL;
        return NULL;
    }
    process_joins_free_memory();
    struct acceptor *a = calloc(1, sizeof *a);
    if (a == NULL) return NULL;
    a->codecs = codecs;
    a->index = index;
    a->workers = workers;
    a->shards = shards;
    a->wake_fd = wake_fd;
    a->epoll_fd = a->control_fd = a->poke_fd = -1;
    a->accepting = true;
    a->max_connections = MAX_CONNECTIONS;
    a->output_high_bytes = OUTPUT_HIGH_BYTES;
    a->max_buffered_bytes = BUFFERED_BYTES;
    a->receive_bytes = RECEIVE_BYTES;
    a->receive_alone_bytes = RECEIVE_ALONE_BYTES;
    a->acceptors = 1;
    adaptive_spin_set(&a->adaptive_spin, DEFAULT_SPIN_NS);
    if (!map_board(a, board_fd) || !open_tables(a) || !open_epoll(a) || !start_codecs(a)) {
        int error = errno;
        acceptor_free(a);
        errno = error;
        return NULL;
    }
    return a;
}

void acceptor_free(struct acceptor *a) {
    if (a == NULL) return;
    acceptor_stop_listening(a, 0);
    for (uint32_t i = 0; i < a->highest_index; i++)
        if (a->table[i] != NULL) socket_close(a, a->table[i]);
    socket_free_closed(a);
    peers_publish(a); /* that they are gone */
    mesh_publish(a);
    mesh_close(a);
    for (uint32_t w = 0; w < a->workers; w++) {
        if (a->links[w].channel != NULL) channel_close(a->links[w].channel);
        free(a->links[w].stalled.items);
        free(a->links[w].larges.items);
    }
    board_unmap(a->board);
    if (a->epoll_fd >= 0) close(a->epoll_fd);
    if (a->poke_fd >= 0) close(a->poke_fd);
    if (a->bindings.table != NULL) bindings_close(&a->bindings);
    bridge_close(a);
    upcalls_free(a);
    free(a->table);
    free(a->generations);
    free(a->free_indexes);
    packed_free(a);
    free(a->scratch);
    heap_free(&a->timers);
    free(a->timer_places);
    free(a->silent.places);
    for (uint32_t i = 0; i < a->codecs->count; i++) {
        void (*stopped)(void *state) = a->codecs->items[i]->stopped;
        if (a->codec_states[i] != NULL && stopped != NULL) stopped(a->codec_states[i]);
        free(a->codec_states[i]);
    }
    blocks_close(&a->blocks);
    free(a->dirty.items);
    free(a->borrowers.items);
    free(a->late.items);
    free(a->runnable.items);
    free(a->running.items);
    free(a->for_python.items);
    free(a->roomless.items);
    free(a);
}

void acceptor_trim(struct acceptor *a) {
    blocks_trim(&a->blocks);
}

struct login_attempts *acceptor_logins(struct acceptor *a) {
    return &a->board->logins;
}

int acceptor_set(struct acceptor *a, const char *option, uint64_t value) {
    const char *dot = strchr(option, '.');
    if (dot != NULL) {
        uint32_t protocol = codec_number(a->codecs, option, (size_t)(dot - option));
        if (protocol == 0 || codec_at(a->codecs, protocol)->set == NULL) return -1;
        return codec_at(a->codecs, protocol)->set(codec_state(a, protocol), dot + 1, value) ? 0 : -1;
    }
    if (strcmp(option, "max-connections") == 0 && value > 0 && value <= MAX_CONNECTIONS)
        a->max_connections = (uint32_t)value;
    else if (strcmp(option, "acceptors") == 0 && value > 0 && value <= BOARD_MAX_ACCEPTORS)
        a->acceptors = (uint32_t)value;
    else if (strcmp(option, "max-buffered-bytes") == 0 && value <= SIZE_MAX / 2)
        a->max_buffered_bytes = (size_t)value;
    else if (strcmp(option, "max-outstanding-output") == 0 && value <= SIZE_MAX / 2)
        a->output_high_bytes = (size_t)value;
    else if (strcmp(option, "idle-topics") == 0 && value <= MAX_TOPICS)
        a->bindings.idle_limit = (uint32_t)value;
    else if (strcmp(option, "spin-ns") == 0 && value <= 1000000000)
        adaptive_spin_set(&a->adaptive_spin, value);
    else
        return -1;
    return 0;
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

int acceptor_listen(struct acceptor *a, int fd, uint32_t protocol, bool filtered) {
    if (codec_at(a->codecs, protocol) == NULL || a->listeners_made == MAX_LISTENERS) {
        errno = EINVAL;
        return -1;
    }
    uint32_t number = a->listeners_made++;
    a->listeners[a->listener_count++] =
        (struct listener){.fd = fd, .protocol = (uint8_t)protocol, .number = (uint8_t)number, .filtered = filtered};
    listeners_update(a);
    return (int)number;
}

uint32_t acceptor_listener(const struct acceptor *a, uint32_t conn) {
    const struct connection *c = connection_find(a, conn);
    return c != NULL ? c->listener : 0;
}

void acceptor_stop_listening(struct acceptor *a, uint32_t protocol) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < a->listener_count; i++) {
        struct listener *l = &a->listeners[i];
        /* close() may not remove it from the epoll set, as the descriptor may be open in another process. Listeners
         * that stay are registered anew, with their new indexes. */
        if (l->registered) epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
        l->registered = false;
        if (protocol == 0 || l->protocol == protocol)
            close(l->fd);
        else
            a->listeners[kept++] = *l;
    }
    a->listener_count = kept;
    if (kept > 0) listeners_update(a);
}

uint32_t acceptor_adopt(struct acceptor *a, int fd, uint32_t protocol) {
    if (codec_at(a->codecs, protocol) == NULL) {
        errno = EINVAL;
        return 0;
    }
    const struct connection *c = socket_open(a, fd, protocol);
    return c != NULL ? c->number : 0;
}

int acceptor_control(struct acceptor *a, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = EVENT_CONTROL};
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) return -1;
    a->control_fd = fd;
    return 0;
}

void acceptor_quiesce(struct acceptor *a) {
    a->quiet = true;
}

uint32_t acceptor_servers(const struct acceptor *a) {
    uint32_t servers = 0;
    for (uint32_t i = 0; i < a->highest_index; i++)
        if (a->table[i] != NULL && a->table[i]->codec->joins_servers) servers++;
    return servers;
}

uint32_t acceptor_busy(const struct acceptor *a) {
    uint32_t busy = 0;
    for (uint32_t i = 0; i < a->highest_index; i++) {
        const struct connection *c = a->table[i];
        if (c == NULL) continue;
        bool waits = c->reserves > 0 || (c->codec->idles != NULL && c->codec->idles(c));
        bool with_python = c->stall == STALL_PYTHON && c->fd >= 0;
        if (connection_unsent(c) > 0 || with_python || (c->slot_count > 0 && !waits)) busy++;
    }
    return busy;
}

/* --- upcalls ------------------------------------------------------------------------------------------------------ */

bool acceptor_upcall(struct acceptor *a, struct upcall *out) {
    free(a->upcall_bytes);
    a->upcall_bytes = NULL;
    if (a->upcall_count == 0) return false;
    struct pending_upcall *p = &a->upcalls[a->upcall_head];
    a->upcall_head = (a->upcall_head + 1) % a->upcall_capacity;
    a->upcall_count--;
    a->upcalls_bytes -= p->upcall.bytes_count;
    *out = p->upcall;
    a->upcall_bytes = p->owned;
    if (out->kind == UPCALL_CONTROL) a->control_pending = false;
    if (out->kind == UPCALL_COMMAND) {
        a->commands--;
        a->command_bytes -= out->bytes_count;
    }
    if (out->kind == UPCALL_OUTPUT || out->kind == UPCALL_CLOSING) {
        struct connection *c = connection_find(a, out->conn);
        if (c != NULL) filter_taken(a, c, out->bytes_count);
    }
    return true;
}

/* --- for a connection whose command Python has -------------------------------------------------------------------- */

/* Keeps a copy of a request in its slot until the worker is back. */
static bool keep_unsent(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                        const void *body) {
    uint8_t *room = connection_body(c, &a->blocks, slot, sizeof *request + request->body_bytes);
    if (room == NULL) return false;
    memcpy(room, request, sizeof *request);
    if (request->body_bytes > 0) memcpy(room + sizeof *request, body, request->body_bytes);
    slot->unsent = true;
    if (request->topic != 0) bindings_refer(&a->bindings, request->topic);
    return true;
}

/* What the topic is that a CHANGE names, which it may make. */
static uint16_t said_of_changed(const struct acceptor *a, const char *body, size_t body_bytes) {
    const char *end = body_bytes > 0 ? memchr(body, '\n', body_bytes) : NULL;
    return topic_said(a, body, end != NULL ? (size_t)(end - body) : body_bytes);
}

int64_t acceptor_request(struct acceptor *a, uint32_t worker, uint32_t conn, const struct message *request,
                         const void *body, size_t body_bytes) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || worker >= a->workers) return -1;
    if (c->stall != STALL_PYTHON && !c->codec->python_alongside) return -1;
    if (request->kind < MSG_PUBLISH || request->kind == MSG_RESERVE || request->kind >= MSG_DELIVER) return -1;
    if (c->slot_count == MAX_OUTSTANDING || body_bytes > MAX_BODY_BYTES) return -1;
    struct message copy = *request;
    copy.conn = conn;
    copy.body_bytes = (uint32_t)body_bytes;
    if (copy.kind == MSG_CHANGE) copy.flags |= said_of_changed(a, body, body_bytes);
    if (copy.kind == MSG_SUBSCRIBE) {
        const struct codec *codec = c->codec;
        if (codec->subscribing == NULL || !codec->subscribing(a, c, worker, &copy, body)) return -1;
    }
    uint32_t number = c->head_slot + c->slot_count;
    struct slot *slot = connection_push_slot(c, &a->blocks, copy.kind);
    if (slot == NULL) return -1;
    slot->worker = (uint8_t)worker;
    slot->python = true;
    a->expected++;
    copy.slot = number;
    if (a->links[worker].channel != NULL) {
        c->touched_workers |= bit_of(worker);
        peer_send(a, worker, &copy, body);
    } else if (!keep_unsent(a, c, slot, &copy, body)) {
        engine_oom(a, c);
        return -1;
    }
    wake_self(a);
    return number;
}

void acceptor_reply(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0 || bytes_count == 0) return;
    uint8_t *room = socket_room(a, c, bytes_count);
    if (room == NULL) return;
    memcpy(room, bytes, bytes_count);
    socket_written(a, c, room + bytes_count);
    wake_self(a);
}

struct shared_bytes *acceptor_share(struct acceptor *a, const void *bytes, size_t bytes_count) {
    struct shared_bytes *shared = shared_new(&a->blocks, bytes_count);
    if (shared != NULL) memcpy(shared->at, bytes, bytes_count);
    return shared;
}

void acceptor_reply_shared(struct acceptor *a, uint32_t conn, struct shared_bytes *const *shared, size_t count) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0) return;
    for (size_t i = 0; i < count && !c->closed; i++) socket_share(a, c, shared[i], 0);
    wake_self(a);
}

void acceptor_unshare(struct acceptor *a, struct shared_bytes *shared) {
    shared_drop(&a->blocks, shared);
}

void acceptor_resume(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0 || c->stall != STALL_PYTHON) return;
    socket_wake(a, c);
    wake_self(a);
}

void acceptor_close(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL) return;
    c->closing = true;
    if (c->stall == STALL_PYTHON) c->stall = STALL_NONE;
    if (c->fd < 0)
        socket_close(a, c);
    else
        socket_dirty(a, c);
    wake_self(a);
}

void acceptor_part(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0) return;
    c->parting = true;
    socket_dirty(a, c);
    wake_self(a);
}

static size_t put_address(char *out, size_t limit, const char *format, const char *host, uint16_t port) {
    int bytes = snprintf(out, limit, format, host, (unsigned)ntohs(port));
    return bytes > 0 && (size_t)bytes < limit ? (size_t)bytes : 0;
}

size_t acceptor_remote(const struct acceptor *a, uint32_t conn, char *out, size_t limit) {
    const struct connection *c = connection_find(a, conn);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } address;
    socklen_t bytes = sizeof address;
    char host[INET6_ADDRSTRLEN];
    if (c == NULL || c->fd < 0 || getpeername(c->fd, &address.any, &bytes) != 0) return 0;
    if (address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address.v4.sin_addr, host, sizeof host);
        return put_address(out, limit, "%s:%u", host, address.v4.sin_port);
    }
    if (address.any.sa_family != AF_INET6) return put_address(out, limit, "%s", "@", 0);
    if (IN6_IS_ADDR_V4MAPPED(&address.v6.sin6_addr)) {
        inet_ntop(AF_INET, &address.v6.sin6_addr.s6_addr[12], host, sizeof host);
        return put_address(out, limit, "%s:%u", host, address.v6.sin6_port);
    }
    inet_ntop(AF_INET6, &address.v6.sin6_addr, host, sizeof host);
    return put_address(out, limit, "[%s]:%u", host, address.v6.sin6_port);
}

int64_t acceptor_configure(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                           size_t bytes_count) {
    const struct codec *codec = codec_at(a->codecs, protocol);
    if (codec == NULL || codec->configure == NULL) return CALL_REFUSED;
    return codec->configure(a, codec_state(a, protocol), what, value, bytes, bytes_count);
}

int64_t acceptor_call(struct acceptor *a, uint32_t conn, const char *what, uint64_t value, const void *bytes,
                      size_t bytes_count, uint32_t *out, size_t out_limit) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL) return CALL_CLOSED;
    struct codec_call call = {value, bytes, bytes_count, out, out_limit};
    return c->codec->call != NULL ? c->codec->call(a, c, what, &call) : CALL_REFUSED;
}

int64_t acceptor_ask(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                     size_t bytes_count, void *out, size_t out_limit) {
    const struct codec *codec = codec_at(a->codecs, protocol);
    struct codec_question question = {value, bytes, bytes_count, out, out_limit};
    return codec != NULL && codec->ask != NULL ? codec->ask(a, codec_state(a, protocol), what, &question)
                                               : CALL_REFUSED;
}

uint64_t acceptor_refused(const struct acceptor *a, uint32_t protocol) {
    assert(protocol >= 1 && protocol <= BOARD_PROTOCOLS);
    return a->refused[protocol - 1];
}

size_t acceptor_topic_name(const struct acceptor *a, uint32_t topic, char *out) {
    if (topic == 0 || topic >= a->bindings.capacity) return 0;
    const struct binding *binding = binding_at(&a->bindings, topic);
    if (binding->name == NULL) return 0;
    memcpy(out, binding->name, binding->name_bytes);
    return binding->name_bytes;
}

size_t acceptor_topic_names(const struct acceptor *a, const uint32_t *topics, size_t count, char *out) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += acceptor_topic_name(a, topics[i], out + bytes);
        out[bytes++] = '\n';
    }
    return bytes;
}

uint32_t acceptor_shard_of_name(const struct acceptor *a, const char *name, size_t name_bytes) {
    return bindings_shard(&a->bindings, name, name_bytes);
}

uint32_t acceptor_worker_of_topic(const struct acceptor *a, uint32_t topic) {
    return topic < a->bindings.capacity ? binding_at(&a->bindings, topic)->worker : 0;
}

uint32_t acceptor_bind(struct acceptor *a, const char *topic, size_t topic_bytes) {
    if (topic_bytes == 0 || topic_bytes > TOPIC_NAME_BYTES) return 0;
    uint32_t number = topic_look_up(a, topic, topic_bytes);
    wake_self(a);
    return number;
}
