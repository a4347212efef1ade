/* What clients say and hear, for the log file (nats-server's -V and `trace`). Only connections with the flag
 * NATS_LOGGED are looked at; none has it while this is off, and then it costs nothing.
 *
 * Python is handed one line each, as a command: "LOG", what it is (enum nats_logged), how many lines before it were
 * left out (4 bytes, in the machine's order), and the text. Lines are left out while Python has not taken many others.
 */
#ifndef MQ_NATS_LOGGED_H
#define MQ_NATS_LOGGED_H

#include "acceptor/protocols/nats/nats_delivery.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_subscription_state.h"

enum nats_logged {
    NATS_LOGGED_IN = '<',          /* a line that came */
    NATS_LOGGED_OUT = '>',         /* a line that was sent */
    NATS_LOGGED_GONE = '-',        /* the sid of a subscription that was removed */
    NATS_LOGGED_PAYLOAD_IN = 'i',  /* a payload that came, or its headers */
    NATS_LOGGED_PAYLOAD_OUT = 'o', /* ... that was sent */
    NATS_LOGGED_CUT_IN = 'I',      /* ... that came and is cut off */
    NATS_LOGGED_CUT_OUT = 'O',
};

/* Turns this on for all clients of this acceptor, or off. `terms`: whether it is on (bit 0), whether only the headers
 * of messages are logged (bit 1), and how much of them (the other bits; 0: all, up to a limit). False without
 * memory. */
bool nats_log_set(struct acceptor *a, struct nats_server *server, uint64_t terms);
void nats_log_free(struct nats_server *server);
/* A connection is new. */
void nats_log_opened(struct nats_server *server, struct connection *c);

/* A line came that is obeyed: `arguments` is what follows its verb. */
void nats_log_came(struct acceptor *a, struct connection *c, const char *verb, struct text arguments);
void nats_log_publish(struct acceptor *a, struct connection *c, struct text line, const struct nats_message *m);
/* ... with its message. `said`: the subject as it came, which a mapping may have changed. */
void nats_log_message(struct acceptor *a, struct connection *c, struct text line, struct text said,
                      const struct nats_message *m);
/* A part of a line was sent. */
void nats_log_said(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
/* A message was given to a subscription. */
__attribute__((noinline, cold)) void nats_log_given(struct nats_delivery *d, const struct nats_subscription *s);
void nats_log_removed(struct acceptor *a, const struct nats_subscription *s);

#endif
