/* What Linux can be told about a process as a whole. */
#ifndef MQ_PROCESS_H
#define MQ_PROCESS_H

/* What ps and top show: its first 15 bytes. */
void process_name(const char *name);

/* The kernel kills this process when its parent ends, however that ends; unless that has happened before. */
void process_dies_with_parent(void);

/* Its own user may read of it under /proc, though it was another user's when it began. */
void process_readable(void);

#endif
