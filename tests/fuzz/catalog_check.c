#include "catalog_check.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "ringbuf/message.h"

static const uint8_t *at, *end;

static void take(void *out, size_t bytes) {
    assert((size_t)(end - at) >= bytes && "it ends in the middle of something");
    memcpy(out, at, bytes);
    at += bytes;
}

static void skip(size_t bytes) {
    assert((size_t)(end - at) >= bytes && "it ends in the middle of a text");
    at += bytes;
}

static void check_channel(void) {
    struct channel_figures channel;
    take(&channel, sizeof channel);
    assert(channel.name_bytes > 0 && channel.name_bytes <= 255);
    skip(channel.name_bytes);
    assert(channel.consumers_listed == 0 || channel.consumers_listed == channel.consumers);
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < channel.consumers_listed; i++) {
        struct consumer_figures consumer;
        take(&consumer, sizeof consumer);
        assert(consumer.description_bytes <= DESCRIPTION_MAX_BYTES);
        skip(consumer.description_bytes);
        in_flight += consumer.in_flight;
    }
    /* A consumer's are counted in messages of batches; those that have left may still be giving some back. */
    assert(in_flight <= channel.in_flight_parts);
}

void catalog_check(const uint8_t *bytes, size_t count) {
    at = bytes;
    end = bytes + count;
    while (at < end) {
        struct topic_figures topic;
        take(&topic, sizeof topic);
        assert(topic.name_bytes > 0 && topic.name_bytes <= 1024);
        skip(topic.name_bytes);
        for (uint32_t i = 0; i < topic.channels; i++) check_channel();
    }
}
