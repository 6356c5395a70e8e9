/* A program with rights that its caller lacks, whose caller has chosen the whole environment: the
 * program makes its user numbers equal, opens the device, and uses a little of it. Prints the device's
 * name, and what answers to inspections. */
#include "common.h"
#include <sys/un.h>

int main(void) {
    if (geteuid() == 0)
        SUCCEEDS(setresuid(0, 0, 0));
    struct ibv_device **list = MADE(ibv_get_device_list(NULL));
    struct ibv_context *context = MADE(ibv_open_device(list[0]));
    struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
    static char bytes[4096];
    int lent = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    MADE(ibv_reg_mr(pd, bytes, sizeof bytes, lent));
    /* Explained on standard error, where that is asked for. */
    CHECK("V40", !ibv_reg_mr(pd, bytes, sizeof bytes, 1 << 30), "flags that do not exist");
    printf("device %s\n", ibv_get_device_name(list[0]));
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_un at = {0};
        socklen_t size = sizeof at;
        if (!getsockname(fd, (struct sockaddr *)&at, &size) && at.sun_family == AF_UNIX &&
            at.sun_path[0] == '/')
            printf("answers at %s\n", at.sun_path);
    }
    return failures ? 1 : 0;
}
