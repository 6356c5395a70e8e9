/* The device as an adapter of iWARP: what it says of itself, what it has not, and connections by rdma_cm. */
#include "common.h"
#include <rdma/rdma_cma.h>

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static void presented(struct ibv_context *c) {
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    struct ibv_gid_entry entries[4];
    union ibv_gid gid, zero = {{0}};
    CHECK("V32", c->device->node_type == IBV_NODE_RNIC, "node type %d", c->device->node_type);
    CHECK("V32", c->device->transport_type == IBV_TRANSPORT_IWARP, "transport %d",
          c->device->transport_type);
    SUCCEEDS(ibv_query_device(c, &attr));
    CHECK("V32", attr.atomic_cap == IBV_ATOMIC_NONE, "atomics %d", attr.atomic_cap);
    CHECK("V32", attr.max_ah == 0 && attr.max_mcast_grp == 0 && attr.max_mcast_qp_attach == 0,
          "%d address handles, %d groups", attr.max_ah, attr.max_mcast_grp);
    SUCCEEDS(ibv_query_port(c, 1, &port));
    CHECK("V32", port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len == 1,
          "link layer %d, %d GIDs", port.link_layer, port.gid_tbl_len);
    /* A hardware address, and zeros. */
    SUCCEEDS(ibv_query_gid(c, 1, 0, &gid));
    CHECK("V32", memcmp(&gid, &zero, 6) && !memcmp(&gid.raw[6], &zero, 10), "GID %llx %llx",
          (unsigned long long)be64toh(gid.global.subnet_prefix),
          (unsigned long long)be64toh(gid.global.interface_id));
    CHECK("V32", ibv_query_gid(c, 1, 1, &gid) == -1, "there is a second GID");
    ssize_t count = ibv_query_gid_table(c, entries, 4, 0);
    CHECK("V32", count == 1 && entries[0].gid_type == IBV_GID_TYPE_IB, "%zd GIDs, type %u", count,
          entries[0].gid_type);
}
/* Objects that only the InfiniBand transport has are refused, and leave nothing behind. */
static void refused(struct ibv_context *c) {
    struct end a, b;
    open_end(&a, c, ALL);
    open_end(&b, c, ALL);
    for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type++) {
        struct ibv_qp_init_attr init = {
            .send_cq = a.scq, .recv_cq = a.rcq, .cap = {4, 4, 1, 1, 0}, .qp_type = type};
        NULLS("V32", ibv_create_qp(a.pd, &init), EOPNOTSUPP);
    }
    static const uint64_t missing[] = {IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
                                       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
                                       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
    for (int i = 0; i < 4; i++) {
        struct ibv_qp_init_attr_ex init = {.send_cq = a.scq,
                                           .recv_cq = a.rcq,
                                           .cap = {4, 4, 1, 1, 0},
                                           .qp_type = IBV_QPT_RC,
                                           .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                           .pd = a.pd,
                                           .send_ops_flags = IBV_QP_EX_WITH_SEND | missing[i]};
        NULLS("V32", ibv_create_qp_ex(c, &init), EOPNOTSUPP);
        init.send_ops_flags = IBV_QP_EX_WITH_SEND;
        SUCCEEDS(ibv_destroy_qp(MADE(ibv_create_qp_ex(c, &init))));
    }
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh.dgid.raw = {[10] = 255, 255, 127, 0, 0, 1}};
    NULLS("V32", ibv_create_ah(a.pd, &to), EOPNOTSUPP);
    /* By its number a queue pair finds no other; the state stays. */
    union ibv_gid address = {.raw = {[10] = 255, 255, 127, 0, 0, 1}};
    struct ibv_qp_attr rtr = a_rtr(address, b.qp->qp_num, DEF);
    qp_init(a.qp, REMOTE);
    FAILS("V32", ibv_modify_qp(a.qp, &rtr, M_RTR), EINVAL);
    CHECK("V32", state_of(a.qp) == IBV_QPS_INIT, "state %d", state_of(a.qp));
}
static struct rdma_cm_event *next(struct rdma_event_channel *channel, int wanted) {
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V32", (int)event->event == wanted, "event %s, wanted %s", rdma_event_str(event->event),
          rdma_event_str(wanted));
    return event;
}
static void pass(struct rdma_event_channel *channel, int wanted) {
    SUCCEEDS(rdma_ack_cm_event(next(channel, wanted)));
}
static struct rdma_cm_id *resolved(struct rdma_event_channel *channel, int port) {
    struct rdma_cm_id *id;
    struct sockaddr_in peer = loopback(port);
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&peer, 2000));
    pass(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    SUCCEEDS(rdma_resolve_route(id, 2000));
    pass(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}
/* A queue pair with completion queues of its own. */
static void with_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
    SUCCEEDS(rdma_create_qp(id, NULL, &init));
}
/* Connects with five bytes of private data; the request as the other side finds it. */
static struct rdma_cm_id *requested(struct rdma_cm_id *id, struct rdma_event_channel *listening) {
    struct rdma_conn_param with = {.private_data = "hello", .private_data_len = 5};
    with_queue_pair(id);
    SUCCEEDS(rdma_connect(id, &with));
    struct rdma_cm_event *event = next(listening, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *passive = event->id;
    CHECK("V32", event->param.conn.private_data_len == 5, "%d bytes",
          event->param.conn.private_data_len);
    CHECK("V32", !memcmp(event->param.conn.private_data, "hello", 5), "other bytes");
    SUCCEEDS(rdma_ack_cm_event(event));
    return passive;
}
static void by_rdma_cm(void) {
    struct rdma_event_channel *channels[2];
    for (int i = 0; i < 2; i++)
        channels[i] = MADE(rdma_create_event_channel());
    struct rdma_cm_id *listener, *active, *passive;
    struct sockaddr_in any = loopback(0);
    SUCCEEDS(rdma_create_id(channels[1], &listener, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(listener, (void *)&any));
    SUCCEEDS(rdma_listen(listener, 4));
    int port = ntohs(rdma_get_src_port(listener));

    /* Rejected by the program: the bytes that it gave, and the status of TCP. */
    active = resolved(channels[0], port);
    passive = requested(active, channels[1]);
    SUCCEEDS(rdma_reject(passive, "no", 2));
    struct rdma_cm_event *event = next(channels[0], RDMA_CM_EVENT_REJECTED);
    CHECK("V32", event->status == -ECONNREFUSED, "status %d", event->status);
    CHECK("V32", event->param.conn.private_data_len == 2, "%d bytes",
          event->param.conn.private_data_len);
    SUCCEEDS(rdma_ack_cm_event(event));
    rdma_destroy_qp(active);
    SUCCEEDS(rdma_destroy_id(active));
    SUCCEEDS(rdma_destroy_id(passive));

    /* Accepted: Sends and Writes arrive, and what iWARP has not is refused when it is posted. */
    active = resolved(channels[0], port);
    passive = requested(active, channels[1]);
    with_queue_pair(passive);
    char bytes[64] = "sent by rdma_cm", there[64] = {0};
    struct end from = {.qp = active->qp}, to = {.qp = passive->qp};
    struct ibv_mr *here = MADE(ibv_reg_mr(active->pd, bytes, sizeof bytes, ALL));
    struct ibv_mr *other = MADE(ibv_reg_mr(passive->pd, there, sizeof there, ALL));
    SUCCEEDS(post_recv(&to, 7, there, 16, other->lkey));
    SUCCEEDS(rdma_accept(passive, NULL));
    pass(channels[0], RDMA_CM_EVENT_ESTABLISHED);
    pass(channels[1], RDMA_CM_EVENT_ESTABLISHED);
    static const int missing[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
                                  IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (int i = 0; i < 4; i++)
        FAILS("V32", post(&from, 1, missing[i], SIG, bytes, 8, here->lkey, (uintptr_t)there, other->rkey),
              EINVAL);
    SUCCEEDS(post(&from, 2, IBV_WR_RDMA_WRITE, SIG, bytes, 16, here->lkey, (uintptr_t)(there + 32),
                  other->rkey));
    EXPECT_WC("V32", active->send_cq, 2, IBV_WC_SUCCESS);
    SUCCEEDS(post(&from, 3, IBV_WR_SEND, SIG, bytes, 16, here->lkey, 0, 0));
    EXPECT_WC("V32", active->send_cq, 3, IBV_WC_SUCCESS);
    EXPECT_WC("V32", passive->recv_cq, 7, IBV_WC_SUCCESS);
    CHECK("V32", !strcmp(there, bytes) && !strcmp(there + 32, bytes), "'%s' and '%s'", there, there + 32);
    SUCCEEDS(rdma_disconnect(active));
    pass(channels[0], RDMA_CM_EVENT_DISCONNECTED);
    pass(channels[1], RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(active);
    rdma_destroy_qp(passive);
    SUCCEEDS(ibv_dereg_mr(here));
    SUCCEEDS(ibv_dereg_mr(other));
    SUCCEEDS(rdma_destroy_id(active));
    SUCCEEDS(rdma_destroy_id(passive));

    /* Nobody listens: the same status. */
    SUCCEEDS(rdma_destroy_id(listener));
    active = resolved(channels[0], port);
    with_queue_pair(active);
    SUCCEEDS(rdma_connect(active, NULL));
    event = next(channels[0], RDMA_CM_EVENT_REJECTED);
    CHECK("V32", event->status == -ECONNREFUSED, "status %d", event->status);
    SUCCEEDS(rdma_ack_cm_event(event));
    rdma_destroy_qp(active);
    SUCCEEDS(rdma_destroy_id(active));
}
int main(void) {
    setenv("TRANSOM_AS", "iwarp", 1);
    struct ibv_context *c = open_dev();
    presented(c);
    refused(c);
    by_rdma_cm();
    return finish();
}
