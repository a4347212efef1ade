/* The topics that are open: to acceptors, which number them, and to clients, which use and watch them. */
#include "shards/opened.h"

#include <stdlib.h>
#include <string.h>

#include "shards/queue.h"
#include "shards/sleeping.h"
#include "shards/topic_life.h"

uint32_t opened_find(const struct worker *w, uint32_t acceptor, const struct message *m) {
    const struct peer *p = &w->peers[acceptor];
    return m->topic < p->topics_capacity ? p->topics[m->topic].topic : 0;
}

void opened_hold(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    t->held++;
    queue_settle(w, topic, was_seen);
}

void opened_let_go(struct worker *w, uint32_t topic) {
    topic_at(&w->topics, topic)->held--;
    queue_settle(w, topic, true);
}

void opened_close(struct worker *w, struct opened *opened) {
    uint32_t topic = opened->topic;
    bool listed = opened->listed;
    *opened = (struct opened){0};
    if (!topic) return;
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    t->open--;
    if (listed) t->held--;
    queue_settle(w, topic, was_seen);
}

void opened_open(struct worker *w, uint32_t acceptor, const struct message *m) {
    struct peer *p = &w->peers[acceptor];
    uint32_t shard = (uint32_t)m->shard;
    if (!m->topic || m->topic >= WORKER_MAX_OPEN_TOPICS || !m->body_bytes || m->body_bytes > TOPIC_NAME_BYTES) return;
    if (m->shard >= w->shards || !w->own[shard]) return;
    if (m->topic >= p->topics_capacity) {
        uint32_t capacity = p->topics_capacity ? p->topics_capacity : 64;
        while (capacity <= m->topic) capacity *= 2;
        struct opened *topics = realloc(p->topics, sizeof *topics * capacity);
        if (!topics) return;
        memset(topics + p->topics_capacity, 0, sizeof *topics * (capacity - p->topics_capacity));
        p->topics = topics;
        p->topics_capacity = capacity;
    }
    struct opened *opened = &p->topics[m->topic];
    opened_close(w, opened);
    const char *name = (const char *)(m + 1);
    uint32_t topic = topics_find(&w->topics, name, m->body_bytes);
    if (!topic && topics_have_room(&w->topics, m->body_bytes))
        topic = shard_make_topic(w, w->own[shard], name, m->body_bytes);
    if (!topic) return;
    *opened = (struct opened){topic, (m->flags & MSG_LISTED) != 0};
    struct topic *t = topic_at(&w->topics, topic);
    topic_hear(t, m->flags);
    t->open++;
    shard_settle_topic(w, topic);
    if (opened->listed) opened_hold(w, topic);
}

void opened_forget(struct worker *w, uint32_t acceptor, const struct message *m) {
    const struct peer *p = &w->peers[acceptor];
    if (m->topic < p->topics_capacity) opened_close(w, &p->topics[m->topic]);
}

/* Makes the topic a tube if the client asked for it. True: that must wait. If the log has no room for that, the topic
 * is no tube yet, and the next put or reserve tries again. */
static bool waits_for_tube(struct worker *w, uint32_t topic, bool asked_for) {
    return topic && asked_for && topic_want_tube(w, topic) == MORE;
}

enum outcome opened_use(struct worker *w, uint32_t client, uint32_t topic, bool asked_for) {
    if (waits_for_tube(w, topic, asked_for)) return MORE;
    struct client *c = client_at(&w->clients, client);
    uint32_t before = c->used;
    c->used = topic;
    if (topic) {
        topic_at(&w->topics, topic)->using++;
        opened_hold(w, topic);
    }
    if (before) {
        topic_at(&w->topics, before)->using--;
        opened_let_go(w, before);
    }
    return DONE;
}

enum outcome opened_watch(struct worker *w, uint32_t client, uint32_t topic, bool asked_for) {
    if (waits_for_tube(w, topic, asked_for)) return MORE;
    if (!topic || client_watch(&w->clients, client, topic)) return DONE;
    if (!client_add_watch(&w->clients, client, topic)) return DONE;
    topic_at(&w->topics, topic)->watching++;
    opened_hold(w, topic);
    return DONE;
}

void opened_ignore(struct worker *w, uint32_t client, uint32_t topic) {
    uint32_t watch = topic ? client_watch(&w->clients, client, topic) : 0;
    if (!watch) return;
    client_remove_watch(&w->clients, watch);
    topic_at(&w->topics, topic)->watching--;
    opened_let_go(w, topic);
}
