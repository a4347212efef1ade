/* What a user may publish and subscribe to: sets of patterns, one for all connections of a user.
 *
 * A set is made of text that Python gives it, and lives as long as Python or a connection refers to it. What a set says
 * of a subject is kept for a while, in one table for all sets of an acceptor: so a message is looked up once and
 * compared once, and strangers cannot make the table grow.
 *
 * Which entries count for what is nats-server's: publishing is denied by a deny or where no allow matches; subscribing
 * too, where entries may name queues; a message that a wildcard or a queue's member matches is denied when it is
 * delivered.
 */
#ifndef MQ_NATS_PERMISSIONS_H
#define MQ_NATS_PERMISSIONS_H

#include "base/subjects.h"

struct acceptor;
struct connection;
struct nats_permissions;
struct text;

enum { NATS_MAX_PERMISSION_SETS = 1 << 20, NATS_PERMITTED = 4096, NATS_PERMITTED_SUBJECT_BYTES = 47 };

/* A cached decision of a set about a subject. */
struct nats_permitted {
    uint64_t hash;
    uint64_t set; /* 0: the entry is empty */
    uint8_t bytes;
    uint8_t asked; /* enum nats_asked */
    bool allowed;
    char subject[NATS_PERMITTED_SUBJECT_BYTES];
};

/* All permission sets of an acceptor. */
struct nats_permission_sets {
    struct nats_permissions **sets; /* indexed by Python's numbers */
    uint32_t count;
    uint64_t made; /* numbers that never come again */
    struct siphash_key key;
    struct subject_walk *walk;        /* others may be in use */
    struct nats_permitted *permitted; /* allocated with the first set */
};

/* Makes the set of that number of lines of text, or makes it anew for whoever refers to it later; no text: Python does
 * not refer to it any more. A line is what it is for and a pattern, with a queue perhaps:
 *   "pa" publish, allow; "pd" publish, deny; "sa", "sd" subscribe; "p" publish: nothing but what is allowed;
 *   "r MAX NS": replies may be sent to whoever asked, so many (0: any number) and for so long (0: for ever).
 * False when it cannot be, or memory is short. */
bool nats_permissions_make(struct nats_permission_sets *all, uint64_t number, const uint8_t *text, size_t bytes);
void nats_permissions_close(struct nats_permission_sets *all);

/* Take and drop a reference to a set; NULL if there is none of that number. */
struct nats_permissions *nats_permissions_take(const struct nats_permission_sets *all, uint64_t number);
void nats_permissions_drop(struct nats_permissions *set);

bool nats_may_publish(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject);
bool nats_may_subscribe(struct nats_permission_sets *all, const struct nats_permissions *set, struct text subject,
                        struct text queue);
/* Whether messages of the pattern have to be looked at when they are delivered, */
bool nats_is_denied_some(const struct nats_permissions *set, struct text pattern, struct text queue);
/* ... and whether one is delivered. */
bool nats_may_have(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject,
                   struct text queue);

/* --- nats_replies.c: replies to what was asked --------------------------------------------------------------------- */

struct nats_replies;

enum { NATS_MAX_REPLIES = 1 << 16 /* most replies expected of one connection at a time */ };

/* How long and how often a set allows replies; false if it does not. */
bool nats_replies_of(const struct nats_permissions *set, uint64_t *max, uint64_t *lifetime_ns);
/* A message with this reply subject is given to a connection that may not publish there but may answer. */
void nats_reply_expect(struct acceptor *a, struct connection *c, struct text reply);
/* Whether it may publish to this subject as an answer; counts the answer. */
bool nats_reply_allowed(struct acceptor *a, struct connection *c, struct text subject);
void nats_replies_free(struct nats_replies *replies);

#endif
