/* Two users of one host: a peer of another user is a peer like any other, and shares no memory,
 * whatever path the program asks for and whatever it offers by itself. Two peers of one user are
 * looked at for comparison. Ends with 77 if the program may not change its user. */
#include "common.h"
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "processes.h"
enum { CANNOT = 77, VICTIM = 65533, STRANGER = 65534 };
struct id {
    uint32_t qpn, key;
    uint64_t addr, len;
    union ibv_gid gid;
};
/* A mapping of memory that other processes may have, too. */
struct mapping {
    uint64_t inode;
};
static struct end e;
static struct id peer;
static void become(uid_t user) {
    if (setresgid(user, user, user) || setresuid(user, user, user))
        _exit(CANNOT);
    prctl(PR_SET_DUMPABLE, 1); /* which changing the user has undone */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("HOME");
}
static int mappings(struct mapping *all, int most) {
    FILE *maps = MADE(fopen("/proc/self/maps", "r"));
    char line[512], rights[8], path[256];
    int n = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to, inode;
        path[0] = 0;
        int read = sscanf(line, "%lx-%lx %7s %*s %*s %lu %255s", &from, &to, rights, &inode, path);
        bool program = !strncmp(path, "/usr/", 5);
        if (read >= 4 && rights[3] == 's' && inode && !program && n < most)
            all[n++] = (struct mapping){inode};
    }
    fclose(maps);
    return n;
}
static bool has(const struct mapping *all, int n, uint64_t inode) {
    for (int i = 0; i < n; i++)
        if (all[i].inode == inode)
            return true;
    return false;
}
static void connected(uid_t user) {
    become(user);
    open_end(&e, NULL, ALL);
    struct id me = {e.qp->qp_num, e.mr->rkey, (uintptr_t)e.buf, e.len, e.gid};
    memset(e.buf, 0x11, e.len);
    send_all(&me, sizeof me);
    receive_all(&peer, sizeof peer);
    qp_up(e.qp, peer.gid, peer.qpn, DEF);
}
/* Mappings that the connection and the offer of the peer have left in this process. */
static void victim(bool shares) {
    struct mapping own[64], theirs[64];
    int n, m, common = 0;
    uint64_t offered;
    connected(VICTIM);
    SUCCEEDS(post_recv(&e, 1, e.buf + 1024, 8, e.mr->lkey));
    wait_for_each_other();
    EXPECT_WC("users", e.rcq, 1, IBV_WC_SUCCESS);
    n = mappings(own, 64);
    receive_all(&m, sizeof m);
    receive_all(theirs, m * sizeof *theirs);
    for (int i = 0; i < m; i++)
        common += has(own, n, theirs[i].inode);
    CHECK("users", shares ? common > 0 : !common, "%d mappings are the peer's, too", common);
    receive_all(&offered, sizeof offered);
    n = mappings(own, 64);
    CHECK("users", shares == has(own, n, offered), "of what was handed over");
    wait_for_each_other();
    wait_for_each_other();
    CHECK("users", e.buf[0] == 0x22 && e.buf[8] == 0x11, "bytes %x %x", e.buf[0], e.buf[8]);
}
/* The name of the Unix socket beside a port, or none. */
static bool name_beside(unsigned port, struct sockaddr_un *at, socklen_t *length) {
    FILE *all = MADE(fopen("/proc/net/unix", "r"));
    char line[512], tail[16];
    bool found = false;
    sprintf(tail, ":%u", port);
    while (!found && fgets(line, sizeof line, all)) {
        char *name = strstr(line, "@transom/process/");
        if (!name)
            continue;
        name[strcspn(name, "\n")] = 0;
        size_t n = strlen(name), t = strlen(tail);
        if (n < t || strcmp(name + n - t, tail) || n >= sizeof at->sun_path)
            continue;
        *at = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(at->sun_path + 1, name + 1, n - 1);
        *length = offsetof(struct sockaddr_un, sun_path) + n;
        found = true;
    }
    fclose(all);
    return found;
}
/* Offer to share memory, and ask for it by TCP: the answer, and the memory that is handed over. */
static char offer(uint64_t *inode) {
    static const char nonce[] = "0123456789abcdef";
    char said[25] = "TRANSOM6", question[32] = "Transom process1", answer[16], byte;
    struct sockaddr_un at;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(peer.qpn >> 8)};
    struct stat file;
    socklen_t length;
    int memory;
    *inode = 1; /* of nothing */
    if (!name_beside(peer.qpn >> 8, &at, &length))
        return 0;
    memcpy(said + 8, nonce, 16);
    said[24] = 1; /* shared with other users, too */
    memcpy(question + 16, nonce, 16);
    int local = socket(AF_UNIX, SOCK_STREAM, 0);
    SUCCEEDS(connect(local, (void *)&at, length));
    send(local, said, sizeof said, MSG_NOSIGNAL); /* to whoever has not hung up at once */
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    memcpy(&to.sin_addr, peer.gid.raw + 12, 4);
    SUCCEEDS(connect(stream, (void *)&to, sizeof to));
    if (send(stream, question, sizeof question, MSG_NOSIGNAL) != sizeof question ||
        recv(stream, answer, sizeof answer, MSG_WAITALL) != sizeof answer)
        return 0;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof memory)];
    } control;
    struct iovec bytes = {&byte, sizeof byte};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (recvmsg(local, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message)) {
        memcpy(&memory, CMSG_DATA(&control.head), sizeof memory);
        SUCCEEDS(fstat(memory, &file));
        *inode = file.st_ino;
    }
    return answer[15]; /* both sockets stay open */
}
static void stranger(uid_t user, bool shares, bool rings) {
    struct mapping own[64];
    uint64_t inode;
    connected(user);
    wait_for_each_other();
    char *b = e.buf;
    SUCCEEDS(post(&e, 1, IBV_WR_SEND, SIG, b, 8, e.mr->lkey, 0, 0));
    EXPECT_WC("users", e.scq, 1, IBV_WC_SUCCESS);
    memset(b, 0x22, 8);
    SUCCEEDS(post(&e, 2, IBV_WR_RDMA_WRITE, SIG, b, 8, e.mr->lkey, peer.addr, peer.key));
    EXPECT_WC("users", e.scq, 2, IBV_WC_SUCCESS);
    int n = mappings(own, 64);
    send_all(&n, sizeof n);
    send_all(own, n * sizeof *own);
    char answer = offer(&inode), wanted = !rings ? 0 : shares ? '+' : '-';
    CHECK("users", answer == wanted, "the answer to an offer is %d, wanted %d", answer, wanted);
    CHECK("users", (inode != 1) == (wanted == '+'), "memory %lu was handed over", inode);
    send_all(&inode, sizeof inode);
    wait_for_each_other();
    memset(b, 0x33, 16);
    SUCCEEDS(post(&e, 3, IBV_WR_RDMA_WRITE, SIG, b, 16, e.mr->lkey, peer.addr + peer.len - 8,
                  peer.key));
    EXPECT_WC("users", e.scq, 3, IBV_WC_REM_ACCESS_ERR);
    wait_for_each_other();
}
/* Both processes, each as its user. */
static void between(uid_t user, bool rings) {
    bool shares = rings && user == VICTIM;
    int ends[2], status;
    SUCCEEDS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 2; i++)
        if (!fork()) {
            sock = ends[i];
            close(ends[!i]);
            if (i)
                stranger(user, shares, rings);
            else
                victim(shares);
            _exit(finish());
        }
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        wait(&status);
        if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
            exit(CANNOT);
        CHECK("users", status == 0, "a process of user %d ended with %x", user, status);
    }
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *path = getenv("TRANSOM_PATH");
    bool rings = path && !strcmp(path, "process");
    printf("-- one user\n");
    between(VICTIM, rings);
    printf("-- two users\n");
    between(STRANGER, rings);
    return finish();
}
