#include "script.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct script script;

void trace(const char *format, ...) {
    if (!getenv("FUZZ_TRACE")) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    script = (struct script){data, data + size};
    run_script();
    return 0;
}

#ifndef WITH_LIBFUZZER
enum { MAX_SCRIPT = 2048 };

static uint64_t random_state;

static uint64_t draw(void) {
    /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* A new script, or the one before with a part of it changed. */
static size_t draw_script(uint8_t *bytes, size_t before) {
    size_t from = 0, to = before;
    if (!before || draw() % 4 == 0) {
        to = 20 + draw() % (MAX_SCRIPT - 20);
        before = to;
    } else {
        from = draw() % before;
        to = from + 1 + draw() % 30;
        if (to > before) to = before;
    }
    for (size_t i = from; i < to; i++) bytes[i] = (uint8_t)draw();
    return before;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int run_file(const char *path) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* In the file of the script that is being run, its length comes first. */
    uint64_t length;
    if (size >= sizeof length && (memcpy(&length, bytes, sizeof length), length <= MAX_SCRIPT))
        return LLVMFuzzerTestOneInput(bytes + sizeof length, (size_t)length);
    return LLVMFuzzerTestOneInput(bytes, size);
}

/* So many are drawn however long it takes: fewer find nothing. */
enum { LEAST_SCRIPTS = 24 };

int main(int count, char **arguments) {
    if (count != 4 || !strtod(arguments[1], NULL)) {
        int failed = 0;
        for (int i = 1; i < count; i++) failed |= run_file(arguments[i]);
        return failed;
    }
    random_state = strtoull(arguments[2], NULL, 10);
    int fd = open(arguments[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, MAX_SCRIPT + 8)) {
        perror(arguments[3]);
        return 1;
    }
    uint8_t *last = mmap(NULL, MAX_SCRIPT + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (last == MAP_FAILED) return 1;
    double until = seconds() + strtod(arguments[1], NULL);
    size_t size = 0;
    unsigned long scripts = 0;
    for (; scripts < LEAST_SCRIPTS || seconds() < until; scripts++) {
        size = draw_script(last + 8, size);
        uint64_t length = size;
        memcpy(last, &length, sizeof length);
        LLVMFuzzerTestOneInput(last + 8, size);
    }
    printf("%lu scripts\n", scripts);
    if (tell_of_all) tell_of_all();
    return 0;
}
#endif
