/* Ids of port space UDP: the service behind a port is resolved, accepted, rejected; peers that are
 * silent, repeat themselves or answer in another's name are plain sockets. */
#include "common.h"
#include <rdma/rdma_cma.h>
#include <sys/prctl.h>
#define KEY 0x01234567u
#define GRH 40

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static int port;

static struct rdma_cm_id *new_id(void) {
    struct rdma_cm_id *id;
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    CHECK("V111", id->qp_type == IBV_QPT_UD && id->ps == RDMA_PS_UDP, "type %d", id->qp_type);
    return id;
}
static struct rdma_cm_event *next(int kind, int status) {
    struct pollfd fd = {channel->fd, POLLIN, 0};
    CHECK("V120", poll(&fd, 1, HANG) == 1, "no event, wanted %s", rdma_event_str(kind));
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V135", (int)event->event == kind && event->status == status, "%s %d, wanted %s %d",
          rdma_event_str(event->event), event->status, rdma_event_str(kind), status);
    return event;
}
static void comes(int kind) {
    SUCCEEDS(rdma_ack_cm_event(next(kind, 0)));
}
static void nothing(void) {
    struct pollfd fd = {channel->fd, POLLIN, 0};
    CHECK("V135", poll(&fd, 1, 0) == 0, "an event");
}
static struct rdma_cm_id *resolved(int to) {
    struct rdma_cm_id *id = new_id();
    struct sockaddr_in peer = loopback(to);
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&peer, 2000));
    comes(RDMA_CM_EVENT_ADDR_RESOLVED);
    SUCCEEDS(rdma_resolve_route(id, 2000));
    comes(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}
static bool zeros(const void *bytes, int from, int to) {
    for (int i = from; i < to; i++)
        if (((const char *)bytes)[i])
            return false;
    return true;
}

static void ports(void) {
    struct rdma_cm_id *id = new_id();
    struct sockaddr_in at = loopback(port);
    CHECK("V113", rdma_bind_addr(id, (void *)&at) == -1 && errno == EADDRINUSE, "errno %d", errno);
    /* The ports of the other space are others: the system's word counts, which knows whether another
     * process has that one. */
    struct rdma_cm_id *tcp;
    SUCCEEDS(rdma_create_id(channel, &tcp, NULL, RDMA_PS_TCP));
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    bool free_port = bind(plain, (void *)&at, sizeof at) == 0;
    close(plain);
    CHECK("V113", rdma_bind_addr(tcp, (void *)&at) == 0 || !free_port, "errno %d", errno);
    SUCCEEDS(rdma_destroy_id(tcp));
    SUCCEEDS(rdma_destroy_id(id));
}

static void attributes(struct rdma_cm_id *id) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask;
    SUCCEEDS(rdma_init_qp_attr(id, &attr, &mask));
    int wanted = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    CHECK("V127", mask == wanted && attr.qkey == KEY && attr.port_num == 1, "mask %x key %x", mask,
          attr.qkey);
    attr.qp_state = IBV_QPS_RTR;
    SUCCEEDS(rdma_init_qp_attr(id, &attr, &mask));
    CHECK("V127", mask == IBV_QP_STATE, "mask %x", mask);
    attr.qp_state = IBV_QPS_RTS;
    SUCCEEDS(rdma_init_qp_attr(id, &attr, &mask));
    CHECK("V127", mask == (IBV_QP_STATE | IBV_QP_SQ_PSN), "mask %x", mask);
}
static struct ibv_qp *with_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr i = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    SUCCEEDS(rdma_create_qp(id, NULL, &i));
    struct ibv_qp_attr attr;
    SUCCEEDS(ibv_query_qp(id->qp, &attr, 0, &i));
    CHECK("V133", attr.qp_state == IBV_QPS_RTS && attr.qkey == KEY, "state %d key %x", attr.qp_state,
          attr.qkey);
    return id->qp;
}

