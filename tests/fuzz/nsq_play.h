/* What the files of the target fuzz_nsq share: fuzz_nsq.c says what is looked for.
 *
 *   nsq_heard.c     what clients are told, and whether they may be
 *   nsq_says.c      what clients say
 *   nsq_python.c    Python's part: commands that it is handed, and bytes that pass through it
 *   nsq_engines.c   turns of the acceptor and the workers, until all is quiet; workers that die
 *   nsq_others.c    requests of no client's, and a client of beanstalkd's
 */
#ifndef MQ_FUZZ_NSQ_PLAY_H
#define MQ_FUZZ_NSQ_PLAY_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote.h"
#include "script.h"
#include "world.h"

enum {
    CLIENTS = 5,
    LOCALS = 2,
    TOPICS = 5,
    CHANNELS = 3,
    MAX_MESSAGE = 40000,
    MAX_BODY = 60000,
    MAX_RDY = 50,
    MAX_ERROR = 100000, /* a line, quoted */
    EXPECTED = 1024,
    RECENT = 32,
    NSQ_NAME = 64, /* bytes of a name, at most */
    KNOWN = 64,    /* connections that Python knows of */
    PAST = 1 << 14,
    NAME_BYTES = 80,
    NSQ_ID_TEXT = 17,
};

enum { RESPONSE, ERROR, MESSAGE }; /* frames */

enum asked {
    A_PUB,
    A_MPUB,
    A_DPUB,
    A_SUB,
    AN_IDENTIFY,
    A_CLS,
    A_MISTAKE,
    A_REMARK /* of a message: answered only if it is refused */
};

struct nsq_client {
    struct remote remote;
    uint32_t conn;
    bool crooked; /* not followed any more */
    bool doomed;  /* it has made a mistake: what it asks for is not answered any more */
    bool over;    /* it has been told so */
    bool subscribing, subscribed, closing;
    bool muffled;  /* what it is told may never come */
    bool unsure;   /* what comes may have been sent before something that ended its flight */
    uint32_t mark; /* of the last IDENTIFY */
    struct {
        enum asked what;
        uint32_t mark;
        char about[NSQ_ID_TEXT]; /* of a remark */
    } expected[EXPECTED];
    uint32_t expected_count;
    uint64_t in_flight[MAX_RDY + 1];
    uint32_t in_flight_count;
    uint32_t rdy, highest_rdy; /* the last it has said; the highest that may be in force */
};

extern struct nsq_client clients[CLIENTS];
extern struct remote tube_client;

/* Messages that were delivered before. */
struct delivered {
    uint64_t id, sum;
};
extern struct delivered past[PAST];
extern uint64_t recent[RECENT];
extern uint32_t recent_count;
struct play_options {
    bool auth, tls_required, ephemerals;
};
extern struct play_options options;

enum passes { AT_ONCE, IN_PIECES, LATE, NEVER };

struct known {
    uint32_t conn;        /* 0: a free place */
    struct bytes command; /* that it thinks about */
    bool subscribing;
    bool filtered;
    enum passes passes;
    uint32_t handshakes;  /* that are still to come: inputs */
    struct bytes in, out; /* on their way */
    bool input;           /* to be answered */
};

extern struct known known[KNOWN];
struct local {
    uint32_t conn, missing;
};
extern struct local locals[LOCALS];

static inline bool is(const uint8_t *data, size_t bytes, const char *text) {
    return bytes == strlen(text) && !memcmp(data, text, bytes);
}

/* --- nsq_heard.c -------------------------------------------------------------------------------------------------- */

/* What comes is about what was asked later: nothing more comes about these. */
void drop_remarks(struct nsq_client *c);
/* Looks at the frames that have come; whether any bytes have. */
bool receive(struct nsq_client *c);
/* What is in flight is not known any more, until all is quiet. */
void forget_flights(void);

/* --- nsq_says.c --------------------------------------------------------------------------------------------------- */

/* One of few, into NAME_BYTES. */
void topic_name(char *out);
void channel_name(char *out);
void connect_client(struct nsq_client *c);
void some_command(struct nsq_client *c);
/* More than may be on its way to one consumer. */
void flood(struct nsq_client *c);

/* --- nsq_python.c ------------------------------------------------------------------------------------------------- */

void forget_known(struct known *k);
struct nsq_client *client_of(uint32_t conn);
/* Does the command that it has put off, if there is one. */
void think(struct known *k);
/* Of a filtered connection: what has come in, and what is to go out. */
void answer_input(struct known *k);
void pass_output(struct known *k, size_t most);
void handle_upcalls(void);

/* --- nsq_engines.c ------------------------------------------------------------------------------------------------ */

bool turn_acceptor(void);
bool turn_worker(uint32_t index);
/* What one held it holds when it is back. */
void lose_worker(uint32_t index);
void bring_back_worker(uint32_t index);
void run_until_quiet(void);

/* --- nsq_others.c ------------------------------------------------------------------------------------------------- */

void local_request(void);
void tube_command(void);

#endif
