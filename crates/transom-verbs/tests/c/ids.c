/* Ids of port space TCP: what they show, what their events carry, and how they end. */
#include "ids.h"
#include <netdb.h>
#include <pthread.h>

#define ROUNDS 500

/* V114: what an id shows once its address is resolved. */
static void addresses(void) {
    struct rdma_cm_id *id = routed();
    unsigned char mapped[16] = {[10] = 255, [11] = 255, [12] = 127, [15] = 1};
    CHECK("V114", id->verbs && id->pd && id->port_num == 1, "verbs %p pd %p port %d",
          (void *)id->verbs, (void *)id->pd, id->port_num);
    CHECK("V114", !memcmp(&id->route.addr.addr.ibaddr.dgid, mapped, 16), "dgid");
    CHECK("V114", !memcmp(&id->route.addr.addr.ibaddr.sgid, mapped, 16), "sgid");
    CHECK("V114", id->route.addr.addr.ibaddr.pkey == 0xffff, "pkey %x",
          id->route.addr.addr.ibaddr.pkey);
    CHECK("V114", rdma_get_src_port(id) != 0 && ntohs(rdma_get_dst_port(id)) == port, "ports %d %d",
          ntohs(rdma_get_src_port(id)), ntohs(rdma_get_dst_port(id)));
    /* A single context for all, which is the one of the list. */
    int count;
    struct ibv_context **all = MADE(rdma_get_devices(&count));
    CHECK("V39", count == 1 && all[0] == id->verbs, "%d, another context", count);
    rdma_free_devices(all);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V114: what an event tells of is there when another thread fetches the event, before the call returns
   (libiscsi's thread for events makes its queue pair in ADDR_RESOLVED). */
static void *steps_on(void *channel) {
    for (int routes = 0; routes < ROUNDS;) {
        struct rdma_cm_event *event;
        SUCCEEDS(rdma_get_cm_event(channel, &event));
        struct rdma_cm_id *id = event->id;
        int is_address = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
        if (is_address)
            CHECK("V114", id->verbs && id->pd && id->route.addr.src_addr.sa_family == AF_INET,
                  "verbs %p pd %p", (void *)id->verbs, (void *)id->pd);
        else
            CHECK("V115", id->route.num_paths == 1 && id->route.path_rec, "no path");
        SUCCEEDS(rdma_ack_cm_event(event));
        if (is_address)
            SUCCEEDS(rdma_resolve_route(id, 2000));
        else
            routes++;
    }
    return NULL;
}
static void two_threads(void) {
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    struct rdma_cm_id *ids[ROUNDS];
    struct sockaddr_in peer = loopback(port);
    pthread_t thread;
    CHECK("V114", !pthread_create(&thread, NULL, steps_on, channel), "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        SUCCEEDS(rdma_create_id(channel, &ids[round], NULL, RDMA_PS_TCP));
        SUCCEEDS(rdma_resolve_addr(ids[round], NULL, (void *)&peer, 2000));
    }
    CHECK("V114", !pthread_join(thread, NULL), "no end");
    for (int round = 0; round < ROUNDS; round++)
        SUCCEEDS(rdma_destroy_id(ids[round]));
    rdma_destroy_event_channel(channel);
}
/* V114: the id's own address and the destination are of one family. */
static void families(void) {
    struct sockaddr_in v4 = loopback(0);
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = 1};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct rdma_cm_id *id;
    SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_TCP));
    FAILS("V114", ERROR(rdma_resolve_addr(id, (void *)&v4, (void *)&v6, 2000)), EINVAL);
    SUCCEEDS(rdma_bind_addr(id, (void *)&any));
    v4.sin_port = htons(port);
    FAILS("V114", ERROR(rdma_resolve_addr(id, NULL, (void *)&v4, 2000)), EINVAL);
    SUCCEEDS(rdma_destroy_id(id));
    /* After the refusal it may be resolved. */
    id = bound(ours, 0);
    FAILS("V114", ERROR(rdma_resolve_addr(id, NULL, (void *)&v6, 2000)), EINVAL);
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&v4, 2000));
    comes(ours, RDMA_CM_EVENT_ADDR_RESOLVED);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V173: the error is that of the call inside, and what was made for a call that fails is not seen by the next. */
