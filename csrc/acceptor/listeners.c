/* Listeners are watched while connections are accepted. */
#include "acceptor/listeners.h"

#include <sys/epoll.h>

#include "acceptor/silent.h"

/* Accepts connections as long as there is room for another one. */
void listeners_update(struct acceptor *a) {
    a->accepting = a->connections < a->max_connections || silent_is_due(a);
    for (uint32_t i = 0; i < a->listener_count; i++) {
        struct listener *l = &a->listeners[i];
        const struct codec *codec = codec_at(a->codecs, l->protocol);
        bool open = a->accepting && (codec->may_serve == NULL || codec->may_serve(a, codec_state(a, l->protocol)));
        if (l->registered == open) continue;
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = EVENT_LISTENER | i};
        if (epoll_ctl(a->epoll_fd, open ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, l->fd, &event) == 0) l->registered = open;
    }
}
