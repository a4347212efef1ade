/* A ring: a single-producer single-consumer queue of records in shared memory. See channel.h for messages on it. */
