/* Which requests are measured. */
#ifndef MQ_NATS_SAMPLED_H
#define MQ_NATS_SAMPLED_H

#include "acceptor/protocols/nats/nats_message.h"

struct json_text;

/* Whether a traceparent (version-trace-parent-flags) asks for a trace: the lowest bit of its flags, which nats-server
 * reads as a signed byte. */
bool nats_asks_for_trace(struct text value);
/* Whether a request is measured. If headers ask for it, writes them as JSON. */
bool nats_is_sampled(struct nats_server *server, uint32_t percent, const struct nats_message *m,
                     struct json_text *headers);

#endif
