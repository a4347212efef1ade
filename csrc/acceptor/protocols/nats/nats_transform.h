/* Transforms subjects: the tokens that matched a pattern's wildcards are put into a new subject, whole or in parts.
 *
 * Python parses and checks what an operator writes ($1, {{partition(10,1)}}, ...), and compiles it to pieces, separated
 * by blanks. A piece is a letter, numbers with commas between them, and perhaps a text:
 *
 *   =text        this                               w3           token 3 (the first is 0)
 *   >3           token 3 and all behind it          p10,1,2      a number below 10, the hash of tokens 1 and 2, or all
 *   n10          a random number below 10           s3=-         token 3, cut at each "-"
 *   L3,2  R3,2   token 3, cut once, behind 2 bytes from the left, from the right
 *   l3,2  r3,2   cut into parts of 2 bytes, from the left, from the right
 *   h3,2  t3,2   its first 2 bytes, its last
 */
#ifndef MQ_NATS_TRANSFORM_H
#define MQ_NATS_TRANSFORM_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

struct nats_transform;

/* NULL when the pieces are invalid, or memory is short. */
struct nats_transform *nats_transform_new(const uint8_t *pieces, size_t bytes);
void nats_transform_free(struct nats_transform *t);
/* Writes the transformed subject, and returns its length; 0 when it is longer than `limit`. The pattern must match. */
size_t nats_transform_apply(const struct nats_transform *t, struct text subject, uint64_t random, uint8_t *out,
                            size_t limit);
/* The other way round, for a transform whose pieces are of kinds =, w and > only: writes the pattern of the subjects
 * that match `pattern` and become subjects of the pattern `wanted`, and returns its length; 0 when there are none, or
 * it is longer than `limit`. */
size_t nats_transform_back(const struct nats_transform *t, struct text pattern, struct text wanted, uint8_t *out,
                           size_t limit);
/* For such a transform: writes the pattern of all that it makes, and returns its length; 0 when it is longer. */
size_t nats_transform_pattern(const struct nats_transform *t, uint8_t *out, size_t limit);

#endif
