/* Several devices in one process (TRANSOM_DEVICE): the list, what each says of itself, messages between two of
 * them, and the one that rdma_cm puts an id on. */
#include "ids.h"

static struct sockaddr_in at(const char *address, int number) {
    struct sockaddr_in found = loopback(number);
    inet_pton(AF_INET, address, &found.sin_addr);
    return found;
}
static int index_of(struct ibv_context *context, const char *address) {
    struct in6_addr wanted = {{{[10] = 0xff, [11] = 0xff}}};
    inet_pton(AF_INET, address, &wanted.s6_addr[12]);
    union ibv_gid gid;
    struct ibv_port_attr port;
    SUCCEEDS(ibv_query_port(context, 1, &port));
    for (int i = port.gid_tbl_len - 1; i >= 0; i--)
        if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(&gid, &wanted, sizeof gid))
            return i;
    return -1;
}
static void listed(void) {
    const char *names[] = {"rail0", "rail1", "rest"};
    int count = 0;
    struct ibv_device **list = MADE(ibv_get_device_list(&count));
    CHECK("V22", count == 3 && !list[3], "%d devices", count);
    uint64_t guids[3];
    for (int i = 0; i < 3; i++) {
        char dev[16];
        snprintf(dev, sizeof dev, "uverbs%d", i);
        CHECK("V22", !strcmp(ibv_get_device_name(list[i]), names[i]), "%s", list[i]->name);
        CHECK("V24", !strcmp(list[i]->dev_name, dev), "%s", list[i]->dev_name);
        guids[i] = ibv_get_device_guid(list[i]);
        struct ibv_context *context = MADE(ibv_open_device(list[i]));
        struct ibv_device_attr attr;
        SUCCEEDS(ibv_query_device(context, &attr));
        CHECK("V24", attr.node_guid == guids[i], "%s", names[i]);
        CHECK("V22", context->device == list[i], "%s", names[i]);
        int own = index_of(context, i ? "127.0.0.3" : "127.0.0.2");
        CHECK("V25", i == 2 ? own < 0 : own >= 0, "%s: %d", names[i], own);
        CHECK("V25", i == 2 || index_of(context, i ? "127.0.0.2" : "127.0.0.3") < 0, "%s", names[i]);
        CHECK("V25", (index_of(context, "127.0.0.1") >= 0) == (i == 2), "%s", names[i]);
        SUCCEEDS(ibv_close_device(context));
    }
    CHECK("V24", guids[0] != guids[1] && guids[1] != guids[2], "%llx", (unsigned long long)*guids);
    struct ibv_device stranger = *list[0];
    NULLS("V22", ibv_open_device(&stranger), EINVAL);
    ibv_free_device_list(list);
}
/* A message from one device to the other, by each one's address. */
static void between(void) {
    struct ibv_device **list = MADE(ibv_get_device_list(NULL));
    struct end ends[2];
    for (int i = 0; i < 2; i++) {
        open_end(&ends[i], MADE(ibv_open_device(list[i])), ALL);
        int own = index_of(ends[i].ctx, i ? "127.0.0.3" : "127.0.0.2");
        SUCCEEDS(ibv_query_gid(ends[i].ctx, 1, own, &ends[i].gid));
    }
    ibv_free_device_list(list);
    for (int i = 0; i < 2; i++) {
        int own = index_of(ends[i].ctx, i ? "127.0.0.3" : "127.0.0.2");
        struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE};
        SUCCEEDS(ibv_modify_qp(ends[i].qp, &init, M_INIT));
        struct ibv_sge sge = {(uintptr_t)ends[i].buf, 4096, ends[i].mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
        SUCCEEDS(ibv_post_recv(ends[i].qp, &wr, &bad));
        struct ibv_qp_attr rtr = {
            .qp_state = IBV_QPS_RTR,
            .path_mtu = IBV_MTU_1024,
            .dest_qp_num = ends[1 - i].qp->qp_num,
            .max_dest_rd_atomic = 1,
            .min_rnr_timer = 12,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = ends[1 - i].gid, .sgid_index = own, .hop_limit = 1}}};
        SUCCEEDS(ibv_modify_qp(ends[i].qp, &rtr, M_RTR));
        struct ibv_qp_attr rts = {
            .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
        SUCCEEDS(ibv_modify_qp(ends[i].qp, &rts, M_RTS));
    }
    strcpy(ends[0].buf + 8192, "over two rails");
    struct ibv_sge sge = {(uintptr_t)ends[0].buf + 8192, 15, ends[0].mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    SUCCEEDS(ibv_post_send(ends[0].qp, &wr, &bad));
    struct ibv_wc wc;
    while (ibv_poll_cq(ends[1].rcq, 1, &wc) == 0)
        ;
    CHECK("V22", wc.status == IBV_WC_SUCCESS && wc.byte_len == 15, "status %d", wc.status);
    CHECK("V22", !strcmp(ends[1].buf, "over two rails"), "'%s'", ends[1].buf);
    while (ibv_poll_cq(ends[0].scq, 1, &wc) == 0)
        ;
    CHECK("V22", wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
    /* Objects of one device are none of the other's. */
    struct ibv_qp_init_attr mixed = {.send_cq = ends[1].scq, .recv_cq = ends[0].rcq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    NULLS("V22", ibv_create_qp(ends[0].pd, &mixed), EINVAL);
}
/* The device that has an id's address is the id's. */
static void ids(void) {
    int count = 0;
    struct ibv_context **all = MADE(rdma_get_devices(&count));
    CHECK("V39", count == 3 && !all[3], "%d devices", count);
    open_channels();
    struct sockaddr_in here = at("127.0.0.3", 0);
    SUCCEEDS(rdma_create_id(theirs, &listener, NULL, RDMA_PS_TCP));
    CHECK("V22", !listener->verbs, "an id without an address is on no device");
    SUCCEEDS(rdma_bind_addr(listener, (void *)&here));
    CHECK("V22", listener->verbs == all[1], "%s", listener->verbs->device->name);
    SUCCEEDS(rdma_listen(listener, 8));
    struct sockaddr_in from = at("127.0.0.2", 0), to = at("127.0.0.3", ntohs(rdma_get_src_port(listener)));
    struct rdma_cm_id *active;
    SUCCEEDS(rdma_create_id(ours, &active, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(active, (void *)&from, (void *)&to, 2000));
    comes(ours, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK("V22", active->verbs == all[0], "%s", active->verbs->device->name);
    SUCCEEDS(rdma_resolve_route(active, 2000));
    comes(ours, RDMA_CM_EVENT_ROUTE_RESOLVED);
    give_queues(active);
    SUCCEEDS(rdma_connect(active, NULL));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *passive = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    CHECK("V22", passive->verbs == all[1], "%s", passive->verbs->device->name);
    give_queues(passive);
    SUCCEEDS(rdma_accept(passive, NULL));
    comes(ours, RDMA_CM_EVENT_ESTABLISHED);
    comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
    part(active, passive);
    rdma_free_devices(all);
}
int main(void) {
    setenv("TRANSOM_DEVICE", "rail0:127.0.0.2,rail1:127.0.0.3,rest", 1);
    listed();
    between();
    ids();
    return finish();
}
