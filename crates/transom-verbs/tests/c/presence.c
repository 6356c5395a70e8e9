/* A program's findings before its first request: libraries that start nothing, one device, its names and
 * numbers, layouts, threads that take no signal. The program runs itself for what is of a new process. */
#include "common.h"
#include <dirent.h>
#include <net/if.h>

static int entries(const char *path) {
    int count = 0;
    DIR *directory = MADE(opendir(path));
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}
static int threads(void) {
    return entries("/proc/self/task") - 2;
}
static int descriptors(void) {
    return entries("/proc/self/fd");
}
/* The output of this program, run anew with a word; its status. */
static int self(const char *word, char *output, size_t room) {
    char command[4200], path[4096] = {0};
    CHECK("-", readlink("/proc/self/exe", path, sizeof path - 1) > 0, "errno %d", errno);
    snprintf(command, sizeof command, "'%s' %s 2>&1", path, word);
    FILE *pipe = MADE(popen(command, "r"));
    size_t length = fread(output, 1, room - 1, pipe);
    output[length] = 0;
    return pclose(pipe);
}
static uint64_t guid(void) {
    struct ibv_device **list = MADE(ibv_get_device_list(NULL));
    uint64_t number = ibv_get_device_guid(list[0]);
    ibv_free_device_list(list);
    return number;
}
/* Prints name and GUID, and nothing else is printed. */
static int name(void) {
    int count;
    struct ibv_device **list = MADE(ibv_get_device_list(&count));
    ibv_close_device(MADE(ibv_open_device(list[0])));
    printf("%d %s %llx", count, ibv_get_device_name(list[0]), (unsigned long long)guid());
    return 0;
}
static void named(const char *variable, const char *value, const char *wanted) {
    char output[512], line[128];
    if (variable)
        setenv(variable, value, 1);
    int status = self("name", output, sizeof output);
    if (variable)
        unsetenv(variable);
    snprintf(line, sizeof line, "1 %s %llx", wanted, (unsigned long long)guid());
    CHECK("V22/V24/V109/V110", status == 0 && !strcmp(output, line), "%s=%s: status %x, '%s'",
          variable ? variable : "", value ? value : "", status, output);
}
/* Every thread but the first has the signals of programs blocked, and none that the processor raises. */
static void signals(void) {
    DIR *directory = MADE(opendir("/proc/self/task"));
    struct dirent *entry;
    int seen = 0;
    while ((entry = readdir(directory))) {
        char path[300], line[256];
        unsigned long long blocked = 0;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file)
            continue; /* it has ended */
        while (fgets(line, sizeof line, file))
            sscanf(line, "SigBlk: %llx", &blocked);
        fclose(file);
        seen++;
        for (int s = 1; s < 32; s++) {
            bool own = s == SIGSEGV || s == SIGBUS || s == SIGILL || s == SIGFPE || s == SIGTRAP;
            bool never = s == SIGKILL || s == SIGSTOP;
            bool is = blocked >> (s - 1) & 1;
            CHECK("V147", never || is == !own, "signal %d of a thread: blocked %d", s, is);
        }
    }
    closedir(directory);
    CHECK("V147", seen >= 2, "%d threads", seen);
}
int main(int count, char **words) {
    if (count > 1)
        return name();
    /* Loading starts nothing; the list starts no thread. */
    int before = descriptors();
    CHECK("V5", threads() == 1, "%d threads before the first call", threads());
    int found = 0;
    struct ibv_device **list = MADE(ibv_get_device_list(&found));
    CHECK("V5", threads() == 1, "%d threads with a list", threads());
    CHECK("V22", found == 1 && list[1] == NULL, "%d devices", found);
    struct ibv_device *device = list[0];
    CHECK("V22", !strcmp(device->dev_name, "uverbs0"), "%s", device->dev_name);
    CHECK("V23", device->node_type == IBV_NODE_CA && device->transport_type == IBV_TRANSPORT_IB,
          "%d %d", device->node_type, device->transport_type);
    for (int i = 0; i < 256; i++)
        CHECK("V19", ((char *)device)[664 + i] == 0, "byte %d", i);
    named(NULL, NULL, "transom0");
    named("TRANSOM_DEVICE", "irdma0", "irdma0");
    named("SYSFS_PATH", "/nowhere", "transom0");
    named("RDMAV_DRIVERS", "nothing", "transom0");
    CHECK("V24", guid() != 0, "no GUID");
    struct end e = {0}, f = {0};
    open_end(&e, NULL, ALL);
    open_end(&f, e.ctx, ALL);
    /* Layouts that inline functions rely on. */
    size_t size = *(size_t *)((char *)e.ctx - 8);
    CHECK("V20", size == 696, "%zu bytes", size);
    CHECK("V20", e.ctx->abi_compat == (void *)-1, "%p", e.ctx->abi_compat);
    CHECK("V9", e.ctx->ops.poll_cq && e.ctx->ops.post_send && e.ctx->ops.post_recv &&
                    e.ctx->ops.post_srq_recv && e.ctx->ops.req_notify_cq && e.ctx->ops.alloc_mw &&
                    e.ctx->ops.bind_mw && e.ctx->ops.dealloc_mw,
          "an operation is null");
    struct ibv_cq_init_attr_ex wanted = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *extended = MADE(ibv_create_cq_ex(e.ctx, &wanted));
    CHECK("V21", (void *)ibv_cq_ex_to_cq(extended) == (void *)extended, "another address");
    SUCCEEDS(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)));
    struct ibv_qp_init_attr_ex many = {.qp_type = IBV_QPT_RC,
                                       .send_cq = e.scq,
                                       .recv_cq = e.rcq,
                                       .cap = {4, 4, 1, 1, 0},
                                       .pd = e.pd,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .send_ops_flags = IBV_QP_EX_WITH_SEND};
    struct ibv_qp *qp = MADE(ibv_create_qp_ex(e.ctx, &many));
    CHECK("V21", (void *)ibv_qp_to_qp_ex(qp) == (void *)qp, "another address");
    CHECK("V21", ibv_qp_to_qp_ex(e.qp) == NULL, "a plain queue pair has no extended interface");
    SUCCEEDS(ibv_destroy_qp(qp));
    /* Each GID is there for RoCE v1 and v2, a link-local one first, and belongs to an interface. */
    struct ibv_gid_entry gids[64];
    ssize_t valid = ibv_query_gid_table(e.ctx, gids, 64, 0);
    CHECK("V27", valid > 0, "%zd GIDs", valid);
    for (ssize_t i = 0; i < valid; i++) {
        char interface[IF_NAMESIZE];
        CHECK("V27", gids[i].gid_index == i, "%zd is at %u", i, gids[i].gid_index);
        CHECK("V27",
              gids[i].gid_type == (i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1) &&
                  !memcmp(&gids[i].gid, &gids[i ^ 1].gid, 16),
              "%zd: type %u", i, gids[i].gid_type);
        CHECK("V25", (gids[i].gid.raw[0] == 0xfe) == (i < 2) || i > 3, "%zd: GID", i);
        CHECK("V27", if_indextoname(gids[i].ndev_ifindex, interface), "interface %u",
              gids[i].ndev_ifindex);
    }
    /* Descriptors that programs duplicate and watch. */
    int twice = dup(e.ctx->cmd_fd);
    CHECK("V31", twice >= 0 && close(twice) == 0, "errno %d", errno);
    int flags = fcntl(e.ctx->async_fd, F_GETFL);
    CHECK("V31", fcntl(e.ctx->async_fd, F_SETFL, flags | O_NONBLOCK) == 0, "errno %d", errno);
    struct ibv_async_event event;
    errno = 0;
    int got = ibv_get_async_event(e.ctx, &event);
    CHECK("V31/V98", got == -1 && errno == EAGAIN, "%d errno %d", got, errno);
    CHECK("V98", fcntl(e.ctx->async_fd, F_GETFD) & FD_CLOEXEC, "inherited by programs");
    /* A connection starts the thread for timers, too. */
    pair_up(&e, &f, DEF);
    SUCCEEDS(post(&e, 1, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, e.mr->lkey, (uintptr_t)f.buf,
                  f.mr->rkey));
    EXPECT_WC("V88", e.scq, 1, IBV_WC_SUCCESS);
    signals();
    /* Contexts are strangers to each other. */
    struct end g = {0};
    open_end(&g, NULL, ALL);
    CHECK("V39", g.ctx != e.ctx, "the same context");
    struct ibv_qp_init_attr mixed = {.send_cq = g.scq,
                                     .recv_cq = g.rcq,
                                     .cap = {1, 1, 1, 1, 0},
                                     .qp_type = IBV_QPT_RC};
    NULLS("V39", ibv_create_qp(e.pd, &mixed), EINVAL);
    SUCCEEDS(ibv_close_device(g.ctx));
    SUCCEEDS(ibv_close_device(e.ctx));
    ibv_free_device_list(list);
    CHECK("V5", descriptors() >= before, "%d descriptors", descriptors());
    return finish();
}
