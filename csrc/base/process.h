/* Settings of a whole process that Linux offers by prctl. */
#ifndef MQ_PROCESS_H
#define MQ_PROCESS_H

/* Sets the name that ps and top show; its first 15 bytes count. */
void process_name(const char *name);

/* Has the kernel kill this process when its parent ends, however it ends. Too late if the parent is already gone. */
void process_dies_with_parent(void);

/* Lets the process's own user read its files under /proc, although it was started as another user. */
void process_readable(void);

/* Returns memory that was freed, and that malloc keeps between pieces in use, to the system. */
void process_trim(void);

/* Has malloc join a freed piece with its free neighbours at once. It may leave that for small pieces until memory is
 * returned, which takes long when there are millions of them. */
void process_joins_free_memory(void);

/* Ends the process, which has failed or has no memory, and says why: the supervisor starts a new one. */
_Noreturn void process_die(const char *why);

#endif
