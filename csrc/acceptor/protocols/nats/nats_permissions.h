/* What a user may publish and subscribe to: a set of patterns, shared by all connections of the user.
 *
 * A set is made of text from Python, and lives as long as Python or a connection refers to it. Decisions are cached in
 * one table for all sets of an acceptor, whose size is fixed: mostly a message costs one look-up and one comparison.
 *
 * Sets mean what they mean to nats-server. Publishing is denied if a deny matches, or if there are allows and none
 * matches. Subscribing likewise, but there entries may name queues. If a subscription has a wildcard or a queue and
 * denies match only some of its messages, these are left out when they are delivered.
 */
#ifndef MQ_NATS_PERMISSIONS_H
#define MQ_NATS_PERMISSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/protocols/nats/nats_permissions_state.h"
#include "base/text.h"

struct nats_permissions;

/* Makes set `number` of lines of text, or replaces it for later references; without text drops Python's reference. A
 * line is a word and a pattern, perhaps with a queue:
 *   "pa" allow to publish; "pd" deny to publish; "sa", "sd" the same for subscribing;
 *   "p" deny to publish all that is not allowed, even if nothing is;
 *   "r MAX NS": requests may be answered, MAX times each (0: no limit) within NS (0: for ever).
 * False when the text is invalid or memory is short. */
bool nats_permissions_make(struct nats_permission_sets *all, uint64_t number, const uint8_t *text, size_t bytes);
void nats_permissions_close(struct nats_permission_sets *all);

/* Take and drop a reference to a set; NULL if there is none of that number. */
struct nats_permissions *nats_permissions_take(const struct nats_permission_sets *all, uint64_t number);
void nats_permissions_drop(struct nats_permissions *set);

bool nats_may_publish(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject);
bool nats_may_subscribe(struct nats_permission_sets *all, const struct nats_permissions *set, struct text subject,
                        struct text queue);
/* Whether each message of the pattern has to be checked when it is delivered, */
bool nats_is_denied_some(const struct nats_permissions *set, struct text pattern, struct text queue);
/* How many subjects are denied: it takes that long. */
uint32_t nats_denied_count(const struct nats_permissions *set);
/* ... and whether a message may be delivered. */
bool nats_may_have(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject,
                   struct text queue);

/* Returns how often and for how long a set allows answers to a request; false if it does not. */
bool nats_replies_of(const struct nats_permissions *set, uint64_t *max, uint64_t *lifetime_ns);

#endif
