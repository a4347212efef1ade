#include "shards/execute.h"

#include "shards/answers.h"
#include "shards/attach.h"
#include "shards/catalog.h"
#include "shards/change.h"
#include "shards/compacted.h"
#include "shards/consume.h"
#include "shards/many.h"
#include "shards/oldest.h"
#include "shards/opened.h"
#include "shards/position.h"
#include "shards/publish.h"
#include "shards/stats.h"
#include "shards/transaction_acks.h"
#include "shards/transaction_end.h"
#include "shards/tube.h"

enum outcome execute(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    switch (m->kind) {
    case MSG_USE: return opened_use(w, client, topic, !(m->flags & MSG_IMPLICIT));
    case MSG_WATCH: return opened_watch(w, client, topic, !(m->flags & MSG_IMPLICIT));
    case MSG_IGNORE: opened_ignore(w, client, topic); break;
    case MSG_RETURN: tube_give_back(w, client, m); break;
    case MSG_PUBLISH: return publish(w, client, topic, m);
    case MSG_RESERVE: return tube_reserve(w, client, m);
    case MSG_PROBE: return tube_probe(w, client, m);
    case MSG_TAKE: return tube_take(w, client, m);
    case MSG_RESERVE_ID: return tube_reserve_id(w, client, m);
    case MSG_DELETE: return tube_delete(w, client, m);
    case MSG_RELEASE: return tube_release(w, client, m);
    case MSG_BURY: return tube_bury(w, client, m);
    case MSG_TOUCH: tube_touch(w, client, m); break;
    case MSG_PEEK_ID: return tube_peek_id(w, client, m);
    case MSG_PEEK_READY:
    case MSG_PEEK_DELAYED:
    case MSG_PEEK_BURIED: return tube_peek(w, client, topic, m);
    case MSG_KICK: return tube_kick(w, client, topic, m);
    case MSG_KICK_ID: return tube_kick_id(w, client, m);
    case MSG_PAUSE: tube_pause(w, client, m); break;
    case MSG_STATS_ID: stats_id(w, client, m); break;
    case MSG_STATS_TOPIC: stats_topic(w, client, m); break;
    case MSG_LIST: catalog_list(w, client, m); break;
    case MSG_PUBLISH_EACH: return publish_each(w, client, topic, m);
    case MSG_PUBLISH_MANY: return publish_many(w, client, topic, m);
    case MSG_SUBSCRIBE: return consumer_subscribe(w, client, topic, m);
    case MSG_UNSUBSCRIBE: consumer_close(w, client, m); break;
    case MSG_ATTACH: return attach(w, client, topic, m);
    case MSG_DETACH: attach_end(w, client, m); break;
    case MSG_SEEK: return position_seek(w, client, topic, m);
    case MSG_POSITION: return position_tell(w, client, topic, m);
    case MSG_PEEK_SEQ: return position_peek(w, client, topic, m);
    case MSG_SCAN: return compacted_scan(w, client, topic, m);
    case MSG_COMPACT: return compacted_make(w, client, topic, m);
    case MSG_TXN_ACK: return transaction_acknowledge(w, client, topic, m);
    case MSG_TXN_END: return transaction_end(w, client, topic, m);
    case MSG_TXN_LIST: return transactions_list(w, client, m);
    case MSG_TXN_PENDING: transaction_pending(w, client, topic, m); break;
    case MSG_BACKLOG: return position_backlog(w, client, topic, m);
    case MSG_OLDEST: return oldest(w, client, m);
    case MSG_RINGS: catalog_rings(w, client, m); break;
    case MSG_CHANGE: return topic_change(w, client, m);
    case MSG_CATALOG: return catalog(w, client, m);
    case MSG_BARRIER: request_done(w, client, m, STATUS_OK); break;
    case MSG_CREDIT: consumer_credit(w, client, m); break;
    case MSG_SENT: consumer_sent(w, client, m); break;
    case MSG_FINISH: return consumer_finish(w, client, m);
    case MSG_REQUEUE: return consumer_requeue(w, client, m);
    case MSG_EXTEND: consumer_extend(w, client, m); break;
    default:
        /* A request of a later version, if it is a request at all. */
        if (m->kind >= MSG_PUBLISH && m->kind < MSG_DELIVER) request_done(w, client, m, STATUS_INVALID);
    }
    return DONE;
}

bool execute_later(const struct worker *w, const struct message *m) {
    if (worker_spare(w)) return false;
    switch (m->kind) {
    case MSG_KICK:
    case MSG_LIST:
    case MSG_SEEK:
    case MSG_SCAN:
    case MSG_COMPACT:
    case MSG_TXN_ACK:
    case MSG_TXN_END:
    case MSG_TXN_LIST:
    case MSG_BACKLOG:
    case MSG_OLDEST:
    case MSG_POSITION:
    case MSG_CHANGE:
    case MSG_CATALOG:
    case MSG_SUBSCRIBE: return true;
    case MSG_FINISH: return (m->flags & MSG_UPTO) != 0;
    case MSG_REQUEUE: return (m->flags & MSG_ALL) != 0;
    case MSG_PUBLISH_MANY: return m->count > WORKER_TURN_STEPS;
    default: return false;
    }
}
