/* Names that are bound, referred to, let go and forgotten at random, beside a plain list: each is found while it is
 * bound, and there are never more of them, or more bytes, than may be. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bindings.h"

enum { NAMES = 300, LIMIT = 100, IDLE = 40, STEPS = 80000 };

static struct bindings bindings;
static char names[NAMES][1024];
static size_t sizes[NAMES];
static uint32_t numbers[NAMES], references[NAMES];
static uint64_t state = 1;

static uint32_t draw(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void forget_surplus(void) {
    for (uint32_t number; (number = bindings_surplus(&bindings)) != 0;) {
        for (uint32_t n = 0; n < NAMES; n++)
            if (numbers[n] == number) assert(references[n] == 0), numbers[n] = 0;
        bindings_forget(&bindings, number);
    }
}

static void bind(uint32_t n, uint32_t *refused) {
    bool is_new;
    forget_surplus();
    uint32_t number = bindings_look_up(&bindings, names[n], sizes[n], &is_new);
    if (!number) {
        /* Only where nothing can make room: all others are in use. */
        assert(bindings.idle == 0), ++*refused;
        return;
    }
    assert(is_new == (numbers[n] == 0));
    numbers[n] = number;
    bindings_refer(&bindings, number);
    references[n]++;
}

static void check(void) {
    uint32_t bound = 0;
    uint64_t bytes = 0;
    for (uint32_t n = 0; n < NAMES; n++) {
        assert(bindings_find(&bindings, names[n], sizes[n]) == numbers[n]);
        if (!numbers[n]) continue;
        bound++, bytes += sizes[n];
    }
    assert(bindings.bound == bound && bindings.names_bytes == bytes);
    assert(bound <= LIMIT && bytes < (uint64_t)LIMIT * BINDING_NAME_SHARE + sizeof names[0]);
}

/* `longest`: of a name. */
static uint32_t play(uint32_t longest) {
    uint32_t refused = 0;
    assert(bindings_open(&bindings, 16, 3, LIMIT, IDLE));
    memset(numbers, 0, sizeof numbers);
    memset(references, 0, sizeof references);
    for (uint32_t n = 0; n < NAMES; n++) {
        sizes[n] = (size_t)sprintf(names[n], "%u.", n);
        while (sizes[n] < longest && draw(longest)) names[n][sizes[n]++] = 'x';
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t n = draw(NAMES);
        bool fills = step / 2000 % 2 == 0; /* in waves */
        if (references[n] && draw(4) >= (fills ? 1 : 3)) continue;
        if (references[n] && (!fills || draw(2)))
            bindings_unbind(&bindings, numbers[n]), references[n]--;
        else if (fills)
            bind(n, &refused);
        if (step % 100 == 0) check();
    }
    bindings_close(&bindings);
    return refused;
}

int main(void) {
    assert(play(8) > 0);    /* their number is the limit */
    assert(play(1024) > 0); /* their bytes are */
    puts("ok");
}
