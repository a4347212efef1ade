/* The protocols of the bare server and of the loads whose instructions are counted, one line each. What belongs to a
 * protocol is in the folder of its name; table.py lists the same for Python. */
#ifndef MQ_PERF_PROTOCOLS_H
#define MQ_PERF_PROTOCOLS_H

#define PROTOCOLS                                                                                                      \
    PROTOCOL(beanstalk)                                                                                                \
    PROTOCOL(nsq)                                                                                                      \
    PROTOCOL(nats)                                                                                                     \
    PROTOCOL(pulsar)

#endif
