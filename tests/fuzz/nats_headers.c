/* Headers of messages whose journey is to be traced, and what nats-server makes of them. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nats_play.h"
#include "script.h"

size_t header_pick(char out[HEADER_BYTES]) {
    static const char *const lines[] = {
        "A: b\r\n",
        "Nats-Trace-Dest: t\r\n",
        "Nats-Trace-Dest:t\n",
        "Nats-Trace-Dest: \t trace disabled \r\n",
        "Nats-Trace-Dest: \r\n",
        "Nats-Trace-Dest\r\n",
        "nats-trace-dest: t\r\n",
        "Nats-Trace-Only: true\r\n",
        "Nats-Trace-Only: \tON\t\r\n",
        "Nats-Trace-Only:1\n",
        "Nats-Trace-Only: no\r\n",
        "Nats-Trace-Only:\r\n",
        "Nats-Trace-Only: t",
        "Nats-Trace-",
        "N",
        ":\r\n",
        "\r\n",
    };
    size_t at = (size_t)sprintf(out, "%s", pick(12) ? "NATS/1.0\r\n" : "NATS/1.0 200\r\n");
    for (uint32_t n = pick(5); n > 0; n--)
        at += (size_t)sprintf(out + at, "%s", lines[pick(sizeof lines / sizeof *lines)]);
    if (pick(8)) at += (size_t)sprintf(out + at, "\r\n");
    if (pick(12) == 0) out[pick((uint32_t)at)] = (char)byte();
    if (pick(12) == 0) at = 1 + pick((uint32_t)at);
    /* This is how a client is told of nobody. */
    if (at >= 12 && !memcmp(out, "NATS/1.0 503", 12)) out[9] = '2';
    return at;
}

static bool line_begins(const char *line, const char *end, const char *with) {
    return (size_t)(end - line) >= strlen(with) && !memcmp(line, with, strlen(with));
}

/* The value of the first header of that name that has one, without blanks; false if there is none. A name is all up to
 * the next colon, a value ends with CR and LF. */
static bool header_value(const char *at, const char *end, const char *name, char value[HEADER_BYTES]) {
    while (at < end) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        if (!colon) return false;
        bool is_it = (size_t)(colon - at) == strlen(name) && line_begins(at, end, name);
        const char *from = colon + 1;
        while (from < end && (*from == ' ' || *from == '\t')) from++;
        const char *stop = from;
        while (stop + 1 < end && (stop[0] != '\r' || stop[1] != '\n')) stop++;
        if (stop + 1 >= end) return false;
        at = stop + 2;
        while (stop > from && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
        if (!is_it || stop == from) continue;
        memcpy(value, from, (size_t)(stop - from));
        value[stop - from] = 0;
        /* With a zero byte in it it is no word. */
        if (strlen(value) < (size_t)(stop - from)) strcpy(value, "?");
        return true;
    }
    return false;
}

bool header_only_traces(const char *header, size_t bytes) {
    char value[HEADER_BYTES];
    const char *end = header + bytes;
    if (!line_begins(header, end, "NATS/1.0\r\n")) return false;
    if (!header_value(header + 10, end, "Nats-Trace-Dest", value) || !strcmp(value, "trace disabled")) return false;
    if (!header_value(header + 10, end, "Nats-Trace-Only", value)) return false;
    return !strcmp(value, "1") || !strcasecmp(value, "true") || !strcasecmp(value, "on");
}
