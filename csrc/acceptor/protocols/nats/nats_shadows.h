/* Shadows: what accounts that import an account's streams want of it, each pattern of theirs as the pattern of this
 * account that it comes from. Servers of the cluster, leaf nodes and hubs are told of shadows as of what clients of
 * this account want, since a message of a stream crosses a connection in the account that exports it, and is imported
 * by each server for its own clients and leaf nodes. Only leaf nodes are told what hubs want in importing accounts. And
 * a queue group is one, whichever of these accounts its members are in: for a message of this account a member is
 * chosen among all of them, and if it is one of an importing account, the group is awarded to the import.
 */
#ifndef MQ_NATS_SHADOWS_H
#define MQ_NATS_SHADOWS_H

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "acceptor/protocols/nats/nats_shadows_state.h"

struct nats_share;
struct subject_groups;
struct subject_name;
struct subject_pattern;

/* Must be called before there are shares; false when memory is short. */
bool nats_shadows_open(struct nats_server *server);
void nats_shadows_close(struct nats_server *server);
/* An account's subject is wanted `weight` times from now on by these; 0: not any more. Makes its shadows in the
 * accounts whose streams it imports, and tells servers. Aborts when memory is short, as messages would be missed. */
void nats_shadows_look(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                       struct text queue, struct nats_wanting by, uint64_t weight);
/* The same for clients and a pattern with wildcards in pieces: looks at *left streams, which is reduced, from *cursor
 * on. The account must import some. True at the end. */
bool nats_shadows_look_some(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                            struct text queue, uint64_t weight, struct subjects_cursor *cursor, size_t *left);
/* Makes the shadows in an account of what another wants of its streams. Nobody is told. */
void nats_shadows_make(struct nats_server *server, uint32_t exporter, uint32_t importer);
/* An account's streams are imported no more. NULL: there are none. */
void nats_shadows_unlink(struct nats_server *server, struct nats_shadows *shadows);
/* Tells servers what differs between an account's shadows of before and now. */
void nats_shadows_tell(struct acceptor *a, struct nats_server *server, uint32_t account,
                       const struct nats_shadows *before);
/* Frees those of an account, with its streams. NULL: there are none. */
void nats_shadows_free(struct nats_server *server, struct nats_shadows *shadows);

/* The patterns that match among an account's shadows, and their groups; 0 if none of them has a group. */
struct subject_groups *nats_shadows_groups(const struct nats_account *account);
size_t nats_shadows_match(struct nats_server *server, const struct nats_account *account, struct text subject,
                          struct subject_pattern *const **patterns);
/* How many members of a group `among` have in importing accounts. `name`: as gathered. */
uint64_t nats_shadows_members(const struct nats_server *server, const struct nats_account *account,
                              const struct subject_name *name, struct nats_candidates among);
/* Awards the group to a random one of the imports for which these have members, in proportion; there must be some. */
void nats_shadows_award(struct nats_server *server, const struct nats_account *account, const struct subject_name *name,
                        struct nats_candidates among);
/* Takes the groups that were awarded to an import. Returns how many; the names hold until the next call. */
size_t nats_shadows_awarded(struct nats_server *server, const struct nats_share *share, const struct text **names);
/* Room for so many names of groups; NULL when memory is short. */
struct text *nats_shadows_names(struct nats_server *server, size_t count);
/* The journey of a message is over: what was awarded and not taken is nobody's. */
void nats_shadows_arrived(struct nats_server *server);

#endif
