#include "base/process.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

void process_name(const char *name) {
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
}

void process_dies_with_parent(void) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

void process_readable(void) {
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

void process_trim(void) {
    (void)malloc_trim(0);
}

void process_joins_free_memory(void) {
    (void)mallopt(M_MXFAST, 0);
}

_Noreturn void process_die(const char *why) {
    char name[16] = "";
    (void)prctl(PR_GET_NAME, name, 0, 0, 0);
    fprintf(stderr, "%s: %s\n", name, why);
    abort();
}
