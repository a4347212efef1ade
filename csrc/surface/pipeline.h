/* What Python can call of csrc/pipeline; see csrc/build.py. */

/* == pipeline/decode == */

enum { DECODE_MAX_ATTRIBUTES, DECODE_ATTRIBUTE_NAME_BYTES, DECODE_ATTRIBUTE_VALUE_BYTES, ... };
enum { DECODE_HEADERS_ENTRIES, DECODE_HEADERS_NAME_BYTES, DECODE_HEADERS_VALUE_BYTES, ... };
enum { DECODE_ID_MOST_BYTES, DECODE_ID_PREFIX_BYTES, ... };

struct run {
    uint32_t segment, records;
    uint64_t bytes;
};
struct decode_columns {
    size_t capacity, count;
    int64_t *seq, *time_us;
    int32_t *batch_index;
    uint8_t *ids;
    int32_t *id_offsets;
    uint8_t id_prefix[...];
    uint8_t *bodies;
    int32_t *body_offsets;
    size_t body_capacity, body_bytes;
    int32_t *attribute_offsets, *name_offsets;
    uint8_t *names;
    int32_t *value_offsets;
    uint8_t *values;
};
struct decoder {
    struct run run;
    uint64_t next_seq, end_seq;
    uint64_t gap_from, gap_until, gaps_from;
    uint64_t missing, needs, rows, within;
    uint32_t next_part, compression, opened_size;
    uint64_t packed_at, packed_bytes;
    uint32_t was_opened;
    const uint8_t *opened;
};
enum decode_result { DECODE_MORE, DECODE_FULL, DECODE_CORRUPT, DECODE_PACKED, DECODE_MISPLACED };
enum decode_result decode_runs(struct decoder *decoder, const void *input, size_t bytes, size_t *used,
                               struct decode_columns *out);

/* == pipeline/encode == */

#define ENCODE_SIZE_BYTES ...

struct encode_column {
    const int32_t *offsets;
    const int64_t *large_offsets;
    size_t rows;
    const uint8_t *data;
    size_t bytes;
};

int64_t encode_many(const struct encode_column *column, const int64_t *rows, size_t first, size_t count, uint8_t *out,
                    size_t room, size_t *used);

/* == pipeline/contents == */

struct encode_attributes {
    const int32_t *begins, *ends;
    size_t entries;
    const int32_t *name_offsets, *value_offsets;
    const uint8_t *names, *values;
    size_t name_bytes, value_bytes;
    const uint32_t *key_hashes;
};
enum { CONTENTS_ROW_BYTES, CONTENTS_ENTRY_BYTES, CONTENTS_UNSOUND, CONTENTS_TOO_MANY, CONTENTS_NAMELESS, ... };

int64_t encode_contents(const struct encode_column *bodies, const struct encode_attributes *attributes,
                        int64_t *offsets, uint8_t *out, size_t room, size_t *row);
