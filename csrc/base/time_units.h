/* Times are in nanoseconds, unless their names say otherwise. */
#ifndef MQ_TIME_UNITS_H
#define MQ_TIME_UNITS_H

#include <stdint.h>

#define US_NS     ((uint64_t)1000)
#define MS_NS     ((uint64_t)1000000)
#define SECOND_NS ((uint64_t)1000000000)

#endif
