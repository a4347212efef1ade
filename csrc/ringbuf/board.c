#include "ringbuf/board.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct board *board_map(int fd) {
    struct stat stat;
    if (fstat(fd, &stat) != 0) return NULL;
    if ((uint64_t)stat.st_size < sizeof(struct board)) {
        errno = EINVAL;
        return NULL;
    }
    void *board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return board == MAP_FAILED ? NULL : board;
}

void board_unmap(struct board *board) {
    if (board != NULL) munmap(board, sizeof *board);
}

bool board_format(int fd) {
    if (ftruncate(fd, sizeof(struct board)) < 0) return false;
    struct board *board = board_map(fd);
    if (board == NULL) return false;
    atomic_store(&board->next_id, 1);
    login_attempts_format(&board->logins, 0);
    board_unmap(board);
    return true;
}

bool board_drain(int fd) {
    struct board *board = board_map(fd);
    if (board == NULL) return false;
    /* Acceptors read it with relaxed loads: no other memory depends on it. */
    atomic_store_explicit(&board->draining, 1, memory_order_relaxed);
    board_unmap(board);
    return true;
}
