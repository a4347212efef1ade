/* The numbers of topics. */
#ifndef MQ_TOPICS_H
#define MQ_TOPICS_H

#include "acceptor/acceptor_state.h"

/* The number of a name; tells the worker if the name is new. Takes no reference, so the number is only good for
 * immediate use. 0 when the limit is reached. */
uint32_t topic_look_up(struct acceptor *a, const void *name, size_t name_bytes);
/* The same with a reference, which topic_unbind gives back. */
uint32_t topic_bind(struct acceptor *a, const void *name, size_t name_bytes);
void topic_unbind(struct acceptor *a, uint32_t topic);
/* Binds a name for good, and includes it in lists of topics. False when the limit is reached. */
bool topic_list(struct acceptor *a, const void *name, size_t name_bytes);
/* What a topic of that name is, by the rules of all protocols: MSG_TOPIC_* flags. */
uint16_t topic_said(const struct acceptor *a, const void *name, size_t name_bytes);
/* Tells the worker of a topic's number, perhaps again. */
void topic_open(struct acceptor *a, uint32_t topic);

#endif
