/* The threads of a context end with it: when ibv_close_device returns, none is left that could free
 * memory behind the program's back. */
#include "common.h"
#include <dirent.h>
enum { EXITING = 4 }; /* the kernel's flag of a thread that is past its last instruction here */
/* Whether a thread of this process has another name by now than an adapter's. */
static int has_another_name(int thread) {
    char path[64], name[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", thread);
    FILE *file = fopen(path, "r");
    int other = file && fgets(name, sizeof name, file) && strcmp(name, "transom\n") != 0;
    if (file)
        fclose(file);
    return other;
}
/* The threads of adapters in this process that still run, of which so many are expected. */
static int adapters(int expected) {
    int threads[64];
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
            if (!strncmp(name, "(transom)", 9) && !(flags & EXITING) && found < 64)
                threads[found++] = atoi(task->d_name);
    }
    closedir(tasks);
    /* A thread that an adapter's has just started has that name until it gives itself its own. */
    for (int looks = 0; looks < 6000 && found > expected; looks++) {
        usleep(10000);
        for (int i = 0; i < found; i++)
            if (has_another_name(threads[i]))
                threads[i--] = threads[--found];
    }
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
    return adapters(1) == 1 ? ibv_close_device(c) : 3;
}
int main(void) {
    int found = adapters(0);
    CHECK("V38", found == 0, "%d threads before the first context", found);
    for (int turn = 0; turn < 50; turn++) {
        struct end e = {0}, f = {0};
        open_end(&e, NULL, ALL);
        open_end(&f, NULL, ALL);
        found = adapters(2);
        CHECK("V38", found == 2, "%d threads of two contexts", found);
        if (turn % 2) {
            pair_up(&e, &f, DEF);
            SUCCEEDS(post(&e, 1, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey,
                          (uintptr_t)f.buf, f.mr->rkey));
            EXPECT_WC("V88", e.scq, 1, IBV_WC_SUCCESS);
        }
        SUCCEEDS(ibv_close_device(e.ctx));
        found = adapters(1);
        CHECK("V38", found == 1, "turn %d: %d threads of one context", turn, found);
        SUCCEEDS(ibv_close_device(f.ctx));
        found = adapters(0);
        CHECK("V38", found == 0, "turn %d: %d threads are left", turn, found);
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
