/* Limits that both ends of a ring rely on: what an acceptor accepts, and what a worker has room for. */
#ifndef MQ_LIMITS_H
#define MQ_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* Connections of one acceptor. At the limit it accepts none until one closes; they wait in the kernel's backlog. */
#define MAX_CONNECTIONS 65536u

/* Names that an acceptor may have bound to numbers, and watched topics of one connection. Beyond: OUT_OF_MEMORY. */
#define MAX_TOPICS  (1u << 20)
#define MAX_WATCHED 10000u
/* Watched topics of all connections together, not counting the one that each connection begins with. */
#define MAX_ALL_WATCHED (1u << 19)

/* A topic's name. A protocol may allow less. */
#define TOPIC_NAME_BYTES 1024u

/* Consumers of one connection on one worker. Beyond: TOO_MANY. */
#define MAX_CONSUMERS 16384u

/* The largest message body, and the largest reply: a list of all topics. */
#define MAX_BODY_BYTES  ((uint32_t)1 << 30)
#define MAX_REPLY_BYTES ((size_t)MAX_BODY_BYTES + 4096)

#endif
