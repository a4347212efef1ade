/* A request's head and its query, taken apart. Pure: bytes in, figures out. */
#include <string.h>

#include "acceptor/protocols/nsq/nsq_http_head.h"

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* A byte of a token, RFC 9110. */
static bool is_token(uint8_t byte) {
    static const char others[] = "!#$%&'*+-.^_`|~";
    uint8_t letter = byte | 0x20;
    if ((letter >= 'a' && letter <= 'z') || (byte >= '0' && byte <= '9')) return true;
    return byte != 0 && memchr(others, byte, sizeof others - 1) != NULL;
}

static bool is_control(uint8_t byte) {
    return byte < 0x20 || byte == 0x7f;
}

static bool is_word(struct text text, const char *word) {
    if (text.bytes != strlen(word)) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t byte = text.at[i];
        if ((byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte) != (uint8_t)word[i]) return false;
    }
    return true;
}

/* Cuts off a line, without its end; false if there is no line feed. */
static bool next_line(struct text *rest, struct text *line) {
    const uint8_t *feed = memchr(rest->at, '\n', rest->bytes);
    if (feed == NULL) return false;
    *line = (struct text){rest->at, (size_t)(feed - rest->at)};
    if (line->bytes > 0 && feed[-1] == '\r') line->bytes--;
    rest->bytes -= (size_t)(feed + 1 - rest->at);
    rest->at = feed + 1;
    return true;
}

/* --- the request line --------------------------------------------------------------------------------------------- */

static const char PUB[] = "POST /pub", MPUB[] = "POST /mpub";

/* Whether the data may still turn out to be `word`. */
static bool may_begin(struct text data, const char *word, size_t word_bytes) {
    return memcmp(data.at, word, data.bytes < word_bytes ? data.bytes : word_bytes) == 0;
}

static bool read_request_line(struct text line, struct nsq_http_head *head) {
    size_t begin = head->many ? sizeof MPUB - 1 : sizeof PUB - 1;
    static const char version[] = " HTTP/1.";
    const size_t end_bytes = sizeof version; /* counting the last digit */
    if (line.bytes < begin + end_bytes) return false;
    const uint8_t *end = line.at + line.bytes - end_bytes;
    uint8_t minor = line.at[line.bytes - 1];
    if (memcmp(end, version, sizeof version - 1) != 0 || (minor != '0' && minor != '1')) return false;
    head->is_old = minor == '0';
    const uint8_t *at = line.at + begin;
    if (at < end && *at != '?') return false;
    if (at < end) at++;
    for (const uint8_t *byte = at; byte < end; byte++)
        if (is_control(*byte) || *byte == ' ') return false;
    head->query = (struct text){at, (size_t)(end - at)};
    return true;
}

/* --- headers ------------------------------------------------------------------------------------------------------ */

/* The headers seen, each of which may occur once. */
struct headers_said {
    bool length, coding, connection, expect, authorization, host;
};

static bool once(bool *said) {
    bool first = !*said;
    *said = true;
    return first;
}

static bool read_length(struct text value, struct nsq_http_head *head) {
    enum { MOST_DIGITS = 18 };
    uint64_t length = 0;
    if (value.bytes == 0 || value.bytes > MOST_DIGITS) return false;
    for (size_t i = 0; i < value.bytes; i++) {
        uint8_t digit = (uint8_t)(value.at[i] - '0');
        if (digit > 9) return false;
        length = length * 10 + digit;
    }
    head->body_bytes = length;
    return true;
}

static bool read_connection(struct text value, struct nsq_http_head *head) {
    bool keeps = is_word(value, "keep-alive");
    if (!keeps && !is_word(value, "close")) return false;
    head->keeps_alive = keeps;
    return true;
}

/* Whether a host has letters, digits and the marks around them only. */
static bool is_plain_host(struct text value) {
    for (size_t i = 0; i < value.bytes; i++) {
        uint8_t byte = value.at[i], letter = byte | 0x20;
        bool is_usual = (letter >= 'a' && letter <= 'z') || (byte >= '-' && byte <= ':' && byte != '/');
        if (!is_usual && byte != '_' && byte != '[' && byte != ']') return false;
    }
    return true;
}

/* False if the header's value is left to the gateway. */
static bool read_header(struct text name, struct text value, struct headers_said *said, struct nsq_http_head *head) {
    if (is_word(name, "content-length")) return once(&said->length) && !said->coding && read_length(value, head);
    if (is_word(name, "transfer-encoding")) {
        head->in_chunks = true;
        return once(&said->coding) && !said->length && !head->is_old && is_word(value, "chunked");
    }
    if (is_word(name, "host")) return once(&said->host) && is_plain_host(value);
    if (is_word(name, "connection")) return once(&said->connection) && read_connection(value, head);
    if (is_word(name, "expect")) {
        head->expects_continue = true;
        return once(&said->expect) && is_word(value, "100-continue");
    }
    if (is_word(name, "authorization")) {
        head->authorization = value;
        return once(&said->authorization) && value.bytes > 0 && value.bytes <= NSQ_HTTP_AUTHORIZATION_BYTES;
    }
    /* Browsers send it for a page: whether that may publish is checked elsewhere. */
    return !is_word(name, "origin");
}

