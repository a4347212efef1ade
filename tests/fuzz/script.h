/* A script: the bytes of one input. Each step of a target takes what it needs; behind the last byte there are zeros.
 *
 * script.c has LLVMFuzzerTestOneInput, which is libFuzzer's, and for who has no libFuzzer a main() that draws scripts:
 *
 *   TARGET SECONDS SEED LAST      LAST is a file that holds the script that is being run
 *   TARGET FILE...                runs scripts again
 */
#ifndef MQ_FUZZ_SCRIPT_H
#define MQ_FUZZ_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

struct script {
    const uint8_t *at, *end;
};
extern struct script script;

static inline bool script_goes_on(void) {
    return script.at < script.end;
}

static inline uint8_t byte(void) {
    return script.at < script.end ? *script.at++ : 0;
}

static inline uint32_t pick(uint32_t below) {
    return below > 256 ? ((uint32_t)byte() << 8 | byte()) % below : byte() % below;
}

/* Says what happens, on stderr, if FUZZ_TRACE is set: for who runs one script again. */
void trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The target's: begins a world, takes steps as long as the script goes on, and takes the world down. */
void run_script(void);

/* The target's, if it has one: prints what there is to say of all scripts that were run. */
void tell_of_all(void) __attribute__((weak));

#endif
