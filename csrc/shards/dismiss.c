/* Consumers leave their channels: because their clients say so or go, or because the channel is gone or was moved. */
#include "shards/dismiss.h"

#include "shards/answers.h"
#include "shards/consumer.h"
#include "shards/policy.h"

void consumer_leave(struct worker *w, uint32_t consumer) {
    uint32_t subscription = worker_consumer(w, consumer)->subscription;
    consumer_remove(w, consumer);
    policy_left(w, subscription, consumer);
}

void consumer_dismiss(struct worker *w, uint32_t consumer, enum dismissed why) {
    const struct consumer *c = worker_consumer(w, consumer);
    uint32_t client = c->client;
    struct message m = {
        .kind = MSG_DISMISSED, .conn = client_at(&w->clients, client)->conn, .consumer = c->number, .why = why};
    consumer_leave(w, consumer);
    request_send(w, client, &m, NULL, 0);
}