static void queues_of_a_failure(void) {
    struct rdma_cm_id *id = routed();
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1 << 30, 4, 1, 1, 0}};
    FAILS("V173", ERROR(rdma_create_qp(id, NULL, &init)), EINVAL);
    CHECK("V173", !id->qp && !id->send_cq && !id->recv_cq, "left behind");
    struct ibv_qp_init_attr_ex more = {.qp_type = IBV_QPT_RC,
                                       .cap = {4, 4, 1 << 20, 1, 0},
                                       .comp_mask = IBV_QP_INIT_ATTR_PD,
                                       .pd = id->pd};
    FAILS("V173", ERROR(rdma_create_qp_ex(id, &more)), EINVAL);
    CHECK("V173", !more.send_cq && !more.recv_cq, "%p %p", (void *)more.send_cq, (void *)more.recv_cq);
    more.cap.max_send_sge = 1;
    SUCCEEDS(rdma_create_qp_ex(id, &more));
    CHECK("V173", id->send_cq && id->qp->send_cq == id->send_cq, "another queue");
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V116: options that mean something to a socket or to a path, and those that there are not. A value has the
 * length of its type. */
static void options(void) {
    struct rdma_cm_id *id = routed();
    uint8_t tos = 0x88, timeout = 14;
    int on = 1;
    struct {
        int name;
        void *value;
        size_t length;
    } known[] = {{RDMA_OPTION_ID_TOS, &tos, sizeof tos},
                 {RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout},
                 {RDMA_OPTION_ID_REUSEADDR, &on, sizeof on}};
    for (unsigned at = 0; at < sizeof known / sizeof *known; at++) {
        for (size_t length = 0; length <= 8; length++) {
            errno = 0;
            int done = rdma_set_option(id, RDMA_OPTION_ID, known[at].name, known[at].value, length);
            bool fits = length == known[at].length;
            CHECK("V116", fits ? done == 0 : done == -1 && errno == EINVAL,
                  "option %d with %zu bytes: %d, errno %d", known[at].name, length, done, errno);
        }
    }
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    int mask;
    SUCCEEDS(rdma_init_qp_attr(id, &attr, &mask));
    CHECK("V116", attr.ah_attr.grh.traffic_class == 0x88, "traffic class %x",
          attr.ah_attr.grh.traffic_class);
    attr.qp_state = IBV_QPS_RTS;
    SUCCEEDS(rdma_init_qp_attr(id, &attr, &mask));
    CHECK("V116", attr.timeout == 14, "timeout %d", attr.timeout);
    /* A family is chosen before the address is used. */
    FAILS("V116", ERROR(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on)),
          EINVAL);
    FAILS("V116", ERROR(rdma_set_option(id, RDMA_OPTION_ID, 99, &on, sizeof on)), ENOSYS);
    FAILS("V116", ERROR(rdma_set_option(id, 99, 0, &on, sizeof on)), ENOSYS);
    struct ibv_path_data path = {.flags = 0};
    for (size_t length = 0; length < 2 * sizeof path; length += sizeof path - 1)
        FAILS("V116",
              ERROR(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, length)), EINVAL);
    SUCCEEDS(rdma_destroy_id(id));
    SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_UDP));
    FAILS("V116", ERROR(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1)),
          EINVAL);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V113, V131: a backlog of 0, no bind, both families. */
