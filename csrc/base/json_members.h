/* The members of a JSON object that a reader knows, out of a text that has any others. What reads the rest need not
 * make anything of what it does not know, however many there are: whoever sent them may have meant to keep it busy. */
#ifndef MQ_JSON_MEMBERS_H
#define MQ_JSON_MEMBERS_H

#include <stddef.h>
#include <stdint.h>

/* As deep as Go's decoder goes. */
enum { JSON_MAX_DEPTH = 10000 };

/* Writes to `out`, which has room for one byte more than the text has, an object with the members whose keys are among
 * `names`: in lower case, each behind a byte that says its length, and a zero behind the last. Keys match as in Go's
 * decoder, in any case. A known member that is an array or an object becomes an empty one, and so does a text that is
 * an array; any other text is written as it is. Returns how many bytes were written; 0: the text is not JSON. Bytes
 * above 127 are not looked at. */
size_t json_members(const void *text, size_t bytes, const uint8_t *names, void *out);

#endif
