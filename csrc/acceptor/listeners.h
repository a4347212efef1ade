/* Listening sockets, watched while connections are accepted. */
#ifndef MQ_LISTENERS_H
#define MQ_LISTENERS_H

#include "acceptor/acceptor_state.h"

/* Accepts connections as long as there is room for another one. */
void listeners_update(struct acceptor *a);

#endif