static bool reaches(int domain, int to) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons(to),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = loopback(to);
    int fd = socket(domain, SOCK_STREAM, 0);
    int done = domain == AF_INET ? connect(fd, (void *)&four, sizeof four)
                                 : connect(fd, (void *)&six, sizeof six);
    close(fd);
    return done == 0;
}
static void listeners(void) {
    enum { TRIES = 5 };
    for (int only = 0; only < 2; only++) {
        bool over_four = only;
        /* Where the family is IPv6 alone, a stranger may listen at a port over IPv4, but not at each. */
        for (int i = 0; i < TRIES && over_four == only; i++) {
            struct rdma_cm_id *id;
            struct sockaddr_in6 any = {.sin6_family = AF_INET6};
            SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_TCP));
            if (only)
                SUCCEEDS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only));
            SUCCEEDS(rdma_bind_addr(id, (void *)&any));
            SUCCEEDS(rdma_listen(id, 0));
            int at = ntohs(rdma_get_src_port(id));
            CHECK("V131", reaches(AF_INET6, at), "port %d over IPv6", at);
            over_four = reaches(AF_INET, at);
            SUCCEEDS(rdma_destroy_id(id));
        }
        CHECK("V131", over_four == !only, "over IPv4: %d, only IPv6: %d", over_four, only);
    }
    /* All addresses of IPv4 are no others, and those of a listener without one. */
    for (int named = 0; named < 2; named++) {
        struct rdma_cm_id *id;
        struct sockaddr_in any = {.sin_family = AF_INET};
        SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_TCP));
        if (named)
            SUCCEEDS(rdma_bind_addr(id, (void *)&any));
        SUCCEEDS(rdma_listen(id, -1));
        int at = ntohs(rdma_get_src_port(id));
        CHECK("V131", at != 0, "no port");
        CHECK("V131", rdma_get_local_addr(id)->sa_family == AF_INET, "%d",
              rdma_get_local_addr(id)->sa_family);
        CHECK("V113", reaches(AF_INET, at), "port %d over IPv4", at);
        CHECK("V113", !reaches(AF_INET6, at), "port %d over IPv6", at);
        SUCCEEDS(rdma_destroy_id(id));
    }
}
static void ask(void) {
    struct rdma_cm_id *id = routed();
    struct rdma_conn_param wanted = {.retry_count = 7};
    give_queues(id);
    SUCCEEDS(rdma_connect(id, &wanted));
}
static void is_rejected(void) {
    struct rdma_cm_event *event = next(ours, RDMA_CM_EVENT_REJECTED);
    struct rdma_cm_id *id = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V131: Requests beyond the backlog come once others are fetched, and none is rejected. */
static void backlog(void) {
    enum { BACKLOG = 2, ASKED = 3 * BACKLOG };
    struct rdma_event_channel *unread = MADE(rdma_create_event_channel());
    struct rdma_cm_id *at = bound(unread, 0), *requests[ASKED];
    int before = port;
    SUCCEEDS(rdma_listen(at, BACKLOG));
    port = ntohs(rdma_get_src_port(at));
    for (int i = 0; i < ASKED; i++)
        ask();
    for (int i = 0; i < ASKED; i++) {
        struct pollfd either[] = {{unread->fd, POLLIN, 0}, {ours->fd, POLLIN, 0}};
        poll(either, 2, HANG);
        CHECK("V131", either[0].revents & POLLIN, "request %d: a peer has an answer before it", i);
        if (!(either[0].revents & POLLIN)) {
            struct rdma_cm_event *early;
            SUCCEEDS(rdma_get_cm_event(ours, &early));
            fprintf(stderr, "request %d: %s, status %d\n", i, rdma_event_str(early->event),
                    early->status);
            exit(1);
        }
        struct rdma_cm_event *event = next(unread, RDMA_CM_EVENT_CONNECT_REQUEST);
        requests[i] = event->id;
        SUCCEEDS(rdma_ack_cm_event(event));
    }
    struct pollfd answers = {ours->fd, POLLIN, 0};
    CHECK("V131", poll(&answers, 1, 0) == 0, "an answer that the program has not given");
    for (int i = 0; i < ASKED; i++) {
        SUCCEEDS(rdma_destroy_id(requests[i]));
        is_rejected();
    }
    SUCCEEDS(rdma_destroy_id(at));
    rdma_destroy_event_channel(unread);
    port = before;
}
/* V131, of iWARP: as many Requests as the backlog wait to be fetched, and each fetch makes room for one. */
static void backlog_of_iwarp(void) {
    enum { BACKLOG = 2, FETCHED = BACKLOG + 1 };
    struct rdma_event_channel *unread = MADE(rdma_create_event_channel());
    struct rdma_cm_id *at = bound(unread, 0), *requests[FETCHED];
    int before = port;
    SUCCEEDS(rdma_listen(at, BACKLOG));
    port = ntohs(rdma_get_src_port(at));
    for (int i = 0; i <= BACKLOG; i++)
        ask();
    is_rejected();
    for (int i = 0; i < FETCHED; i++) {
        struct rdma_cm_event *event = next(unread, RDMA_CM_EVENT_CONNECT_REQUEST);
        requests[i] = event->id;
        SUCCEEDS(rdma_ack_cm_event(event));
        if (i == 0) {
            ask();
            ask();
            is_rejected();
        }
    }
    struct pollfd more = {unread->fd, POLLIN, 0};
    CHECK("V131", poll(&more, 1, 0) == 0, "a Request that was turned away");
    for (int i = 0; i < FETCHED; i++) {
        SUCCEEDS(rdma_destroy_id(requests[i]));
        is_rejected();
    }
    SUCCEEDS(rdma_destroy_id(at));
    rdma_destroy_event_channel(unread);
    port = before;
}
/* V121, V122, V126: a connection, with the order of its events, and a receive before one is fetched. */
static void connects(void) {
    struct rdma_cm_id *id = routed();
    give_queues(id);
    FAILS("V173", ERROR(rdma_notify(id, IBV_EVENT_COMM_EST)), EINVAL);
    struct rdma_conn_param wanted = {.responder_resources = 3,
                                     .initiator_depth = 5,
                                     .retry_count = 15,
                                     .rnr_retry_count = 2};
    struct rdma_conn_param beyond = wanted;
    beyond.initiator_depth = 17;
    FAILS("V126", rdma_connect(id, &beyond) == -1 ? errno : 0, EINVAL);
    SUCCEEDS(rdma_connect(id, &wanted));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *peer = event->id;
    struct ibv_qp_attr early = {.qp_state = IBV_QPS_RTR};
    int mask;
    FAILS("V127", ERROR(rdma_init_qp_attr(id, &early, &mask)), EINVAL);
    SUCCEEDS(rdma_init_qp_attr(peer, &early, &mask));
    /* The numbers are those of the queue pairs, over both paths. */
    CHECK("V128", event->param.conn.qp_num == id->qp->qp_num, "%#x", event->param.conn.qp_num);
    CHECK("V128", early.dest_qp_num == id->qp->qp_num, "%#x", early.dest_qp_num);
    CHECK("V121", event->listen_id == listener && peer != listener, "listener");
    CHECK("V121", peer->context == listener->context && peer->channel == theirs, "context %p",
          peer->context);
    struct rdma_conn_param *seen = &event->param.conn;
    CHECK("V126", seen->initiator_depth == 3 && seen->responder_resources == 5, "%d %d",
          seen->initiator_depth, seen->responder_resources);
    CHECK("V126", seen->retry_count == 7 && seen->rnr_retry_count == 2 &&
                      !seen->flow_control && !seen->srq,
          "%d %d %d %d", seen->retry_count, seen->rnr_retry_count, seen->flow_control, seen->srq);
    SUCCEEDS(rdma_ack_cm_event(event));
    give_queues(peer);
    struct ibv_recv_wr receive = {.wr_id = 7}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 8, .opcode = IBV_WR_SEND, .send_flags = SIG}, *bad_send;
    SUCCEEDS(ibv_post_recv(peer->qp, &receive, &bad_receive));
    struct rdma_conn_param given = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 1, .rnr_retry_count = 5};
    FAILS("V173", ERROR(rdma_notify(peer, IBV_EVENT_COMM_EST)), EINVAL);
    SUCCEEDS(rdma_accept(peer, &given));
    event = next(ours, RDMA_CM_EVENT_ESTABLISHED);
    FAILS("V173", ERROR(rdma_notify(id, IBV_EVENT_COMM_EST)), EISCONN);
    FAILS("V173", ERROR(rdma_notify(id, IBV_EVENT_CQ_ERR)), EINVAL);
    CHECK("V126", event->param.conn.rnr_retry_count == 5, "%d", event->param.conn.rnr_retry_count);
    CHECK("V128", event->param.conn.qp_num == peer->qp->qp_num, "%#x", event->param.conn.qp_num);
    SUCCEEDS(rdma_ack_cm_event(event));
    struct rdma_cm_id *sides[] = {id, peer};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        /* Each count is for the queue pair at the other end. */
        int other = i ? wanted.rnr_retry_count : given.rnr_retry_count;
        SUCCEEDS(ibv_query_qp(sides[i]->qp, &attr, IBV_QP_RNR_RETRY | IBV_QP_DEST_QPN, &init));
        CHECK("V126", attr.rnr_retry == other, "side %d: %d", i, attr.rnr_retry);
        CHECK("V128", attr.dest_qp_num == sides[!i]->qp->qp_num, "side %d: %#x", i,
              attr.dest_qp_num);
    }
    SUCCEEDS(ibv_post_send(id->qp, &send, &bad_send));
    EXPECT_WC("V122", peer->recv_cq, 7, IBV_WC_SUCCESS);
    EXPECT_WC("V122", id->send_cq, 8, IBV_WC_SUCCESS);
    event = next(theirs, RDMA_CM_EVENT_ESTABLISHED);
    seen = &event->param.conn;
    CHECK("V126", !seen->private_data && !seen->initiator_depth && !seen->responder_resources &&
                      !seen->retry_count && !seen->rnr_retry_count && !seen->qp_num,
          "ESTABLISHED has parameters for the side that has answered");
    SUCCEEDS(rdma_ack_cm_event(event));
    /* V119: what ends with an id is seen by the peer; the queue pair does not end with it. */
    rdma_destroy_qp(peer);
    SUCCEEDS(rdma_destroy_id(peer));
    comes(ours, RDMA_CM_EVENT_DISCONNECTED);
    CHECK("V130", state_of(id->qp) == IBV_QPS_RTS, "state %d", state_of(id->qp));
    struct ibv_qp *kept = id->qp;
    SUCCEEDS(rdma_disconnect(id));
    CHECK("V130", state_of(kept) == IBV_QPS_ERR, "state %d", state_of(kept));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V124: more private data than an answer has room for: the peer is rejected, and the queue pair in error. */
