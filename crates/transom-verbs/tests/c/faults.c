/* Handlers of the program's for SIGSEGV, below ours and above: each fault of the program's reaches them
 * in the order in which they were installed, also behind a handler that has jumped out of one. */
#include "common.h"
#include <setjmp.h>

static __thread sigjmp_buf back;
static __thread char order[8];
static struct sigaction below;
static struct ibv_pd *pd;
static char bytes[4096];
static volatile char *nowhere;

static void seen(char who) {
    size_t length = strlen(order);
    if (length + 1 < sizeof order)
        order[length] = who;
}
static void first(int signal) {
    seen('1');
    siglongjmp(back, 1);
}
/* Goes on to the handler that was there, as the documentation of sigaction(2) has it. */
static void second(int signal, siginfo_t *info, void *context) {
    seen('2');
    below.sa_sigaction(signal, info, context);
}
static void third(int signal) {
    seen('3');
    siglongjmp(back, 1);
}
/* Ours goes on top. */
static void registered(void) {
    struct ibv_mr *mr = MADE(ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
    SUCCEEDS(ibv_dereg_mr(mr));
}
__attribute__((noinline)) static void probe(const char *expected, int depth) {
    if (depth > 0) {
        probe(expected, depth - 1);
        return;
    }
    memset(order, 0, sizeof order);
    if (sigsetjmp(back, 1) == 0) {
        char byte = *nowhere;
        CHECK("V150", false, "a byte of nowhere: %d", byte);
    }
    CHECK("V150", !strcmp(order, expected), "%s instead of %s", order, expected);
}
static void *probes(void *expected) {
    for (int i = 0; i < 4; i++)
        probe(expected, i % 3);
    return NULL;
}
static void everywhere(const char *expected) {
    pthread_t thread;
    probes((void *)expected);
    SUCCEEDS(pthread_create(&thread, NULL, probes, (void *)expected));
    SUCCEEDS(pthread_join(thread, NULL));
}
int main(void) {
    void *at = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MADE(at != MAP_FAILED);
    nowhere = at;
    struct sigaction action = {.sa_handler = first};
    SUCCEEDS(sigaction(SIGSEGV, &action, NULL));
    struct ibv_device **list = MADE(ibv_get_device_list(NULL));
    pd = MADE(ibv_alloc_pd(MADE(ibv_open_device(list[0]))));
    registered();
    everywhere("1");
    action = (struct sigaction){.sa_sigaction = second, .sa_flags = SA_SIGINFO};
    SUCCEEDS(sigaction(SIGSEGV, &action, &below));
    registered();
    everywhere("21");
    action = (struct sigaction){.sa_handler = third};
    SUCCEEDS(sigaction(SIGSEGV, &action, NULL));
    registered();
    everywhere("3");
    return failures ? 1 : 0;
}
