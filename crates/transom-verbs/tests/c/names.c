/* V112: another user takes every name of a port before its owner does, listens there and fills what waits to be
 * accepted. Neither a port that takes rights nor a client depends on it. Ends with 77 if the program may not
 * change its user. */
#include "ids.h"
#include "processes.h"
#include <stddef.h>
#include <sys/un.h>
enum { CANNOT = 77, STRANGER = 65534, LOW = 700 };

static void become(uid_t user) {
    if (setresgid(user, user, user) || setresuid(user, user, user))
        _exit(CANNOT);
}
/* Take an abstract name; `full`: listen there, with no room for a connection. */
static void take(const char *name, bool full) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    memcpy(at.sun_path + 1, name, strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    SUCCEEDS(bind(fd, (void *)&at, length));
    if (!full)
        return;
    SUCCEEDS(listen(fd, 0));
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SUCCEEDS(connect(client, (void *)&at, length));
}
/* The names of port `at`: those by which a port is held, and those which tell where its listener is. */
static void take_all(int at, bool only_told) {
    static const char *addresses[] = {"127.0.0.1", "0.0.0.0", "[::]"};
    char name[100];
    for (int i = 0; i < 3; i++)
        for (int told = only_told; told < 2; told++) {
            sprintf(name, "transom/rdma_cm/%s:%d%s", addresses[i], at, told ? "/at" : "");
            take(name, true);
            for (int place = 0; place < 3; place++) {
                sprintf(name, "transom/rdma_cm/%s:%d%s=%d#%d", addresses[i], at, told ? "/at" : "", at, place);
                take(name, false);
            }
        }
}
static int tcp_at(int number) {
    struct sockaddr_in at = loopback(number);
    socklen_t length = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    SUCCEEDS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    SUCCEEDS(bind(fd, (void *)&at, sizeof at));
    SUCCEEDS(listen(fd, 8));
    SUCCEEDS(getsockname(fd, (void *)&at, &length));
    return ntohs(at.sin_port);
}
static int binds(int number) {
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    struct rdma_cm_id *id;
    struct sockaddr_in at = loopback(number);
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    int error = ERROR(rdma_bind_addr(id, (void *)&at)) ? errno : 0;
    SUCCEEDS(rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
    return error;
}
static void connects(const char *what) {
    struct rdma_cm_id *active, *passive = connected(&active);
    part(active, passive);
    printf("-- %s: connected\n", what);
}
int main(void) {
    int ends[2], status, plain = tcp_at(0), other = 0;
    SUCCEEDS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t stranger = fork();
    sock = ends[!stranger];
    close(ends[!!stranger]);
    if (!stranger) {
        become(STRANGER);
        take_all(LOW, false);
        take_all(plain, true);
        receive_all(&other, sizeof other);
        take_all(other, true);
        send_all("d", 1);
        char end;
        receive_all(&end, 1);
        _exit(finish());
    }
    pid_t unprivileged = fork();
    if (!unprivileged) {
        become(STRANGER);
        CHECK("V112", binds(LOW - 1) == EACCES, "an unprivileged user may not take a low port");
        _exit(finish());
    }
    waitpid(unprivileged, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        return CANNOT;
    CHECK("V112", status == 0, "the unprivileged process ended with %x", status);
    open_channels();
    /* A port of its own, whose names are taken when the listener stands. */
    open_listener(0);
    send_all(&port, sizeof port);
    char done;
    receive_all(&done, 1);
    connects("a port whose names were taken later");
    SUCCEEDS(rdma_destroy_id(listener));
    /* A port that takes rights: held once, whatever names others have. */
    open_listener(LOW);
    CHECK("V112", binds(LOW) == EADDRINUSE, "the second bind of a low port");
    connects("a port below 1024");
    SUCCEEDS(rdma_destroy_id(listener));
    /* The listener is elsewhere, beside a TCP socket, low or not. */
    tcp_at(LOW);
    int numbers[] = {LOW, plain};
    for (int i = 0; i < 2; i++) {
        open_listener(numbers[i]);
        CHECK("V112", port == numbers[i], "port %d", port);
        CHECK("V112", binds(port) == EADDRINUSE, "the second bind beside a TCP socket");
        connects("beside a TCP socket");
        SUCCEEDS(rdma_destroy_id(listener));
    }
    send_all("e", 1);
    waitpid(stranger, &status, 0);
    CHECK("V112", status == 0, "the other user's process ended with %x", status);
    rdma_destroy_event_channel(ours);
    rdma_destroy_event_channel(theirs);
    return finish();
}