static void answers_too_long(void) {
    struct rdma_cm_id *id = routed();
    give_queues(id);
    SUCCEEDS(rdma_connect(id, NULL));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *peer = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    give_queues(peer);
    static char words[197] = "long";
    struct rdma_conn_param answer = {.responder_resources = 17};
    FAILS("V126", ERROR(rdma_accept(peer, &answer)), EINVAL); /* nothing has happened */
    answer = (struct rdma_conn_param){.private_data = words, .private_data_len = sizeof words};
    FAILS("V124", ERROR(rdma_accept(peer, &answer)), EINVAL);
    CHECK("V124", state_of(peer->qp) == IBV_QPS_ERR, "state %d", state_of(peer->qp));
    event = next(ours, RDMA_CM_EVENT_REJECTED);
    CHECK("V124", event->id == id && event->status == 28, "status %d", event->status);
    SUCCEEDS(rdma_ack_cm_event(event));
    FAILS("V124", ERROR(rdma_accept(peer, NULL)), EINVAL);
    rdma_destroy_qp(peer);
    SUCCEEDS(rdma_destroy_id(peer));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
}
/* V130: a disconnect before the connection: the queue pair is in error, and the connection comes to nothing. */
static void parts_early(void) {
    for (int passive = 0; passive < 2; passive++) {
        struct rdma_cm_id *id = routed();
        give_queues(id);
        FAILS("V130", ERROR(rdma_disconnect(id)), EINVAL);
        SUCCEEDS(rdma_connect(id, NULL));
        struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
        struct rdma_cm_id *peer = event->id;
        SUCCEEDS(rdma_ack_cm_event(event));
        give_queues(peer);
        struct rdma_cm_id *side = passive ? peer : id;
        SUCCEEDS(rdma_disconnect(side));
        CHECK("V130", state_of(side->qp) == IBV_QPS_ERR, "state %d", state_of(side->qp));
        if (passive) {
            FAILS("V130", ERROR(rdma_accept(peer, NULL)), EINVAL);
            SUCCEEDS(rdma_reject(peer, NULL, 0));
            comes(ours, RDMA_CM_EVENT_REJECTED);
        } else {
            SUCCEEDS(rdma_accept(peer, NULL));
            comes(ours, RDMA_CM_EVENT_CONNECT_ERROR);
        }
        rdma_destroy_qp(peer);
        SUCCEEDS(rdma_destroy_id(peer));
        rdma_destroy_qp(id);
        SUCCEEDS(rdma_destroy_id(id));
    }
}
/* V119: destroying waits for events that were fetched, and drops the others. */
static int destroyed;
static void *destroys(void *id) {
    SUCCEEDS(rdma_destroy_id(id));
    __atomic_store_n(&destroyed, 1, __ATOMIC_RELEASE);
    return NULL;
}
static void ends(void) {
    struct rdma_cm_id *id = routed();
    give_queues(id);
    SUCCEEDS(rdma_connect(id, NULL));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *peer = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    /* An unanswered request whose id ends is rejected. */
    SUCCEEDS(rdma_destroy_id(peer));
    event = next(ours, RDMA_CM_EVENT_REJECTED);
    CHECK("V119", event->id == id && event->status == 28, "status %d", event->status);
    pthread_t thread;
    rdma_destroy_qp(id);
    pthread_create(&thread, NULL, destroys, id);
    usleep(100000); /* time to fail in */
    CHECK("V119", !__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), "an event was not acknowledged");
    SUCCEEDS(rdma_ack_cm_event(event));
    pthread_join(thread, NULL);
    /* An event that nobody has fetched goes with its id. */
    struct sockaddr_in address = loopback(port);
    SUCCEEDS(rdma_create_id(ours, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&address, 2000));
    struct pollfd fd = {ours->fd, POLLIN, 0};
    CHECK("V119", poll(&fd, 1, HANG) == 1, "no event");
    SUCCEEDS(rdma_destroy_id(id));
    CHECK("V119", poll(&fd, 1, 0) == 0, "an event of an id that there is not");
}
static void nulls(void) {
    struct rdma_cm_event *event;
    FAILS("V120", rdma_get_cm_event(ours, NULL) == -1 ? errno : 0, EINVAL);
    FAILS("V120", rdma_get_cm_event(NULL, &event) == -1 ? errno : 0, EINVAL);
    FAILS("V120", rdma_ack_cm_event(NULL) == -1 ? errno : 0, EINVAL);
    struct rdma_addrinfo *found = NULL;
    FAILS("V117", ERROR(rdma_getaddrinfo(NULL, NULL, NULL, &found)), EINVAL);
    CHECK("V117", !found, "a result");
}
/* V117: what a name has brought, and else what the hints say, as librdmacm's addrinfo.c has it: flags but for the passive
 * one are no part of the answer, and a type of queue pair that its port space does not have is no kind of socket. The
 * port space of InfiniBand is answered by those of IP. */
