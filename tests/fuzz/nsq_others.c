/* Requests of no client's, which change topics and channels; and a client of beanstalkd's, which shares them. */
#include "nsq_play.h"

void local_request(void) {
    uint32_t which = pick(LOCALS);
    if (!locals[which].conn) {
        locals[which].conn = acceptor_local(world.acceptor);
        locals[which].missing = 0;
        assert(locals[which].conn);
    }
    uint8_t body[2000];
    char topic[NAME_BYTES], channel[NAME_BYTES];
    struct message m = {0};
    topic_name(topic);
    channel_name(channel);
    uint32_t shard = acceptor_shard_of_name(world.acceptor, topic, strlen(topic)), worker = shard % WORKERS;
    size_t bytes = 0;
    switch (pick(4)) {
    case 0:
        m = (struct message){.kind = MSG_CATALOG, .pri = pick(2)};
        bytes = pick(2) ? 0 : (size_t)snprintf((char *)body, sizeof body, "%s", topic);
        break;
    case 1: {
        uint32_t number = acceptor_bind(world.acceptor, topic, strlen(topic)), count = 1 + pick(10), size = pick(100);
        m = (struct message){.kind = MSG_PUBLISH_MANY, .topic = number, .pri = count, .ttr_ns = SECOND};
        m.id = acceptor_take_ids(world.acceptor, number, count);
        for (uint32_t i = 0; i < count; i++) {
            const uint8_t head[] = {0, 0, 0, (uint8_t)(pick(32) ? size : pick(256))};
            memcpy(body + bytes, head, sizeof head);
            memset(body + bytes + 4, 'l', size);
            bytes += 4 + size;
        }
        if (!pick(8)) bytes = pick((uint32_t)bytes);
        break;
    }
    default:
        m = (struct message){.kind = MSG_CHANGE, .id = shard, .pri = 1 + pick(5)};
        bytes = (size_t)snprintf((char *)body, sizeof body, pick(3) ? "%s\n%s" : "%s", topic, channel);
        if (!pick(32)) body[pick((uint32_t)bytes)] = byte();
        break;
    }
    trace("local %u asks %u: pri %u, %.*s", which, m.kind, m.pri, m.kind == MSG_PUBLISH_MANY ? 0 : (int)bytes,
          (const char *)body);
    if (m.kind == MSG_CHANGE) forget_flights();
    if (acceptor_request(world.acceptor, worker, locals[which].conn, &m, body, bytes) >= 0) locals[which].missing++;
}

void tube_command(void) {
    char topic[NAME_BYTES];
    topic_name(topic);
    if (tube_client.fd < 0) (void)remote_connect(&tube_client, table_protocol("beanstalk"));
    unsigned long long id = recent[pick(RECENT)];
    switch (pick(10)) {
    case 0: remote_say(&tube_client, "use %s\r\n", topic); break;
    case 1: remote_say(&tube_client, "watch %s\r\n", topic); break;
    case 2:
    case 3: remote_say(&tube_client, "reserve-with-timeout 0\r\n"); break;
    case 4: remote_say(&tube_client, "delete %llu\r\n", id); break;
    case 5: remote_say(&tube_client, "release %llu 0 %u\r\n", id, pick(3)); break;
    case 6: remote_say(&tube_client, "bury %llu 0\r\n", id); break;
    case 7: remote_disconnect(&tube_client); break;
    default: remote_say(&tube_client, "put 1024 %u 2 3\r\njob\r\n", pick(4) ? 0 : pick(3)); break;
    }
    (void)remote_flush(&tube_client, SIZE_MAX);
}
