/* The producers and the consumers of a connection. */
#ifndef MQ_PULSAR_TABLE_H
#define MQ_PULSAR_TABLE_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* Each item must begin with its id, a uint64_t. Both return NULL when there is no such item. */
void *pulsar_table_find(const struct pulsar_table *table, uint64_t id);
void *pulsar_table_at(const struct pulsar_table *table, uint32_t number);
/* Adds an item and returns its number; 0 when there can be no more. The id must be new. */
uint32_t pulsar_table_add(struct pulsar_table *table, uint64_t id, void *item);
void pulsar_table_remove(struct pulsar_table *table, uint64_t id, uint32_t number);
/* The next item from a place on, which is moved behind it; NULL at the end. */
void *pulsar_table_next(const struct pulsar_table *table, uint32_t *place);
/* The table must be empty. */
void pulsar_table_free(struct pulsar_table *table);

#endif