/* From the question to a datagram, and its answer. */
static void whole(void) {
    char long_data[181] = "question";
    struct rdma_cm_id *id = resolved(port);
    with_qp(id);
    attributes(id);
    struct rdma_conn_param param = {.private_data = long_data, .private_data_len = 181};
    CHECK("V135", rdma_connect(id, &param) == -1 && errno == EINVAL, "181 bytes: errno %d", errno);
    param.private_data_len = 9;
    SUCCEEDS(rdma_connect(id, &param));
    CHECK("V135", rdma_connect(id, &param) == -1 && errno == EINVAL, "twice: errno %d", errno);
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *asked = event->id;
    CHECK("V135", event->listen_id == listener && event->param.ud.private_data_len == 180,
          "%u bytes", event->param.ud.private_data_len);
    CHECK("V135",
          !strcmp(event->param.ud.private_data, "question") &&
              zeros(event->param.ud.private_data, 9, 180),
          "private data");
    CHECK("V135", asked->qp_type == IBV_QPT_UD && asked->verbs && asked->pd, "type %d",
          asked->qp_type);
    CHECK("V135", rdma_get_dst_port(asked) == rdma_get_src_port(id), "port of the peer");
    SUCCEEDS(rdma_ack_cm_event(event));
    with_qp(asked);
    char room[2][256];
    struct rdma_conn_param answer = {.private_data = "answer", .private_data_len = 7};
    answer.qp_num = 5; /* not looked at: the id has a queue pair */
    SUCCEEDS(rdma_accept(asked, &answer));
    CHECK("V135", rdma_accept(asked, &answer) == -1 && errno == EINVAL, "twice: errno %d", errno);
    event = next(RDMA_CM_EVENT_ESTABLISHED, 0);
    struct rdma_ud_param ud = event->param.ud;
    CHECK("V135",
          event->id == id && ud.qp_num == asked->qp->qp_num && ud.qkey == KEY &&
              ud.private_data_len == 136 && !strcmp(ud.private_data, "answer") &&
              zeros(ud.private_data, 7, 136),
          "number %x key %x, %u bytes", ud.qp_num, ud.qkey, ud.private_data_len);
    CHECK("V135", ud.ah_attr.is_global && ud.ah_attr.port_num == 1 && ud.ah_attr.grh.hop_limit == 64,
          "hop limit %u", ud.ah_attr.grh.hop_limit);
    struct ibv_ah *ah = MADE(ibv_create_ah(id->pd, &ud.ah_attr));
    SUCCEEDS(rdma_ack_cm_event(event));
    nothing(); /* the side that accepts has no event of it */

    struct ibv_mr *to = MADE(ibv_reg_mr(asked->pd, room[0], 256, IBV_ACCESS_LOCAL_WRITE));
    struct ibv_mr *from = MADE(ibv_reg_mr(id->pd, room[1], 256, 0));
    struct ibv_sge s = {(uintptr_t)room[0], 256, to->lkey};
    struct ibv_recv_wr r = {.wr_id = 1, .sg_list = &s, .num_sge = 1}, *badr;
    SUCCEEDS(ibv_post_recv(asked->qp, &r, &badr));
    strcpy(room[1], "datagram");
    struct ibv_sge t = {(uintptr_t)room[1], 9, from->lkey};
    struct ibv_send_wr w = {
        .wr_id = 2, .sg_list = &t, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = SIG},
                       *bad;
    w.wr.ud.ah = ah;
    w.wr.ud.remote_qpn = ud.qp_num;
    w.wr.ud.remote_qkey = ud.qkey;
    SUCCEEDS(ibv_post_send(id->qp, &w, &bad));
    EXPECT_WC("V135", id->send_cq, 2, IBV_WC_SUCCESS);
    struct ibv_wc c = EXPECT_WC("V135", asked->recv_cq, 1, IBV_WC_SUCCESS);
    CHECK("V135", c.byte_len == GRH + 9 && !strcmp(room[0] + GRH, "datagram"), "%u bytes", c.byte_len);
    CHECK("V135", rdma_disconnect(id) == -1 && errno == EINVAL, "disconnect: errno %d", errno);
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_dereg_mr(to));
    SUCCEEDS(ibv_dereg_mr(from));
    rdma_destroy_qp(asked);
    SUCCEEDS(rdma_destroy_id(asked));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
    nothing();
}

/* By the program, by destroying the id, by an answer that is too long, and with its event unread. */
static void rejected(void) {
    static char words[137] = "long";
    struct rdma_conn_param answer = {.private_data = words, .private_data_len = sizeof words, .qp_num = 5};
    for (int how = 0; how < 4; how++) {
        struct rdma_cm_id *id = resolved(port), *asked = NULL;
        SUCCEEDS(rdma_connect(id, NULL));
        struct pollfd fd = {channel->fd, POLLIN, 0};
        CHECK("V135", poll(&fd, 1, HANG) == 1, "no request");
        if (how < 3) {
            struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
            asked = event->id;
            SUCCEEDS(rdma_ack_cm_event(event));
        }
        switch (how) {
        case 0:
            SUCCEEDS(rdma_reject(asked, "no", 3));
            CHECK("V135", rdma_accept(asked, NULL) == -1 && errno == EINVAL, "errno %d", errno);
            break;
        case 1:
            SUCCEEDS(rdma_destroy_id(asked));
            break;
        case 2:
            CHECK("V124", rdma_accept(asked, &answer) == -1 && errno == EINVAL, "errno %d", errno);
            break;
        default:
            SUCCEEDS(rdma_destroy_id(listener));
        }
        struct rdma_cm_event *event = next(RDMA_CM_EVENT_REJECTED, 28);
        CHECK("V135", event->id == id, "another id");
        if (how == 0)
            CHECK("V125",
                  event->param.ud.private_data_len == 148 &&
                      !strcmp(event->param.ud.private_data, "no"),
                  "%u bytes", event->param.ud.private_data_len);
        SUCCEEDS(rdma_ack_cm_event(event));
        if (how == 0 || how == 2)
            SUCCEEDS(rdma_destroy_id(asked));
        SUCCEEDS(rdma_destroy_id(id));
    }
}
static void listens(void) {
    struct sockaddr_in at = loopback(0);
    listener = new_id();
    SUCCEEDS(rdma_bind_addr(listener, (void *)&at));
    SUCCEEDS(rdma_listen(listener, 4));
    port = ntohs(rdma_get_src_port(listener));
    CHECK("V113", port != 0, "port %d", port);
}

