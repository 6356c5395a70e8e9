/* The threads of a context end with it: when ibv_close_device returns, none is left that could free
 * memory behind the program's back. */
#include "common.h"
#include <dirent.h>
enum { EXITING = 4 }; /* the kernel's flag of a thread that is past its last instruction here */
/* The threads of adapters in this process that still run. */
static int adapters(void) {
    DIR *tasks = MADE(opendir("/proc/self/task"));
    int found = 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[512] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        unsigned long flags = 0;
        char *name = fgets(line, sizeof line, file) ? strchr(line, '(') : NULL;
        fclose(file);
        if (name && sscanf(strrchr(name, ')'), ") %*c %*d %*d %*d %*d %*d %lu", &flags) == 1)
            found += !strncmp(name, "(transom)", 9) && !(flags & EXITING);
    }
    closedir(tasks);
    return found;
}
/* The program has closed all descriptors, and has files of its own under their numbers, so that the
 * thread cannot be woken: the close returns all the same. */
static int without_descriptors(void) {
    struct ibv_context *c = open_dev();
    int own = open("/dev/null", O_RDWR);
    for (int d = 3; d < own; d++)
        if (dup2(own, d) < 0)
            return 2;
    return adapters() == 1 ? ibv_close_device(c) : 3;
}
int main(void) {
    CHECK("V38", adapters() == 0, "%d threads before the first context", adapters());
    for (int turn = 0; turn < 50; turn++) {
        struct end e = {0}, f = {0};
        open_end(&e, NULL, ALL);
        open_end(&f, NULL, ALL);
        CHECK("V38", adapters() == 2, "%d threads of two contexts", adapters());
        if (turn % 2) {
            pair_up(&e, &f, DEF);
            SUCCEEDS(post(&e, 1, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey,
                          (uintptr_t)f.buf, f.mr->rkey));
            EXPECT_WC("V88", e.scq, 1, IBV_WC_SUCCESS);
        }
        SUCCEEDS(ibv_close_device(e.ctx));
        CHECK("V38", adapters() == 1, "turn %d: %d threads of one context", turn, adapters());
        SUCCEEDS(ibv_close_device(f.ctx));
        CHECK("V38", adapters() == 0, "turn %d: %d threads are left", turn, adapters());
        munmap(e.buf, e.len);
        munmap(f.buf, f.len);
    }
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        _exit(without_descriptors());
    }
    int status = -1;
    CHECK("V149", waitpid(child, &status, 0) == child && status == 0, "child %x", status);
    return finish();
}
