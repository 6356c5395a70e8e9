/* Ports of rdma_cm beside those of TCP, the order of events between connections, listeners that change their
 * channel, queue pairs that the program has made itself, addresses that are local to a link. */
#include "ids.h"
#include "processes.h"
#include <ifaddrs.h>
#include <net/if.h>

/* A TCP socket of the program's own. */
static int tcp(int number, bool listens) {
    struct sockaddr_in at = loopback(number);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (void *)&at, sizeof at) || (listens && listen(fd, 8))) {
        close(fd);
        return -1;
    }
    return fd;
}
static int number_of(int fd) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    SUCCEEDS(getsockname(fd, (void *)&at, &length));
    return ntohs(at.sin_port);
}
/* V112: a program listens at one number with a TCP socket and with rdma_cm, and each is found. */
static void beside_a_tcp_socket(void) {
    for (int late = 0; late < 2; late++) {
        int fd = MADE(tcp(0, !late)), at = number_of(fd), on = 1;
        listener = bound(theirs, at);
        if (late) /* it begins to listen behind the bind of the id */
            SUCCEEDS(listen(fd, 8));
        SUCCEEDS(rdma_listen(listener, 8));
        port = ntohs(rdma_get_src_port(listener));
        CHECK("V112", port == at, "port %d, wanted %d", port, at);
        struct rdma_cm_id *active, *passive = connected(&active);
        CHECK("V112", ntohs(rdma_get_src_port(passive)) == at, "port %d of the passive side",
              ntohs(rdma_get_src_port(passive)));
        CHECK("V112", ntohs(rdma_get_dst_port(active)) == at, "port %d of the active side",
              ntohs(rdma_get_dst_port(active)));
        part(active, passive);
        struct sockaddr_in to = loopback(at);
        int client = socket(AF_INET, SOCK_STREAM, 0);
        SUCCEEDS(connect(client, (void *)&to, sizeof to));
        int server = accept(fd, NULL, NULL);
        CHECK("V112", server >= 0 && write(client, "x", 1) == 1 && read(server, &on, 1) == 1, "TCP");
        close(server), close(client);
        /* The second name ends with the id: nothing listens for rdma_cm then. */
        SUCCEEDS(rdma_destroy_id(listener));
        close(fd);
        open_listener(at);
        passive = connected(&active);
        part(active, passive);
        SUCCEEDS(rdma_destroy_id(listener));
    }
}
/* The port space of the ids below. */
static enum rdma_port_space space = RDMA_PS_TCP;
/* V112: a port is one id's. The second bind fails, whoever binds, and the port is free with the first. */
static int binds(struct rdma_event_channel *channel, uint32_t address, int number, bool shares) {
    struct rdma_cm_id *id;
    int on = 1;
    struct sockaddr_in at = loopback(number);
    at.sin_addr.s_addr = htonl(address);
    SUCCEEDS(rdma_create_id(channel, &id, NULL, space));
    if (shares)
        SUCCEEDS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    int error = rdma_bind_addr(id, (void *)&at) ? errno : 0;
    SUCCEEDS(rdma_destroy_id(id));
    return error;
}
/* V112: ids of every address, and two that share theirs; `beside`: a TCP socket that listens. */
static void shared(bool beside) {
    int fd = MADE(tcp(0, beside)), at = number_of(fd);
    struct rdma_cm_id *every, *second_of_every;
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(at)};
    SUCCEEDS(rdma_create_id(theirs, &every, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(every, (void *)&any));
    CHECK("V112", binds(theirs, INADDR_LOOPBACK, at, false) == EADDRNOTAVAIL,
          "one of every address");
    SUCCEEDS(rdma_destroy_id(every));
    /* Two that share it. */
    int on = 1;
    SUCCEEDS(rdma_create_id(theirs, &every, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_set_option(every, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    SUCCEEDS(rdma_bind_addr(every, (void *)&any));
    CHECK("V112", binds(theirs, INADDR_ANY, at, true) == 0, "two that share");
    CHECK("V112", binds(theirs, INADDR_ANY, at, false) == EADDRNOTAVAIL, "one that does not share");
    CHECK("V112", binds(theirs, INADDR_LOOPBACK, at, false) == EADDRNOTAVAIL, "nor there");
    SUCCEEDS(rdma_create_id(theirs, &second_of_every, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_set_option(second_of_every, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    SUCCEEDS(rdma_bind_addr(second_of_every, (void *)&any));
    /* Neither listens while the other has the port, and both share on. */
    FAILS("V112", ERROR(rdma_listen(every, 1)), EADDRNOTAVAIL);
    FAILS("V112", ERROR(rdma_listen(second_of_every, 1)), EADDRNOTAVAIL);
    CHECK("V112", binds(theirs, INADDR_ANY, at, true) == 0, "a third that shares");
    SUCCEEDS(rdma_destroy_id(every));
    SUCCEEDS(rdma_listen(second_of_every, 1));
    CHECK("V112", binds(theirs, INADDR_ANY, at, true) == EADDRNOTAVAIL, "one that listens shares no more");
    CHECK("V112", binds(theirs, INADDR_LOOPBACK, at, true) == EADDRNOTAVAIL, "nor there");
    SUCCEEDS(rdma_destroy_id(second_of_every));
    CHECK("V112", binds(theirs, INADDR_ANY, at, false) == 0, "the port is free again");
    close(fd);
}
static void bound_once(void) {
    for (int listens = 0; listens < 2; listens++) {
        struct rdma_cm_id *first;
        struct sockaddr_in any = loopback(0);
        SUCCEEDS(rdma_create_id(theirs, &first, NULL, space));
        SUCCEEDS(rdma_bind_addr(first, (void *)&any));
        int at = ntohs(rdma_get_src_port(first));
        CHECK("V112", at != 0, "the port of an id that is bound");
        if (listens)
            SUCCEEDS(rdma_listen(first, 1));
        CHECK("V112", binds(theirs, INADDR_LOOPBACK, at, false) == EADDRINUSE, "the same address");
        CHECK("V112", binds(theirs, INADDR_ANY, at, false) == EADDRNOTAVAIL, "every address");
        CHECK("V112", binds(theirs, INADDR_LOOPBACK + 1, at, false) == 0, "another address");
        pid_t other = fork();
        if (!other) {
            struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
            _exit(binds(channel, INADDR_LOOPBACK, at, false) == EADDRINUSE ? 0 : 1);
        }
        int status;
        waitpid(other, &status, 0);
        CHECK("V112", status == 0, "another process: status %x", status);
        SUCCEEDS(rdma_destroy_id(first));
        CHECK("V112", binds(theirs, INADDR_ANY, at, false) == 0, "the port is free again");
    }
}
/* V112: what a second id hears where addresses overlap; 0: it has the port. */
static int second(int family, bool any, bool only, int then_family, bool then_any) {
    struct rdma_cm_id *first, *then;
    struct sockaddr_in at = loopback(0), then_at;
    struct sockaddr_in6 all = {.sin6_family = AF_INET6};
    if (any)
        at.sin_addr.s_addr = INADDR_ANY;
    SUCCEEDS(rdma_create_id(theirs, &first, NULL, space));
    SUCCEEDS(rdma_create_id(theirs, &then, NULL, space));
    int one = only;
    SUCCEEDS(rdma_set_option(first, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one));
    SUCCEEDS(rdma_bind_addr(first, family == AF_INET ? (void *)&at : (void *)&all));
    then_at = loopback(ntohs(rdma_get_src_port(first)));
    all.sin6_port = then_at.sin_port;
    if (then_any)
        then_at.sin_addr.s_addr = INADDR_ANY;
    int error = rdma_bind_addr(then, then_family == AF_INET ? (void *)&then_at : (void *)&all) ? errno : 0;
    SUCCEEDS(rdma_destroy_id(then));
    SUCCEEDS(rdma_destroy_id(first));
    return error;
}
static void overlaps(void) {
    CHECK("V112", second(AF_INET, false, false, AF_INET, false) == EADDRINUSE, "EADDRINUSE was due");
    CHECK("V112", second(AF_INET, false, false, AF_INET, true) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET, true, false, AF_INET, false) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET, true, false, AF_INET, true) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET, true, false, AF_INET6, true) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET6, true, false, AF_INET, true) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET6, true, false, AF_INET, false) == EADDRNOTAVAIL, "EADDRNOTAVAIL was due");
    CHECK("V112", second(AF_INET6, true, true, AF_INET, true) == 0, "0 was due");
    CHECK("V112", second(AF_INET6, true, true, AF_INET, false) == 0, "0 was due");
    /* An id at one address of IPv6, which is of both families by default, and one of every address of IPv4. */
    struct rdma_cm_id *one, *every;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    SUCCEEDS(rdma_create_id(theirs, &one, NULL, space));
    if (rdma_bind_addr(one, (void *)&at)) {
        printf("addresses of IPv6 are SKIPPED: this host has none\n");
        SUCCEEDS(rdma_destroy_id(one));
        return;
    }
    int number = ntohs(rdma_get_src_port(one)), only = 1;
    CHECK("V112", binds(theirs, INADDR_ANY, number, false) == EADDRNOTAVAIL, "beside one of both families");
    CHECK("V112", binds(theirs, INADDR_LOOPBACK, number, false) == 0, "beside another address");
    SUCCEEDS(rdma_destroy_id(one));
    SUCCEEDS(rdma_create_id(theirs, &every, NULL, space));
    struct sockaddr_in any = {.sin_family = AF_INET};
    SUCCEEDS(rdma_bind_addr(every, (void *)&any));
    at.sin6_port = rdma_get_src_port(every);
    SUCCEEDS(rdma_create_id(theirs, &one, NULL, space));
    FAILS("V112", ERROR(rdma_bind_addr(one, (void *)&at)), EADDRNOTAVAIL);
    SUCCEEDS(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only));
    SUCCEEDS(rdma_bind_addr(one, (void *)&at));
    SUCCEEDS(rdma_destroy_id(one));
    SUCCEEDS(rdma_destroy_id(every));
}
/* V120: a client connects once its last connection is established; the server hears of them in this order. */
enum { CONNECTIONS = 60 };
static void connects_often(void) {
    ours = MADE(rdma_create_event_channel());
    for (int at = 0; at < CONNECTIONS; at++) {
        struct rdma_cm_id *id = routed();
        give_queues(id);
        SUCCEEDS(rdma_connect(id, NULL));
        comes(ours, RDMA_CM_EVENT_ESTABLISHED);
    }
    char end;
    receive_all(&end, 1);
    exit(failures != 0);
}
static void in_order(void) {
    int ends[2], status;
    SUCCEEDS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    /* The port is known before either process has used the library. */
    int fd = tcp(0, false);
    port = number_of(fd);
    close(fd);
    pid_t client = fork();
    sock = ends[!client];
    close(ends[!!client]);
    if (!client) {
        char go;
        receive_all(&go, 1);
        connects_often();
    }
    open_channels();
    open_listener(port);
    send_all("g", 1);
    int pending = 0, early = 0;
    for (int done = 0; done < CONNECTIONS && !failures;) {
        struct pollfd ready = {theirs->fd, POLLIN, 0};
        CHECK("V120", poll(&ready, 1, HANG) == 1, "no event behind %d connections", done);
        if (failures)
            break;
        struct rdma_cm_event *event;
        SUCCEEDS(rdma_get_cm_event(theirs, &event));
        struct rdma_cm_id *id = event->id;
        int kind = event->event;
        SUCCEEDS(rdma_ack_cm_event(event));
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
            early += pending++ != 0;
            give_queues(id);
            SUCCEEDS(rdma_accept(id, NULL));
        } else {
            CHECK("V120", kind == RDMA_CM_EVENT_ESTABLISHED, "%s", rdma_event_str(kind));
            pending--, done++;
        }
    }
    CHECK("V120", early == 0, "%d requests before the ESTABLISHED of the connection before", early);
    send_all("e", 1);
    waitpid(client, &status, 0);
    CHECK("V120", status == 0, "client: %x", status);
    SUCCEEDS(rdma_destroy_id(listener));
    rdma_destroy_event_channel(ours);
    rdma_destroy_event_channel(theirs);
}
/* V118: a request that waits goes with its listener to another channel, and so do all events of its id. */
static void listeners_that_migrate(void) {
    open_listener(0);
    struct rdma_cm_id *active = routed();
    give_queues(active);
    SUCCEEDS(rdma_connect(active, NULL));
    struct pollfd ready = {theirs->fd, POLLIN, 0};
    CHECK("V118", poll(&ready, 1, HANG) == 1, "no request");
    struct rdma_event_channel *before = theirs;
    theirs = MADE(rdma_create_event_channel());
    SUCCEEDS(rdma_migrate_id(listener, theirs));
    CHECK("V118", poll(&ready, 1, 0) == 0, "an event is left on the channel before");
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *passive = event->id;
    CHECK("V118", passive->channel == theirs, "channel");
    SUCCEEDS(rdma_ack_cm_event(event));
    rdma_destroy_event_channel(before);
    give_queues(passive);
    SUCCEEDS(rdma_accept(passive, NULL));
    comes(ours, RDMA_CM_EVENT_ESTABLISHED);
    comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
    part(active, passive);
    SUCCEEDS(rdma_destroy_id(listener));
}
/* V130: a queue pair that the program made itself is the program's to move. */
static void own_queue_pairs(void) {
    for (int destroys = 0; destroys < 2; destroys++) {
        open_listener(0);
        struct rdma_cm_id *active = routed();
        give_queues(active);
        SUCCEEDS(rdma_connect(active, NULL));
        struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *passive = event->id;
        SUCCEEDS(rdma_ack_cm_event(event));
        struct ibv_pd *pd = MADE(ibv_alloc_pd(passive->verbs));
        struct ibv_cq *queue = MADE(ibv_create_cq(passive->verbs, 8, NULL, NULL, 0));
        struct ibv_qp_init_attr init = {
            .send_cq = queue, .recv_cq = queue, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
        struct ibv_qp *stranger = MADE(ibv_create_qp(pd, &init));
        struct ibv_qp *own = MADE(ibv_create_qp(pd, &init));
        for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
            struct ibv_qp_attr attr = {.qp_state = state};
            int mask;
            SUCCEEDS(rdma_init_qp_attr(passive, &attr, &mask));
            if (state == IBV_QPS_RTR) /* V128: this number leads to the connection. */
                CHECK("V128", attr.dest_qp_num == active->qp->qp_num, "%#x", attr.dest_qp_num);
            if (state < IBV_QPS_RTS) { /* The same number at another address is another queue pair. */
                struct ibv_qp_attr elsewhere = attr;
                elsewhere.ah_attr.grh.dgid.raw[15] ^= 0x40;
                SUCCEEDS(ibv_modify_qp(stranger, &elsewhere, mask));
            }
            SUCCEEDS(ibv_modify_qp(own, &attr, mask));
        }
        struct rdma_conn_param accepted = {.qp_num = own->qp_num};
        SUCCEEDS(rdma_accept(passive, &accepted));
        event = next(ours, RDMA_CM_EVENT_ESTABLISHED);
        CHECK("V128", event->param.conn.qp_num == own->qp_num, "%#x", event->param.conn.qp_num);
        SUCCEEDS(rdma_ack_cm_event(event));
        comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
        struct ibv_recv_wr receive = {.wr_id = 7}, *bad;
        SUCCEEDS(ibv_post_recv(own, &receive, &bad));
        if (destroys)
            SUCCEEDS(rdma_destroy_id(passive));
        else
            SUCCEEDS(rdma_disconnect(passive));
        comes(ours, RDMA_CM_EVENT_DISCONNECTED);
        CHECK("V130", state_of(own) == IBV_QPS_RTS, "state %d, destroyed: %d", state_of(own), destroys);
        struct ibv_wc none;
        CHECK("V130", ibv_poll_cq(queue, 1, &none) == 0, "its receive was flushed");
        qp_state(own, IBV_QPS_ERR);
        EXPECT_WC("V130", queue, 7, IBV_WC_WR_FLUSH_ERR);
        SUCCEEDS(ibv_destroy_qp(own));
        SUCCEEDS(ibv_destroy_qp(stranger));
        if (!destroys) {
            comes(theirs, RDMA_CM_EVENT_DISCONNECTED);
            SUCCEEDS(rdma_destroy_id(passive));
        }
        SUCCEEDS(ibv_destroy_cq(queue));
        SUCCEEDS(ibv_dealloc_pd(pd));
        rdma_destroy_qp(active);
        SUCCEEDS(rdma_destroy_id(active));
        SUCCEEDS(rdma_destroy_id(listener));
    }
}
/* V25, V114: addresses that are local to a link, with the interface in their scope. */
static bool link_local(struct sockaddr_in6 *at) {
    struct ifaddrs *all, *one;
    bool found = false;
    SUCCEEDS(getifaddrs(&all));
    for (one = all; one && !found; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET6 || !(one->ifa_flags & IFF_UP))
            continue;
        *at = *(struct sockaddr_in6 *)one->ifa_addr;
        found = IN6_IS_ADDR_LINKLOCAL(&at->sin6_addr);
    }
    freeifaddrs(all);
    return found;
}
static void local_to_a_link(void) {
    struct sockaddr_in6 at;
    if (!link_local(&at)) {
        printf("addresses that are local to a link are SKIPPED: no interface has one\n");
        return;
    }
    struct rdma_cm_id *id;
    struct sockaddr_in6 nowhere = at;
    nowhere.sin6_scope_id = 0;
    SUCCEEDS(rdma_create_id(theirs, &listener, NULL, RDMA_PS_TCP));
    FAILS("V114", ERROR(rdma_bind_addr(listener, (void *)&nowhere)), EINVAL);
    SUCCEEDS(rdma_bind_addr(listener, (void *)&at));
    SUCCEEDS(rdma_listen(listener, 1));
    at.sin6_port = rdma_get_src_port(listener);
    SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&at, 2000));
    comes(ours, RDMA_CM_EVENT_ADDR_RESOLVED);
    struct sockaddr_in6 *source = (void *)rdma_get_local_addr(id);
    CHECK("V114", source->sin6_scope_id == at.sin6_scope_id, "scope %u", source->sin6_scope_id);
    SUCCEEDS(rdma_resolve_route(id, 2000));
    comes(ours, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_queues(id);
    SUCCEEDS(rdma_connect(id, NULL));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *passive = event->id;
    struct sockaddr_in6 *peer = (void *)rdma_get_peer_addr(passive);
    CHECK("V114", peer->sin6_scope_id == at.sin6_scope_id, "scope %u of the peer",
          peer->sin6_scope_id);
    SUCCEEDS(rdma_ack_cm_event(event));
    give_queues(passive);
    SUCCEEDS(rdma_accept(passive, NULL));
    comes(ours, RDMA_CM_EVENT_ESTABLISHED);
    comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
    part(id, passive);
    SUCCEEDS(rdma_destroy_id(listener));
    /* Queue pairs that are connected by number, and datagrams, by the entry of such an address. */
    struct ibv_gid_entry entry;
    struct ibv_context *context = open_dev();
    int index = 0;
    while (!ibv_query_gid_ex(context, 1, index, &entry, 0) &&
           memcmp(entry.gid.raw, &at.sin6_addr, 16))
        index++;
    CHECK("V25", !memcmp(entry.gid.raw, &at.sin6_addr, 16) &&
                     entry.ndev_ifindex == at.sin6_scope_id,
          "no entry, or interface %u", entry.ndev_ifindex);
    struct end a, b;
    open_end(&a, context, ALL);
    open_end(&b, context, ALL);
    struct end *ends[] = {&a, &b};
    for (int k = 0; k < 2; k++) {
        struct ibv_qp_attr attr = a_rtr(entry.gid, ends[!k]->qp->qp_num, DEF);
        attr.ah_attr.grh.sgid_index = index;
        qp_init(ends[k]->qp, REMOTE);
        SUCCEEDS(ibv_modify_qp(ends[k]->qp, &attr, M_RTR));
        qp_rts(ends[k]->qp, DEF);
    }
    SUCCEEDS(post(&a, 1, IBV_WR_RDMA_WRITE, SIG, a.buf, 8, a.mr->lkey, (uintptr_t)b.buf, b.mr->rkey));
    EXPECT_WC("V25", a.scq, 1, IBV_WC_SUCCESS);
}
/* V62, V77: any number may be a peer's. Where no queue pair has it, requests fail when their time is up. */
static void numbers_of_nobody(void) {
    uint32_t numbers[] = {0, 17, 1024, 0x3ffff, 0xffffff, 0x12345678};
    for (unsigned at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        struct end end;
        struct tune soon = DEF;
        soon.timeout = 1;
        open_end(&end, NULL, ALL);
        qp_up(end.qp, end.gid, numbers[at], soon);
        CHECK("V62", state_of(end.qp) == IBV_QPS_RTS, "%x: state %d", numbers[at], state_of(end.qp));
        SUCCEEDS(post(&end, 1, IBV_WR_SEND, SIG, end.buf, 8, end.mr->lkey, 0, 0));
        EXPECT_WC("V77", end.scq, 1, IBV_WC_RETRY_EXC_ERR);
        CHECK("V77", state_of(end.qp) == IBV_QPS_ERR, "%x: state %d", numbers[at], state_of(end.qp));
    }
}
/* V112: an id with a port of its own connects again as soon as its last connection is over for both sides, whichever
 * side ended it: the port is the id's, and no other connection has the two addresses any more. */
