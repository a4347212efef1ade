/* Quoting as Go's %q does: text in double quotes, with escapes for what cannot be printed. */
#ifndef MQ_GO_QUOTE_H
#define MQ_GO_QUOTE_H

#include <stddef.h>
#include <stdint.h>

/* The most that `bytes` of text can become. */
#define QUOTED_BYTES(bytes) (4 * (bytes) + 2)

/* Writes the quoted text to `out` and returns where it ends. Of the characters beyond Latin-1, those count as printable
 * that Unicode has not set aside as spaces, formatting or for private use. */
uint8_t *go_quote(uint8_t *out, const uint8_t *text, size_t bytes);

#endif
