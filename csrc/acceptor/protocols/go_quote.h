/* Quotes text as Go's %q does: in double quotes, with escapes for characters that cannot be printed. */
#ifndef MQ_GO_QUOTE_H
#define MQ_GO_QUOTE_H

#include <stddef.h>
#include <stdint.h>

/* The most that `bytes` of text can become. */
#define QUOTED_BYTES(bytes) (4 * (bytes) + 2)

/* Writes the quoted text to `out` and returns its end. A character beyond Latin-1 counts as printable unless Unicode
 * has set it aside as a space, for formatting or for private use. */
uint8_t *go_quote(uint8_t *out, const uint8_t *text, size_t bytes);

#endif