static int plain(int *at) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = loopback(0);
    SUCCEEDS(bind(fd, (void *)&any, sizeof any));
    socklen_t length = sizeof any;
    SUCCEEDS(getsockname(fd, (void *)&any, &length));
    *at = ntohs(any.sin_port);
    return fd;
}
#define QUESTION 200 /* bytes of each, which is more than any answer has */

/* A question with these random bytes and private data. */
static void question_of(unsigned char *question, const char *random, const char *data) {
    memset(question, 0, QUESTION);
    memcpy(question, "TVSR\2\1", 6);
    question[7] = strlen(data);
    memcpy(question + 8, random, 8);
    memcpy(question + 20, data, strlen(data));
}
static void ask(int fd, const char *random, const char *data) {
    unsigned char question[QUESTION];
    struct sockaddr_in to = loopback(port);
    question_of(question, random, data);
    sendto(fd, question, QUESTION, 0, (void *)&to, sizeof to);
}

/* A peer that says nothing hears the question again and again, and is given up. */
static void silent(void) {
    int at, fd = plain(&at);
    struct rdma_cm_id *id = resolved(at);
    double begun = now();
    SUCCEEDS(rdma_connect(id, NULL));
    SUCCEEDS(rdma_ack_cm_event(next(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT)));
    CHECK("V135", now() - begun >= 5, "given up after %.1f s", now() - begun);
    char first[256], again[256];
    ssize_t length = recv(fd, first, sizeof first, MSG_DONTWAIT);
    CHECK("V135", length == QUESTION && !memcmp(first, "TVSR\2\1\0\0", 8), "%zd bytes", length);
    int repeated = 0;
    while (recv(fd, again, sizeof again, MSG_DONTWAIT) == length && !memcmp(first, again, length))
        repeated++;
    CHECK("V135", repeated >= 3, "repeated %d times", repeated);
    SUCCEEDS(rdma_destroy_id(id));
    close(fd);
}
/* Only the peer that was asked can answer, and only this question. */
static void forged(void) {
    int at, other_at, fd = plain(&at), other = plain(&other_at);
    struct rdma_cm_id *id = resolved(at);
    SUCCEEDS(rdma_connect(id, NULL));
    unsigned char question[256], answer[28] = "TVSR\2\2";
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    ssize_t length = recvfrom(fd, question, sizeof question, 0, (void *)&from, &size);
    CHECK("V135", length == QUESTION, "%zd bytes", length);
    memcpy(answer + 8, question + 8, 8);
    uint32_t words[3] = {0, htonl(0x222222), htonl(9)};
    memcpy(answer + 16, words, 12);
    sendto(other, answer, 28, 0, (void *)&from, size); /* another port */
    answer[8] ^= 1;
    sendto(fd, answer, 28, 0, (void *)&from, size); /* another question */
    sendto(fd, answer, 27, 0, (void *)&from, size); /* cut short */
    answer[8] ^= 1;
    words[1] = htonl(0x111111);
    memcpy(answer + 16, words, 12);
    sendto(fd, answer, 28, 0, (void *)&from, size);
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_ESTABLISHED, 0);
    CHECK("V135", event->param.ud.qp_num == 0x111111 && event->param.ud.qkey == 9, "number %x",
          event->param.ud.qp_num);
    SUCCEEDS(rdma_ack_cm_event(event));
    sendto(fd, answer, 28, 0, (void *)&from, size); /* once more */
    SUCCEEDS(rdma_destroy_id(id));
    nothing();
    close(fd);
    close(other);
}
/* A question that is repeated is one request, and has one answer. */
static void repeated(void) {
    int at, fd = plain(&at);
    unsigned char question[QUESTION], answer[2][256];
    struct sockaddr_in to = loopback(port);
    for (int i = 0; i < 3; i++)
        ask(fd, "abcdefgh", "hi");
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *asked = event->id;
    CHECK("V135", !memcmp(event->param.ud.private_data, "hi", 2), "private data");
    SUCCEEDS(rdma_ack_cm_event(event));
    struct rdma_conn_param param = {.qp_num = 0x123456, .private_data = "yes", .private_data_len = 3};
    SUCCEEDS(rdma_accept(asked, &param));
    ssize_t length = recv(fd, answer[0], 256, 0);
    CHECK("V135", length == 31 && !memcmp(answer[0], "TVSR\2\2\0\3abcdefgh\0\0\0\0\0\x12\x34\x56\1\x23\x45\x67yes", 31),
          "%zd bytes", length);
    SUCCEEDS(rdma_destroy_id(asked)); /* the listener remembers */
    ask(fd, "abcdefgh", "hi");
    CHECK("V135", recv(fd, answer[1], 256, 0) == length && !memcmp(answer[0], answer[1], length),
          "another answer");
    nothing();
    question_of(question, "shorter", "hi");
    sendto(fd, question, QUESTION - 1, 0, (void *)&to, sizeof to); /* an answer could be longer */
    ask(fd, "xbcdefgh", "hi");                                     /* the next question */
    event = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    asked = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_destroy_id(asked));
    nothing();
    close(fd);
}

