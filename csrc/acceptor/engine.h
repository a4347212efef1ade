/* The engine, as codecs include it. It names no protocol, and its own files include what they need instead.
 *
 *   calls.h       what Python calls; acceptor.c, where no other file does it
 *   acceptor_state.h  the state that all of these share
 *   turn.c        a turn: receive replies, send bytes, wait, receive bytes, send requests; and when to sleep
 *   socket.c      one connection's bytes: receive, parse, send
 *   life.c        connections are made and closed; lists.c, in which they wait; slots.c, what they hold of workers
 *   listeners.c   listening sockets
 *   silent.c      connections that have said nothing yet, and give way to newcomers
 *   workers.c     the workers: attach, lose, receive replies
 *   replies.c     what becomes of a reply; in the order of the requests
 *   asks.c        requests to workers; requests.c and publishes.c, which send consecutive ones as one message
 *   topics.c      the numbers of topics
 *   mesh.c        messages between acceptors
 *   bridge.c      what is published to topics, for clients that listen
 *   borrowed.c    output that refers to messages in rings
 *   upcalls.c     what Python is told
 *   wake.c        the next turn comes soon
 *   timers.c      a timer for each connection that wants one
 *   room.c        the memory of all connections together: which ones wait, or are closed, when it is too much
 *   filter.c      a connection whose bytes pass through Python on their way
 *   framing.c     a connection that is a websocket
 *   compression.c a connection that is compressed
 *   migration.c   a connection that moves to another process, or comes from one
 *   local.c       requests made by Python, not by a client, and running inside another event loop
 *   packed.c      batches opened for consumers that do not know their headers
 *   codec.h       the interface of a wire protocol
 */
#ifndef MQ_ENGINE_H
#define MQ_ENGINE_H

#include "acceptor/acceptor_state.h"
#include "acceptor/asks.h"
#include "acceptor/borrowed.h"
#include "acceptor/bridge.h"
#include "acceptor/bridged.h"
#include "acceptor/compression.h"
#include "acceptor/filter.h"
#include "acceptor/framing.h"
#include "acceptor/life.h"
#include "acceptor/listeners.h"
#include "acceptor/lists.h"
#include "acceptor/mesh.h"
#include "acceptor/replies.h"
#include "acceptor/requests.h"
#include "acceptor/room.h"
#include "acceptor/slots.h"
#include "acceptor/socket.h"
#include "acceptor/timers.h"
#include "acceptor/topics.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"

#endif
