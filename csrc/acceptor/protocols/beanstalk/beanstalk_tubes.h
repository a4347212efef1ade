/* The tubes that a connection uses and watches. */
#ifndef MQ_BEANSTALK_TUBES_H
#define MQ_BEANSTALK_TUBES_H

#include "acceptor/protocols/beanstalk/beanstalk_state.h"

/* Use and watch a topic. `flags`: MSG_IMPLICIT or 0. Both take over a reference to the topic, which must not be watched
 * yet. */
void beanstalk_use(struct acceptor *a, struct connection *c, uint32_t topic, uint16_t flags);
void beanstalk_watch(struct acceptor *a, struct connection *c, uint32_t topic, uint16_t flags);
void beanstalk_ignore(struct acceptor *a, struct connection *c, uint32_t place);
/* The place of a topic in the watch list; the list's length when it is not there. */
uint32_t beanstalk_watch_place(const struct beanstalk *b, uint32_t topic);
/* Tells a worker that is back all it must know of the connection. */
void beanstalk_tell(struct acceptor *a, struct connection *c, uint32_t worker);
/* Drops the connection's references to topics. */
void beanstalk_let_go_tubes(struct acceptor *a, struct connection *c);
/* Frees the memory of the watch list. */
void beanstalk_free_tubes(struct beanstalk *b);

#endif