static void the_same_port_again(void) {
    open_listener(0);
    struct sockaddr_in peer = loopback(port), own = loopback(0);
    for (int round = 0; round < 60; round++) {
        struct rdma_cm_id *active;
        SUCCEEDS(rdma_create_id(ours, &active, NULL, RDMA_PS_TCP));
        SUCCEEDS(rdma_resolve_addr(active, (void *)&own, (void *)&peer, 2000));
        comes(ours, RDMA_CM_EVENT_ADDR_RESOLVED);
        own.sin_port = rdma_get_src_port(active);
        SUCCEEDS(rdma_resolve_route(active, 2000));
        comes(ours, RDMA_CM_EVENT_ROUTE_RESOLVED);
        give_queues(active);
        SUCCEEDS(rdma_connect(active, NULL));
        struct pollfd news[] = {{ours->fd, POLLIN, 0}, {theirs->fd, POLLIN, 0}};
        CHECK("V112", poll(news, 2, HANG) == 1 && news[1].revents, "the connect of round %d fails", round);
        if (!news[1].revents)
            break;
        struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *passive = event->id;
        SUCCEEDS(rdma_ack_cm_event(event));
        CHECK("V112", rdma_get_dst_port(passive) == own.sin_port, "from port %d",
              ntohs(rdma_get_dst_port(passive)));
        give_queues(passive);
        SUCCEEDS(rdma_accept(passive, NULL));
        comes(ours, RDMA_CM_EVENT_ESTABLISHED);
        comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
        SUCCEEDS(rdma_disconnect(round % 2 ? passive : active));
        comes(theirs, RDMA_CM_EVENT_DISCONNECTED);
        comes(ours, RDMA_CM_EVENT_DISCONNECTED);
        part(active, passive);
    }
    SUCCEEDS(rdma_destroy_id(listener));
}

int main(void) {
    in_order(); /* forks before the library is used */
    open_channels();
    beside_a_tcp_socket();
    the_same_port_again();
    bound_once();
    shared(false);
    shared(true);
    overlaps();
    space = RDMA_PS_UDP;
    bound_once();
    overlaps();
    listeners_that_migrate();
    own_queue_pairs();
    local_to_a_link();
    numbers_of_nobody();
    return finish();
}
