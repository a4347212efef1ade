/* Acceptors that attach and die. When one dies, what its connections had is released piece by piece, for each
 * connection as after a GONE. Until that is done its channel stays, broken, so that nothing is sent or received; and
 * its successor's channel waits, as its connections use the same numbers.
 */
#include "shards/peer.h"

#include <stdlib.h>

#include "shards/calls.h"
#include "shards/gone.h"
#include "shards/opened.h"

enum { MAX_MESSAGE_BYTES = 1 << 30 };

static uint32_t clients_go(struct worker *w, uint32_t acceptor, uint32_t most) {
    struct peer *p = &w->peers[acceptor];
    uint64_t left = most;
    for (; left && p->leaving < w->clients.arena.end; p->leaving++) {
        const struct client *c = client_at(&w->clients, p->leaving);
        left--;
        if (c->acceptor != acceptor || clients_find(&w->clients, acceptor, c->conn) != p->leaving) continue;
        const uint64_t before = w->steps;
        uint64_t more = (uint64_t)client_gone(w, p->leaving) * WORKER_LETTING_GO;
        more += w->steps - before;
        left -= more < left ? more : left;
    }
    return (uint32_t)left;
}

static void attach_channel(struct worker *w, uint32_t acceptor, struct channel *channel) {
    w->peers[acceptor].channel = channel;
    w->peers_there |= (uint64_t)1 << acceptor;
}

/* Releases some of what a dead acceptor's connections had. True: there is more. */
static bool goes_on(struct worker *w, uint32_t acceptor) {
    struct peer *p = &w->peers[acceptor];
    uint32_t left = clients_go(w, acceptor, w->piece);
    if (p->leaving < w->clients.arena.end || w->clients.lines[LINE_LEAVING].first) return true;
    for (; left && p->closing < p->topics_capacity; left--) opened_close(w, &p->topics[p->closing++]);
    if (p->closing < p->topics_capacity) return true;
    struct channel *next = p->next;
    channel_close(p->channel);
    free(p->topics);
    *p = (struct peer){0};
    if (next) attach_channel(w, acceptor, next);
    return false;
}

bool peers_leave(struct worker *w) {
    worker_share_piece(w);
    for (uint64_t rest = w->peers_leaving; rest; rest &= rest - 1)
        if (!goes_on(w, (uint32_t)__builtin_ctzll(rest))) w->peers_leaving &= ~(rest & -rest);
    return w->peers_leaving != 0;
}

void worker_peer_gone(struct worker *w, uint32_t acceptor) {
    struct peer *p = &w->peers[acceptor];
    uint64_t bit = (uint64_t)1 << acceptor;
    if (!p->channel) return;
    if (p->leaving) {
        channel_close(p->next);
        p->next = NULL;
        return;
    }
    channel_break(p->channel);
    w->peers_there &= ~bit;
    p->full = true;
    p->stalled = NULL;
    p->stalled_at = 0;
    p->round_tail = 0;
    p->joined_client = 0;
    p->leaving = 1;
    worker_share_piece(w);
    if (goes_on(w, acceptor)) w->peers_leaving |= bit;
}

bool worker_peer(struct worker *w, uint32_t acceptor, int out_fd, int in_fd, int peer_wake_fd) {
    if (acceptor >= BOARD_MAX_ACCEPTORS) return false;
    worker_peer_gone(w, acceptor);
    struct channel *channel = channel_open(out_fd, in_fd, peer_wake_fd, MAX_MESSAGE_BYTES);
    if (!channel) return false;
    channel_hold(channel);
    if (w->peers[acceptor].leaving)
        w->peers[acceptor].next = channel;
    else
        attach_channel(w, acceptor, channel);
    return true;
}

void peers_free(struct worker *w) {
    for (uint32_t a = 0; a < BOARD_MAX_ACCEPTORS; a++) {
        channel_close(w->peers[a].channel);
        channel_close(w->peers[a].next);
        free(w->peers[a].topics);
    }
}
