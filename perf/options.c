#define _GNU_SOURCE
#include "options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64

static void show_default(const struct option_row *row) {
    double value = 0;
    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_PIDS: return;
    case OPTION_TEXT: printf(" (%s)", *(const char **)row->place); return;
    case OPTION_WORD: printf(" (%s)", row->words[*(unsigned *)row->place]); return;
    case OPTION_DOUBLE: value = *(double *)row->place; break;
    case OPTION_INT: value = *(int *)row->place; break;
    case OPTION_UINT16: value = *(uint16_t *)row->place; break;
    case OPTION_UNSIGNED: value = *(unsigned *)row->place; break;
    case OPTION_UINT64: value = (double)*(uint64_t *)row->place; break;
    }
    if (value != 0 && value <= row->high) printf(" (%.10g)", value);
}

__attribute__((noreturn)) static void show_help(const char *program, const struct option_row *rows) {
    printf("usage: %s --port PORT [options]\n", program);
    for (const struct option_row *row = rows; row->name != NULL; row++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", row->name, row->value != NULL ? row->value : "");
        printf("  %-22s %s", left, row->help);
        show_default(row);
        putchar('\n');
    }
    puts("prints one line of JSON; times in microseconds unless named otherwise");
    exit(0);
}

static unsigned word(const struct option_row *row, const char *text) {
    for (unsigned i = 0; i < (unsigned)row->high; i++)
        if (strcmp(text, row->words[i]) == 0) return i;
    die("--%s: what is %s?", row->name, text);
}

static void take(const struct option_row *row, char *text) {
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)row->place = true; break;
    case OPTION_TEXT: *(const char **)row->place = text; break;
    case OPTION_PIDS: read_pids(row->place, text); break;
    case OPTION_WORD: *(unsigned *)row->place = word(row, text); break;
    case OPTION_DOUBLE: *(double *)row->place = number(text, row->low, row->high); break;
    case OPTION_INT: *(int *)row->place = (int)number(text, row->low, row->high); break;
    case OPTION_UINT16: *(uint16_t *)row->place = (uint16_t)number(text, row->low, row->high); break;
    case OPTION_UNSIGNED: *(unsigned *)row->place = (unsigned)number(text, row->low, row->high); break;
    case OPTION_UINT64: *(uint64_t *)row->place = (uint64_t)number(text, row->low, row->high); break;
    }
}

void options_read(const char *program, const struct option_row *rows, int argc, char **argv) {
    struct option names[MAX_ROWS + 2] = {{0}};
    size_t count = 0;
    for (; rows[count].name != NULL; count++) {
        if (count == MAX_ROWS) die("too many options");
        names[count] = (struct option){rows[count].name, rows[count].kind != OPTION_FLAG, NULL, 0};
    }
    names[count] = (struct option){"help", 0, NULL, 0};
    for (int found, place; (found = getopt_long(argc, argv, "", names, &place)) != -1;) {
        if (found != 0) exit(2); /* getopt has said what is wrong */
        if ((size_t)place == count) show_help(program, rows);
        take(&rows[place], optarg);
    }
    if (optind < argc) die("what is %s? --help says what there is", argv[optind]);
}
