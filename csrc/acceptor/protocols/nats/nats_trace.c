/* Messages that are only to be traced: their publisher wants to learn their way, and nobody is to receive them. This
 * server does not trace messages, and like a nats-server without tracing it does not deliver these either. */
#include <string.h>
#include <strings.h>

#include "acceptor/protocols/nats/nats_publish.h"

static const char VERSION[] = "NATS/1.0\r\n", PREFIX[] = "Nats-Trace-", DISABLED[] = "trace disabled";

static bool is(struct text text, const char *wanted) {
    return text.bytes == strlen(wanted) && memcmp(text.at, wanted, text.bytes) == 0;
}

static bool is_yes(struct text value) {
    static const char *const WORDS[] = {"1", "true", "on"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (value.bytes == strlen(WORDS[i]) && strncasecmp((const char *)value.at, WORDS[i], value.bytes) == 0)
            return true;
    return false;
}

static struct text trimmed(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (at < end && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return (struct text){at, (size_t)(end - at)};
}

/* Most headers have no line that begins so. Written so that a compiler looks at many bytes at once: a search costs more
 * than all else that is done with such a message. */
static bool may_be_traced(const uint8_t *at, size_t bytes) {
    uint8_t found = 0;
    for (size_t i = 0; i + 1 < bytes; i++) found |= (uint8_t)((at[i] == '\n') & (at[i + 1] == 'N'));
    return found != 0;
}

bool nats_is_only_traced(const struct nats_message *m) {
    const size_t first = sizeof VERSION - 1, prefix = sizeof PREFIX - 1;
    if (m->header_bytes < first + prefix || !may_be_traced(m->payload, m->header_bytes)) return false;
    if (memcmp(m->payload, VERSION, first) != 0) return false;
    bool has_destination = false, has_only = false, only = false;
    const uint8_t *at = m->payload + first, *end = m->payload + m->header_bytes;
    for (const uint8_t *newline; (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1) {
        size_t bytes = (size_t)(newline - at);
        const uint8_t *line_end = bytes > 0 && newline[-1] == '\r' ? newline - 1 : newline;
        if (bytes < prefix || memcmp(at, PREFIX, prefix) != 0) continue;
        const uint8_t *colon = memchr(at, ':', (size_t)(line_end - at));
        if (colon == NULL) continue;
        const struct text name = {at, (size_t)(colon - at)}, value = trimmed(colon + 1, line_end);
        if (value.bytes == 0) continue;
        if (!has_destination && is(name, "Nats-Trace-Dest")) {
            if (is(value, DISABLED)) return false;
            has_destination = true;
        }
        if (!has_only && is(name, "Nats-Trace-Only")) {
            has_only = true;
            only = is_yes(value);
        }
    }
    return has_destination && only;
}
