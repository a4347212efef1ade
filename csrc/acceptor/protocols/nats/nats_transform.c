#define _GNU_SOURCE
#include "acceptor/protocols/nats/nats_transform.h"

#include <stdlib.h>

#include "base/decimal.h"

enum { MAX_NUMBERS = 16, MAX_PIECES = 256 };

struct piece {
    uint8_t kind;
    uint32_t numbers[MAX_NUMBERS];
    uint32_t count;
    size_t text_at, text_bytes;
};

struct nats_transform {
    uint8_t *text;
    uint32_t count;
    struct piece pieces[];
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static bool read_piece(struct piece *p, const uint8_t *text, size_t at, size_t end) {
    p->kind = text[at++];
    if (p->kind == '=') {
        p->text_at = at;
        p->text_bytes = end - at;
        return at < end;
    }
    const uint8_t *number = text + at, *stop = text + end;
    uint64_t value;
    while (p->count < MAX_NUMBERS && decimal_get(&number, stop, INT32_MAX, &value)) {
        p->numbers[p->count++] = (uint32_t)value;
        if (number == stop || *number != ',') break;
        number++;
    }
    at = (size_t)(number - text);
    if (at < end && text[at] == '=') at++;
    p->text_at = at;
    p->text_bytes = end - at;
    switch (p->kind) {
    case 'w':
    case '>': return p->count == 1 && at == end;
    case 'n': return p->count == 1 && at == end;
    case 'p': return p->count >= 1 && at == end;
    case 's': return p->count == 1 && at < end;
    case 'L':
    case 'R':
    case 'l':
    case 'r':
    case 'h':
    case 't': return p->count == 2 && at == end;
    default: return false;
    }
}

struct nats_transform *nats_transform_new(const uint8_t *pieces, size_t bytes) {
    uint32_t count = bytes > 0 ? 1 : 0;
    for (size_t i = 0; i < bytes; i++) count += pieces[i] == ' ';
    if (count == 0 || count > MAX_PIECES) return NULL;
    struct nats_transform *t = calloc(1, sizeof *t + count * sizeof t->pieces[0]);
    if (t == NULL || (t->text = malloc(bytes)) == NULL) {
        free(t);
        return NULL;
    }
    memcpy(t->text, pieces, bytes);
    for (size_t at = 0; at < bytes;) {
        const uint8_t *blank = memchr(pieces + at, ' ', bytes - at);
        size_t end = blank != NULL ? (size_t)(blank - pieces) : bytes;
        if (end == at || !read_piece(&t->pieces[t->count++], t->text, at, end)) {
            nats_transform_free(t);
            return NULL;
        }
        at = end + 1;
    }
    return t;
}

void nats_transform_free(struct nats_transform *t) {
    if (t == NULL) return;
    free(t->text);
    free(t);
}

/* --- applying ----------------------------------------------------------------------------------------------------- */

/* The output; once it is full nothing more is written. */
struct sink {
    uint8_t *out;
    size_t bytes, limit;
    bool full;
};

static void put(struct sink *s, const void *text, size_t bytes) {
    if (s->full || bytes > s->limit - s->bytes) {
        s->full = true;
        return;
    }
    memcpy(s->out + s->bytes, text, bytes);
    s->bytes += bytes;
}

static void put_dot(struct sink *s) {
    put(s, ".", 1);
}

static void put_number(struct sink *s, uint64_t number) {
    uint8_t digits[24];
    put(s, digits, (size_t)(decimal_put(digits, number) - digits));
}

/* Returns a token by number, or all from it to the end; empty if there are fewer tokens. */
static struct text token_of(struct text subject, uint32_t number, bool to_the_end) {
    const uint8_t *at = subject.at, *end = subject.at + subject.bytes;
    for (; number > 0; number--) {
        const uint8_t *dot = memchr(at, '.', (size_t)(end - at));
        if (dot == NULL) return (struct text){end, 0};
        at = dot + 1;
    }
    const uint8_t *dot = to_the_end ? NULL : memchr(at, '.', (size_t)(end - at));
    return (struct text){at, (size_t)((dot != NULL ? dot : end) - at)};
}

/* FNV-1a, as clients compute partitions too. */
static uint32_t hash_more(uint32_t hash, struct text text) {
    for (size_t i = 0; i < text.bytes; i++) hash = (hash ^ text.at[i]) * 16777619u;
    return hash;
}

static void put_partition(struct sink *s, const struct piece *p, struct text subject) {
    uint32_t hash = 2166136261u;
    if (p->count == 1) hash = hash_more(hash, subject);
    for (uint32_t i = 1; i < p->count; i++) hash = hash_more(hash, token_of(subject, p->numbers[i], false));
    put_number(s, p->numbers[0] > 0 ? hash % p->numbers[0] : 0);
}

static void put_cut(struct sink *s, struct text token, size_t at) {
    put(s, token.at, at);
    put_dot(s);
    put(s, token.at + at, token.bytes - at);
}

/* Writes parts of `size` bytes; the first one has `first` bytes, unless that is 0. */
static void put_slices(struct sink *s, struct text token, size_t first, size_t size) {
    size_t at = 0, next = first > 0 ? first : size;
    while (at < token.bytes) {
        if (next > token.bytes) next = token.bytes;
        if (at > 0) put_dot(s);
        put(s, token.at + at, next - at);
        at = next;
        next += size;
    }
}

static void put_part(struct sink *s, const struct piece *p, struct text token) {
    size_t size = p->numbers[1];
    if (size == 0 || size >= token.bytes) {
        put(s, token.at, token.bytes);
        return;
    }
    switch (p->kind) {
    case 'L': put_cut(s, token, size); break;
    case 'R': put_cut(s, token, token.bytes - size); break;
    case 'l': put_slices(s, token, size, size); break;
    case 'r': put_slices(s, token, token.bytes % size, size); break;
    case 'h': put(s, token.at, size); break;
    default: put(s, token.at + token.bytes - size, size); break;
    }
}

/* Writes the parts between delimiters; empty ones get no dot, as with nats-server. */
static void put_split(struct sink *s, struct text token, struct text delimiter) {
    const uint8_t *at = token.at, *end = token.at + token.bytes;
    for (bool first = true;; first = false) {
        const uint8_t *next = memmem(at, (size_t)(end - at), delimiter.at, delimiter.bytes);
        const uint8_t *stop = next != NULL ? next : end;
        put(s, at, (size_t)(stop - at));
        if (next == NULL) return;
        bool is_empty = stop == at;
        at = next + delimiter.bytes;
        const uint8_t *after = memmem(at, (size_t)(end - at), delimiter.at, delimiter.bytes);
        bool next_is_empty = (after != NULL ? after : end) == at;
        if (!next_is_empty && !(first && is_empty)) put_dot(s);
    }
}

static void put_piece(struct sink *s, const struct nats_transform *t, const struct piece *p, struct text subject,
                      uint64_t random) {
    struct text text = {t->text + p->text_at, p->text_bytes};
    struct text token = p->count > 0 ? token_of(subject, p->numbers[0], p->kind == '>') : text;
    switch (p->kind) {
    case 'p': put_partition(s, p, subject); break;
    case 'n': put_number(s, p->numbers[0] > 0 ? random % p->numbers[0] : 0); break;
    case 's': put_split(s, token, text); break;
    case '=': put(s, text.at, text.bytes); break;
    case 'w':
    case '>': put(s, token.at, token.bytes); break;
    default: put_part(s, p, token); break;
    }
}

size_t nats_transform_apply(const struct nats_transform *t, struct text subject, uint64_t random, uint8_t *out,
                            size_t limit) {
    struct sink s = {out, 0, limit, false};
    for (uint32_t i = 0; i < t->count; i++) {
        if (i > 0) put_dot(&s);
        put_piece(&s, t, &t->pieces[i], subject, random);
    }
    return s.full ? 0 : s.bytes;
}

size_t nats_transform_pattern(const struct nats_transform *t, uint8_t *out, size_t limit) {
    struct sink s = {out, 0, limit, false};
    for (uint32_t i = 0; i < t->count; i++) {
        const struct piece *p = &t->pieces[i];
        if (i > 0) put_dot(&s);
        if (p->kind == '=')
            put(&s, t->text + p->text_at, p->text_bytes);
        else
            put(&s, p->kind == 'w' ? "*" : ">", 1);
    }
    return s.full ? 0 : s.bytes;
}

/* --- the other way round ------------------------------------------------------------------------------------------ */

/* What stands for a wildcard of the pattern, by its token. */
struct bound {
    uint32_t number;
    struct text text;
};

static bool is_token(struct text token, char c) {
    return token.bytes == 1 && token.at[0] == (uint8_t)c;
}

/* Finds what stands for the pattern's wildcards. Returns for how many something does, or -1 if no subject fits. */
static int32_t bind(const struct nats_transform *t, struct text wanted, struct bound *bound) {
    const uint8_t *at = wanted.at, *end = wanted.at + wanted.bytes;
    int32_t count = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct piece *p = &t->pieces[i];
        if (at > end) return -1;
        struct text rest = {at, (size_t)(end - at)}, token = token_of(rest, 0, false);
        struct text said = {t->text + p->text_at, p->text_bytes};
        if (is_token(token, '>')) return count;
        if (p->kind == '>') {
            bound[count++] = (struct bound){p->numbers[0], rest};
            return count;
        }
        bool is_any = is_token(token, '*');
        if (p->kind == 'w' && !is_any) bound[count++] = (struct bound){p->numbers[0], token};
        bool fits = p->kind == 'w' || is_any ||
                    (p->kind == '=' && said.bytes == token.bytes && memcmp(said.at, token.at, said.bytes) == 0);
        if (!fits) return -1;
        at = token.at + token.bytes + 1;
    }
    return at > end ? count : -1;
}

size_t nats_transform_back(const struct nats_transform *t, struct text pattern, struct text wanted, uint8_t *out,
                           size_t limit) {
    struct bound bound[MAX_PIECES];
    struct sink s = {out, 0, limit, false};
    int32_t count = bind(t, wanted, bound);
    const uint8_t *at = pattern.at, *end = pattern.at + pattern.bytes;
    for (uint32_t number = 0; count >= 0 && at <= end; number++) {
        struct text token = token_of((struct text){at, (size_t)(end - at)}, 0, false);
        at = token.at + token.bytes + 1;
        bool is_wildcard = is_token(token, '*') || is_token(token, '>');
        for (int32_t i = 0; is_wildcard && i < count; i++)
            if (bound[i].number == number) token = bound[i].text;
        if (number > 0) put_dot(&s);
        put(&s, token.at, token.bytes);
    }
    return s.full ? 0 : s.bytes;
}
