#include "nats_subjects.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "script.h"

static const char *some_token(bool wild) {
    static const char *const tokens[] = {"a", "b", "c", "a", "b", "aa", "foo*", ">>"};
    static const char long_token[] = "tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt";
    if (wild && pick(3) == 0) return "*";
    return pick(24) ? tokens[pick(sizeof tokens / sizeof *tokens)] : long_token;
}

void subject_pick(char out[SUBJECT_BYTES], bool wild) {
    size_t at = 0;
    uint32_t count = 1 + pick(3);
    for (uint32_t i = 0; i < count; i++) at += (size_t)sprintf(out + at, "%s%s", i ? "." : "", some_token(wild));
    if (wild && pick(6) == 0) strcpy(out + at, ".>");
    if (wild && pick(24) == 0) strcpy(out, ">");
    if (pick(48) == 0) strcpy(out, ((const char *const[]){"a..b", ".a", "a.", "a.>.b", "."})[pick(5)]);
}

static size_t token_bytes(const char *at) {
    return strcspn(at, ".");
}

bool subject_is_valid(const char *pattern) {
    for (const char *at = pattern;; at++) {
        size_t bytes = token_bytes(at);
        if (bytes == 0 || (bytes == 1 && *at == '>' && at[1])) return false;
        if (!*(at += bytes)) return true;
    }
}

static bool has_empty_token(const char *subject) {
    size_t bytes = strlen(subject);
    return bytes == 0 || subject[0] == '.' || subject[bytes - 1] == '.' || strstr(subject, "..");
}

bool subject_matches(const char *pattern, const char *subject) {
    if (has_empty_token(subject)) return false;
    for (;; pattern++, subject++) {
        size_t p = token_bytes(pattern), s = token_bytes(subject);
        if (p == 1 && *pattern == '>' && !pattern[1]) return true;
        bool any = p == 1 && *pattern == '*';
        if (!any && (p != s || memcmp(pattern, subject, s) != 0)) return false;
        pattern += p;
        subject += s;
        if (!*pattern || !*subject) return !*pattern && !*subject;
    }
}
