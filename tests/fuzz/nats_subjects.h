/* Subjects that scripts choose, and what a pattern matches. */
#ifndef MQ_FUZZ_NATS_SUBJECTS_H
#define MQ_FUZZ_NATS_SUBJECTS_H

#include <stdbool.h>

enum { SUBJECT_BYTES = 256 };

/* A subject, or with `wild` a pattern, that the script chooses; now and then it is none. */
void subject_pick(char out[SUBJECT_BYTES], bool wild);
bool subject_is_valid(const char *pattern);
/* Token by token, as the protocol says it. */
bool subject_matches(const char *pattern, const char *subject);

#endif
