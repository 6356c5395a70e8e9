/* Programs for the ledger of grants; argument: what to do with a region that peers may write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

static char bytes[4096];

static struct ibv_mr *lend(struct ibv_pd *pd, int access) {
    return ibv_reg_mr(pd, bytes, sizeof bytes, access);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list ? ibv_open_device(list[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (strcmp(what, "local"))
        access |= IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = pd ? lend(pd, access) : NULL;
    if (!mr)
        return 1;
    printf("buffered"); /* written at exit, if the exit is in order */
    if (!strcmp(what, "leave"))
        return 0;
    if (!strcmp(what, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(0);
        int status = 1;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
    }
    if (!strcmp(what, "fail"))
        exit(3);
    return ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context);
}
