/* The options of a load generator, as a table: what each is called, what may be given, and where it is kept. The help
 * is made of the same table. */
#ifndef MQ_PERF_OPTIONS_H
#define MQ_PERF_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "measure.h"

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_PIDS,
    OPTION_WORD, /* the number of one of some words */
    OPTION_DOUBLE,
    OPTION_INT,
    OPTION_UINT16,
    OPTION_UNSIGNED,
    OPTION_UINT64,
};

struct option_row {
    const char *name, *value, *help; /* `value` stands for what is given; NULL: nothing is */
    enum option_kind kind;
    void *place; /* has the default, too */
    double low, high;
    const char *const *words;
};

#define OPTION_KIND(place)                                                                                             \
    _Generic((place),                                                                                                  \
        bool: OPTION_FLAG,                                                                                             \
        const char *: OPTION_TEXT,                                                                                     \
        struct processes: OPTION_PIDS,                                                                                 \
        double: OPTION_DOUBLE,                                                                                         \
        int: OPTION_INT,                                                                                               \
        uint16_t: OPTION_UINT16,                                                                                       \
        unsigned: OPTION_UNSIGNED,                                                                                     \
        uint64_t: OPTION_UINT64)

/* Numbers lie in low..high. */
#define OPTION(name, value, place, low, high, help) {name, value, help, OPTION_KIND(place), &(place), low, high, NULL}
#define OPTION_TEXTUAL(name, value, place, help)    OPTION(name, value, place, 0, 0, help)
#define OPTION_WORDS(name, value, place, words, help)                                                                  \
    {name, value, help, OPTION_WORD, &(place), 0, sizeof(words) / sizeof *(words), words}
#define OPTION_END {NULL, NULL, NULL, OPTION_FLAG, NULL, 0, 0, NULL}

/* Reads the options into their places. Ends the program if they are wrong, or after it has shown the help. */
void options_read(const char *program, const struct option_row *rows, int argc, char **argv);

#endif
