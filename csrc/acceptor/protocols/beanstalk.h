/* The beanstalkd protocol's hot commands: put, reserve, reserve-with-timeout, reserve-job, delete, release, bury,
 * touch, use, watch, ignore. What it does not know it hands to Python as a line (acceptor/protocols/beanstalk.py).
 *
 * What is accepted and what is refused, and how, is what beanstalkd 1.12 does to the byte, oddities included: a name
 * of a command is matched as a prefix, a carriage return that no line feed follows spoils a line, numbers may be
 * preceded by any number of spaces, and so on. One thing is as since 1.13: the timeout of a reserve must be a number.
 */
#ifndef MQ_BEANSTALK_H
#define MQ_BEANSTALK_H

#include "acceptor/engine.h"

#define BEANSTALK_JOB_BYTES 65535u /* the default of max-job-size */

#endif
