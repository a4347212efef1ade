/* Publishes the results of measurements, in the turn after: a result may be a request to a measured service itself. */
#include "acceptor/protocols/nats/nats_results.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "base/decimal.h"

enum { PUBLISHED_AT_ONCE = 256 /* in a turn */ };

void nats_latency_publish(struct acceptor *a, struct nats_server *server) {
    struct nats_latencies *l = server->latencies;
    if (l == NULL) return;
    uint8_t digits[DECIMAL_MAX_BYTES];
    for (uint32_t left = PUBLISHED_AT_ONCE; l->first != NULL && left > 0; left--) {
        struct nats_result *r = l->first;
        l->first = r->next;
        if (l->first == NULL) l->last = &l->first;
        l->results--;
        l->kept_bytes -= r->subject_bytes + r->payload_bytes;
        struct nats_message m = {.subject = {r->text, r->subject_bytes},
                                 .payload = r->text + r->subject_bytes,
                                 .payload_bytes = r->payload_bytes};
        m.size = (struct text){digits, (size_t)(decimal_put(digits, m.payload_bytes) - digits)};
        const uint32_t account = nats_account_referred(server, r->account);
        if (account != 0) nats_deliver_on(a, server, account, &m);
        free(r);
    }
    if (l->first != NULL) codec_left(a, server->protocol);
}