static bool read_header_line(struct text line, struct headers_said *said, struct nsq_http_head *head) {
    size_t name_bytes = 0;
    while (name_bytes < line.bytes && is_token(line.at[name_bytes])) name_bytes++;
    if (name_bytes == 0 || name_bytes == line.bytes || line.at[name_bytes] != ':') return false;
    struct text value = {line.at + name_bytes + 1, line.bytes - name_bytes - 1};
    while (value.bytes > 0 && (*value.at == ' ' || *value.at == '\t')) {
        value.at++;
        value.bytes--;
    }
    while (value.bytes > 0 && (value.at[value.bytes - 1] == ' ' || value.at[value.bytes - 1] == '\t')) value.bytes--;
    for (size_t i = 0; i < value.bytes; i++)
        if (is_control(value.at[i]) && value.at[i] != '\t') return false;
    return read_header((struct text){line.at, name_bytes}, value, said, head);
}

enum nsq_http_found nsq_http_read_head(const uint8_t *data, size_t bytes, struct nsq_http_head *head) {
    struct text rest = {data, bytes < NSQ_HTTP_HEAD_BYTES ? bytes : NSQ_HTTP_HEAD_BYTES}, line;
    enum nsq_http_found unfinished = bytes < NSQ_HTTP_HEAD_BYTES ? NSQ_HTTP_MORE : NSQ_HTTP_ELSEWHERE;
    struct headers_said said = {0};
    *head = (struct nsq_http_head){.authorization = {data, 0}, .many = !may_begin(rest, PUB, sizeof PUB - 1)};
    if (head->many && !may_begin(rest, MPUB, sizeof MPUB - 1)) return NSQ_HTTP_ELSEWHERE;
    if (!next_line(&rest, &line)) return unfinished;
    if (!read_request_line(line, head)) return NSQ_HTTP_ELSEWHERE;
    head->keeps_alive = !head->is_old;
    while (next_line(&rest, &line)) {
        if (line.bytes == 0) {
            head->bytes = (size_t)(rest.at - data);
            return said.host || head->is_old ? NSQ_HTTP_PUBLISH : NSQ_HTTP_ELSEWHERE;
        }
        if (!read_header_line(line, &said, head)) return NSQ_HTTP_ELSEWHERE;
    }
    return unfinished;
}

/* --- the query ---------------------------------------------------------------------------------------------------- */

enum { MOST_FIELDS = 1000, WORD_BYTES = 24 };

static int hex_digit(uint8_t byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    uint8_t letter = byte | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* Decodes %-escapes as far as there is room; *out_bytes is how much was written. False if an escape is invalid. */
static bool unescape(struct text in, uint8_t *out, size_t room, size_t *out_bytes) {
    *out_bytes = 0;
    for (size_t i = 0; i < in.bytes; i++) {
        uint8_t byte = in.at[i] == '+' ? ' ' : in.at[i];
        if (byte == ';') return false;
        if (byte == '%') {
            int high = in.bytes - i > 2 ? hex_digit(in.at[i + 1]) : -1;
            int low = in.bytes - i > 2 ? hex_digit(in.at[i + 2]) : -1;
            if (high < 0 || low < 0) return false;
            byte = (uint8_t)(high << 4 | low);
            i += 2;
        }
        if (*out_bytes < room) out[(*out_bytes)++] = byte;
    }
    return true;
}

/* Reads a number as Go's ParseInt does, of at most 18 digits. */
static int64_t read_defer(struct text text) {
    enum { MOST_DIGITS = 18 };
    bool negative = text.bytes > 0 && *text.at == '-';
    if (text.bytes > 0 && (*text.at == '-' || *text.at == '+')) {
        text.at++;
        text.bytes--;
    }
    int64_t value = 0;
    if (text.bytes == 0 || text.bytes > MOST_DIGITS) return -1;
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t digit = (uint8_t)(text.at[i] - '0');
        if (digit > 9) return -1;
        value = value * 10 + digit;
    }
    return negative && value != 0 ? -1 : value;
}

static bool read_field(struct text name, struct text value, struct nsq_http_fields *fields) {
    uint8_t name_text[WORD_BYTES], text[NSQ_NAME_BYTES + 1];
    struct text decoded = {name_text, 0}, found = {text, 0};
    if (!unescape(name, name_text, sizeof name_text, &decoded.bytes)) return false;
    if (!unescape(value, text, sizeof text, &found.bytes)) return false;
    if (is(decoded, "topic") && !fields->has_topic) {
        fields->has_topic = true;
        memcpy(fields->topic, text, found.bytes);
        fields->topic_bytes = found.bytes;
    } else if (is(decoded, "defer") && !fields->has_defer) {
        fields->has_defer = true;
        fields->defer_ms = read_defer(found);
    } else if (is(decoded, "binary") && !fields->has_binary) {
        fields->has_binary = true;
        fields->binary = !is(found, "false") && !is(found, "0");
    }
    return true;
}

bool nsq_http_read_query(struct text query, struct nsq_http_fields *fields) {
    *fields = (struct nsq_http_fields){0};
    const uint8_t *end = query.at + query.bytes;
    uint32_t count = 0;
    for (const uint8_t *at = query.at;; count++) {
        const uint8_t *separator = at < end ? memchr(at, '&', (size_t)(end - at)) : NULL;
        const uint8_t *field_end = separator != NULL ? separator : end;
        if (count == MOST_FIELDS) return false;
        if (at < field_end) {
            const uint8_t *equals = memchr(at, '=', (size_t)(field_end - at));
            const uint8_t *name_end = equals != NULL ? equals : field_end;
            const uint8_t *value = equals != NULL ? equals + 1 : field_end;
            if (!read_field((struct text){at, (size_t)(name_end - at)},
                            (struct text){value, (size_t)(field_end - value)}, fields))
                return false;
        }
        if (separator == NULL) return true;
        at = separator + 1;
    }
}
