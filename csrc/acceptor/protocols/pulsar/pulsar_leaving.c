/* Removes the producers and consumers of connections that have closed, in pieces: a connection may have had thousands,
 * and others must not wait for that. Nothing else refers to them meanwhile, as the connection cannot be found any more.
 */
#include "acceptor/protocols/pulsar/pulsar_leaving.h"

#include <stdlib.h>

#include "acceptor/protocols/pulsar/pulsar_consumer.h"
#include "acceptor/protocols/pulsar/pulsar_producer.h"
#include "acceptor/protocols/pulsar/pulsar_table.h"

enum { REMOVED_AT_ONCE = 1024 };

/* Removes at most *left of them, which is lowered; false: there are more. */
static bool remove_some(struct acceptor *a, struct connection *c, uint32_t *left) {
    struct pulsar *p = pulsar_of(c);
    void *item;
    for (; *left > 0 && (item = pulsar_table_next(&p->producers, &p->removed_producers)) != NULL; --*left)
        pulsar_producer_end(a, c, item);
    for (; *left > 0 && (item = pulsar_table_next(&p->consumers, &p->removed_consumers)) != NULL; --*left)
        pulsar_consumer_end(a, c, item);
    return p->producers.count == 0 && p->consumers.count == 0;
}

void pulsar_leave(struct acceptor *a, struct connection *c) {
    struct pulsar_options *options = codec_state(a, c->protocol);
    uint32_t left = REMOVED_AT_ONCE;
    if (remove_some(a, c, &left)) return;
    c->kept = true;
    pulsar_of(c)->next_leaving = options->leaving;
    options->leaving = c;
    codec_left(a, c->protocol);
}

void pulsar_leave_on(struct acceptor *a, void *state) {
    struct pulsar_options *options = state;
    uint32_t left = REMOVED_AT_ONCE;
    while (options->leaving != NULL && remove_some(a, options->leaving, &left)) {
        struct connection *c = options->leaving;
        options->leaving = pulsar_of(c)->next_leaving;
        socket_let_go(a, c);
    }
    if (options->leaving != NULL) codec_left(a, options->leaving->protocol);
}

void pulsar_leaving_free(struct pulsar_options *options, void (*freed)(struct connection *)) {
    while (options->leaving != NULL) {
        struct connection *c = options->leaving;
        struct pulsar *p = pulsar_of(c);
        void *item;
        options->leaving = p->next_leaving;
        while ((item = pulsar_table_next(&p->producers, &p->removed_producers)) != NULL) pulsar_producer_free(p, item);
        while ((item = pulsar_table_next(&p->consumers, &p->removed_consumers)) != NULL) pulsar_consumer_free(p, item);
        freed(c);
        free(c);
    }
}