static void address_information(void) {
    struct sockaddr_in at = loopback(7471);
    struct rdma_addrinfo none = {0}, *found;
    const struct {
        const char *node;
        struct rdma_addrinfo hints;
        int result;
        struct rdma_addrinfo wanted;
    } of[] = {
        {"127.0.0.1", {0}, 0, {.ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP}},
        {"::1", {.ai_flags = RAI_NUMERICHOST | RAI_NOROUTE, .ai_qp_type = IBV_QPT_UD}, 0,
         {.ai_family = AF_INET6, .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_UDP}},
        {"127.0.0.1", {.ai_port_space = RDMA_PS_UDP}, 0,
         {.ai_family = AF_INET, .ai_qp_type = IBV_QPT_UD, .ai_port_space = RDMA_PS_UDP}},
        {"127.0.0.1", {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_IB}, 0,
         {.ai_flags = RAI_PASSIVE, .ai_family = AF_INET, .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP}},
        {"127.0.0.1", {.ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_UDP}, EAI_SOCKTYPE, {0}},
        {"localhost", {.ai_flags = RAI_NUMERICHOST}, EAI_NONAME, {0}},
        {"::1", {.ai_flags = RAI_FAMILY | RAI_NUMERICHOST, .ai_family = AF_INET}, EAI_ADDRFAMILY, {0}},
        {NULL, {.ai_flags = RAI_PASSIVE | RAI_NOROUTE}, 0, {.ai_flags = RAI_PASSIVE | RAI_NOROUTE}},
        {NULL, {.ai_port_space = RDMA_PS_TCP}, 0, {.ai_port_space = RDMA_PS_TCP}},
    };
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++) {
        int given = rdma_getaddrinfo(of[i].node, of[i].node ? "7471" : NULL, &of[i].hints, &found);
        CHECK("V117", given == of[i].result, "%u: %d, wanted %d", i, given, of[i].result);
        if (given)
            continue;
        const struct rdma_addrinfo *w = &of[i].wanted;
        CHECK("V117", found->ai_flags == w->ai_flags && found->ai_family == w->ai_family &&
                  found->ai_qp_type == w->ai_qp_type && found->ai_port_space == w->ai_port_space && !found->ai_next,
              "%u: flags %x, family %d, type %d, space %x", i, found->ai_flags, found->ai_family, found->ai_qp_type,
              found->ai_port_space);
        bool passive = w->ai_flags & RAI_PASSIVE;
        CHECK("V117", !!found->ai_src_len == (passive && of[i].node), "%u: a source", i);
        CHECK("V117", !!found->ai_dst_len == (!passive && of[i].node), "%u: a peer", i);
        rdma_freeaddrinfo(found);
    }
    /* Addresses of the hints are those of the answer, and tell no family. */
    none.ai_src_addr = (void *)&at;
    none.ai_src_len = sizeof at;
    SUCCEEDS(rdma_getaddrinfo(NULL, NULL, &none, &found));
    CHECK("V117", found->ai_src_len == sizeof at && !memcmp(found->ai_src_addr, &at, sizeof at) && !found->ai_family,
          "the source");
    rdma_freeaddrinfo(found);
}
/* With an argument: as many Requests are turned away as backlog_of_iwarp() says, and the process can be asked about it. */
int main(int argc, char **argv) {
    (void)argv;
    open_channels();
    open_listener(0);
    if (argc > 1) {
        backlog_of_iwarp();
        puts("it is done");
        fflush(stdout);
        getchar();
        return finish();
    }
    listener->context = &port;
    nulls();
    address_information();
    addresses();
    two_threads();
    families();
    queues_of_a_failure();
    options();
    listeners();
    for (int i = 0; i < 30; i++)
        backlog();
    connects();
    answers_too_long();
    parts_early();
    ends();
    SUCCEEDS(rdma_destroy_id(listener));
    rdma_destroy_event_channel(ours);
    rdma_destroy_event_channel(theirs);
    return finish();
}
