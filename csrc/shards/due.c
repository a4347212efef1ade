/* The lists that subscriptions stand in until they have been visited: those that may deliver a message, those with
 * something to log, and those that finish all messages up to a seq (upto.c). */
#include "shards/due.h"

void subscription_due(struct worker *w, uint32_t subscription) {
    struct subscriptions *all = &w->subscriptions;
    struct subscription *s = worker_subscription(w, subscription);
    if (s->due || s->gone) return;
    s->due = true;
    s->next_due = 0;
    if (all->due_last)
        worker_subscription(w, all->due_last)->next_due = subscription;
    else
        all->due_first = subscription;
    all->due_last = subscription;
}

void topic_due(struct worker *w, uint32_t topic) {
    for (uint32_t n = topic_at(&w->topics, topic)->subscriptions; n; n = worker_subscription(w, n)->next)
        if (worker_subscription(w, n)->turn) subscription_due(w, n);
}

void subscription_touched(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->touched || !s->number) return;
    s->touched = true;
    s->next_touched = w->subscriptions.touched_first;
    w->subscriptions.touched_first = subscription;
}

void subscription_over_forget(struct worker *w, uint32_t subscription) {
    uint32_t *link = &w->subscriptions.over_first;
    if (!worker_subscription(w, subscription)->over_until) return;
    while (*link != subscription) link = &worker_subscription(w, *link)->next_over;
    *link = worker_subscription(w, subscription)->next_over;
    worker_subscription(w, subscription)->over_until = 0;
}

void subscription_leave_lists(struct worker *w, uint32_t subscription) {
    struct subscriptions *all = &w->subscriptions;
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t previous = 0;
    for (uint32_t n = s->due ? all->due_first : 0; n && n != subscription; n = worker_subscription(w, n)->next_due)
        previous = n;
    if (s->due && previous) worker_subscription(w, previous)->next_due = s->next_due;
    if (s->due && !previous) all->due_first = s->next_due;
    if (s->due && all->due_last == subscription) all->due_last = previous;
    uint32_t *link = &all->touched_first;
    while (s->touched && *link != subscription) link = &worker_subscription(w, *link)->next_touched;
    if (s->touched) *link = s->next_touched;
    s->due = s->touched = false;
    subscription_over_forget(w, subscription);
}
