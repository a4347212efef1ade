/* What the files of the target fuzz_nats share: fuzz_nats.c says what is looked for.
 *
 *   nats_headers.c    headers that ask for a message's journey
 *   nats_made_up.c    an acceptor that is made up
 */
#ifndef MQ_FUZZ_NATS_PLAY_H
#define MQ_FUZZ_NATS_PLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct acceptor;

enum {
    ACCEPTORS = 3,
    MADE_UP = ACCEPTORS, /* the index of the one that is made up */
    ACCOUNTS = 3,
    HEADER_BYTES = 256,
};

/* By their numbers from 1 on. */
extern const char *const account_names[ACCOUNTS];

/* --- nats_headers.c ----------------------------------------------------------------------------------------------- */

/* Lines that a message's journey is asked for by, right, wrong and nearly right. Returns how many bytes they are. */
size_t header_pick(char out[HEADER_BYTES]);
/* As nats-server reads it: what is to be traced, and to be delivered to nobody. */
bool header_only_traces(const char *header, size_t bytes);

/* --- nats_made_up.c: links between acceptors and the one that is made up ------------------------------------------ */

extern bool made_up_wants[ACCOUNTS + 1]; /* something of that account, perhaps */
void made_up_begin(void);
void made_up_join(uint32_t to, struct acceptor *acceptor, int wake);
bool made_up_is_joined(uint32_t to);
void made_up_leaves(uint32_t to, struct acceptor *acceptor);
/* False: that acceptor has said nothing. */
bool made_up_hears(uint32_t from);
/* Something, right or wrong. */
void made_up_says(uint32_t to);

#endif
