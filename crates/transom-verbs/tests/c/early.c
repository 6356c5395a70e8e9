/* Another user asks for queue pairs that have not come to RTR, sixteen times for each, and stays. Requests that come too
 * early are held (V76), and each has a descriptor of the program's, which has some left for its own purposes nevertheless,
 * and for a peer. Ends with 77 if the program may not change its user. */
#include "common.h"
#include "claims.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include "processes.h"
enum { CANNOT = 77, STRANGER = 65534, DESCRIPTORS = 200, OWN = 50, PAIRS = 32, EACH = 16 };
/* All that are held at a time, at most. */
enum { HELD = DESCRIPTORS / 4 };
static struct end ends[PAIRS];
static union ibv_gid gid;
static uint32_t numbers[PAIRS];
static void stranger(void) {
    static int all[PAIRS * EACH];
    static struct pollfd unanswered[PAIRS * EACH];
    int turned_away = 0;
    SUCCEEDS(setresgid(STRANGER, STRANGER, STRANGER));
    SUCCEEDS(setresuid(STRANGER, STRANGER, STRANGER));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    receive_all(&gid, sizeof gid);
    receive_all(numbers, sizeof numbers);
    for (int i = 0; i < PAIRS * EACH; i++) {
        all[i] = reach(gid, gid, numbers[i % PAIRS]);
        say(all[i], IBV_QPT_RC, 1, numbers[i % PAIRS]);
        unanswered[i] = (struct pollfd){all[i], POLLIN, 0};
    }
    /* An answer is a rejection: such a queue pair accepts nobody. */
    while (turned_away < PAIRS * EACH - HELD) {
        SUCCEEDS(poll(unanswered, PAIRS * EACH, -1) < 1);
        for (int i = 0; i < PAIRS * EACH; i++) {
            if (unanswered[i].revents) {
                turned_away++;
                unanswered[i].fd = -1;
            }
        }
    }
    send_all(&turned_away, sizeof turned_away);
    (void)!read(sock, &turned_away, 1); /* until the other process has seen enough */
}
/* The program has descriptors for its own purposes. */
static bool has_own(void) {
    int own[OWN], n = 0;
    while (n < OWN && (own[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    for (int i = 0; i < n; i++)
        close(own[i]);
    CHECK("V76", n == OWN, "%d descriptors are left for the program", n);
    return n == OWN;
}
int main(void) {
    int both[2], turned_away, status;
    struct rlimit limit;
    if (geteuid())
        return CANNOT;
    SUCCEEDS(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    SUCCEEDS(setrlimit(RLIMIT_NOFILE, &limit)); /* the other user's */
    SUCCEEDS(socketpair(AF_UNIX, SOCK_STREAM, 0, both));
    pid_t child = fork();
    if (!child) {
        close(both[0]);
        sock = both[1];
        stranger();
        _exit(0);
    }
    close(both[1]);
    sock = both[0];
    limit.rlim_cur = DESCRIPTORS;
    SUCCEEDS(setrlimit(RLIMIT_NOFILE, &limit));
    open_end(&ends[0], NULL, ALL);
    for (int i = 1; i < PAIRS; i++) {
        ends[i] = ends[0];
        ends[i].qp = new_qp(&ends[i]);
    }
    for (int i = 0; i < PAIRS; i++) {
        qp_init(ends[i].qp, DEF.access);
        numbers[i] = ends[i].qp->qp_num;
    }
    gid = ends[0].gid;
    send_all(&gid, sizeof gid);
    send_all(numbers, sizeof numbers);
    struct pollfd done = {sock, POLLIN, 0};
    while (has_own() && poll(&done, 1, 10) == 0)
        ;
    if (failures)
        return finish();
    receive_all(&turned_away, sizeof turned_away);
    CHECK("V76", turned_away < PAIRS * EACH, "some are held");
    /* A peer comes while these stay. */
    struct end *a = &ends[0], *b = &ends[1];
    qp_rtr(a->qp, b->gid, b->qp->qp_num, DEF);
    qp_rts(a->qp, DEF);
    qp_rtr(b->qp, a->gid, a->qp->qp_num, DEF);
    qp_rts(b->qp, DEF);
    SUCCEEDS(post_recv(b, 1, b->buf + 64, 8, b->mr->lkey));
    SUCCEEDS(post(a, 2, IBV_WR_SEND, SIG, a->buf, 8, a->mr->lkey, 0, 0));
    EXPECT_WC("V76", b->rcq, 1, IBV_WC_SUCCESS);
    EXPECT_WC("V76", a->scq, 2, IBV_WC_SUCCESS);
    has_own();
    close(sock);
    SUCCEEDS(waitpid(child, &status, 0) != child);
    return finish();
}