/* Fetch the next Request; whether its private data begins with `data`, and then reject it. */
static bool request_is(const char *data) {
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *asked = event->id;
    bool is = !strncmp(event->param.ud.private_data, data, strlen(data));
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_reject(asked, NULL, 0));
    SUCCEEDS(rdma_destroy_id(asked));
    return is;
}
static int to_child[2], to_parent[2];

/* Wait for the other process, or let it go on. */
static void await(int *from) {
    char byte;
    CHECK("V135", read(from[0], &byte, 1) == 1, "the other process has ended");
}
static void go_on(int *to) {
    CHECK("V135", write(to[1], "", 1) == 1, "the other process has ended");
}

/* Another process, another user's if this one is root's, asks and asks and reads nothing. */
#define SOCKETS 200
#define FLOOD 4200
static void hostile(void) {
    if (geteuid() == 0)
        SUCCEEDS(setuid(54321));
    SUCCEEDS(prctl(PR_SET_PDEATHSIG, SIGKILL)); /* a parent whose check fails just ends */
    int at, fd[SOCKETS], smallest = 1;
    for (int i = 0; i < SOCKETS; i++) {
        fd[i] = plain(&at);
        setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &smallest, sizeof smallest);
        ask(fd[i], "abcdefgh", "hostile");
    }
    go_on(to_parent);
    await(to_child); /* each has its answer, in a buffer that holds no other */
    for (int i = 0; i < SOCKETS; i++)
        ask(fd[i], "abcdefgh", "hostile");
    go_on(to_parent);
    await(to_child);
    int flood = plain(&at);
    for (int i = 0; i < 3 * FLOOD; i++) { /* again: the system may have dropped some */
        char random[9];
        snprintf(random, sizeof random, "%08d", i % FLOOD);
        ask(flood, random, "hostile");
        if (i % 100 == 0)
            usleep(1000);
    }
    go_on(to_parent);
    await(to_child);
}
static void honest(int most) {
    struct rdma_event_channel *requests = channel, *own = MADE(rdma_create_event_channel());
    channel = own;
    struct rdma_cm_id *id = resolved(port);
    struct rdma_conn_param param = {.private_data = "honest", .private_data_len = 6};
    SUCCEEDS(rdma_connect(id, &param));
    channel = requests;
    int others = 0;
    while (!request_is("honest"))
        others++;
    CHECK("V135", others <= most, "behind %d others", others);
    channel = own;
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_REJECTED, 28);
    CHECK("V135", event->id == id, "another id");
    SUCCEEDS(rdma_ack_cm_event(event));
    SUCCEEDS(rdma_destroy_id(id));
    channel = requests;
    rdma_destroy_event_channel(own);
}
static void beside_a_hostile_process(void) {
    SUCCEEDS(pipe(to_child));
    SUCCEEDS(pipe(to_parent));
    listens();
    pid_t child = fork();
    if (child == 0) {
        hostile();
        _exit(0);
    }
    await(to_parent);
    for (int i = 0; i < SOCKETS; i++)
        CHECK("V135", request_is("hostile"), "request %d", i);
    go_on(to_child);
    await(to_parent);
    honest(0); /* behind 200 answers that do not fit */
    go_on(to_child);
    await(to_parent);
    honest(3 * FLOOD); /* whose sender has no more than its share */
    go_on(to_child);
    int status;
    CHECK("V135", waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    SUCCEEDS(rdma_destroy_id(listener));
}

int main(void) {
    channel = MADE(rdma_create_event_channel());
    listens();
    ports();
    whole();
    repeated();
    forged();
    rejected(); /* the listener is gone */
    listens();
    whole();
    silent();
    SUCCEEDS(rdma_destroy_id(listener));
    beside_a_hostile_process();
    rdma_destroy_event_channel(channel);
    return finish();
}
