/* Acknowledgements in transactions. */
#ifndef MQ_SHARDS_TRANSACTION_ACKS_H
#define MQ_SHARDS_TRANSACTION_ACKS_H

#include "shards/worker_state.h"

/* A transaction ends: its acknowledgement takes effect, or the message is delivered again. */
void acknowledgement_end(struct worker *w, uint32_t acknowledgement, bool commit);
/* Frees an acknowledgement. */
void acknowledgement_forget(struct worker *w, uint32_t acknowledgement);

/* The parts of a message that are not pending in transactions. False: none is pending, or all are. */
__attribute__((cold)) bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out);

/* To be asked when a message is to be delivered again. True: all its remaining parts are pending, or some are and it
 * would have to be split; then it waits for the end of the transactions. */
bool transactions_keep(struct worker *w, uint32_t delivery, bool splits);

/* A message is about to be copied to the head of the log: ends acknowledgements of it in transactions that are ending.
 * A PENDING record behind the TXN_END would belong to an open transaction when the log is read back. */
void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq);
/* A message is copied to the head of the log: how many PENDING records have to go with it, whose attributes and bodies
 * are added to *bytes; and writes them. */
uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq, uint64_t *bytes);
void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq);
void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);

enum outcome transaction_acknowledge(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void transaction_pending(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

#endif
