/* Multicast groups: whoever is attached gets what is sent to a group, nobody else does, and rdma_cm
 * joins and leaves. What is not delivered is known by what was sent behind it and has arrived. */
#include "common.h"
#include <rdma/rdma_cma.h>
#define M_INIT_UD (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define KEY 0x22222222u
#define CM_KEY 0x01234567u
#define GROUP_QPN 0xffffffu
static struct end s, a, b;
static int loopback;
static union ibv_gid own;

static union ibv_gid gid_of(const char *text) {
    union ibv_gid gid;
    if (inet_pton(AF_INET6, text, gid.raw) != 1)
        exit(96);
    return gid;
}
static void ud_up(struct ibv_qp *q, uint32_t key) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = key};
    SUCCEEDS(ibv_modify_qp(q, &init, M_INIT_UD));
    qp_state(q, IBV_QPS_RTR);
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 1};
    SUCCEEDS(ibv_modify_qp(q, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN));
}
static struct ibv_qp *ud_qp(struct end *e) {
    struct ibv_qp_init_attr i = {
        .send_cq = e->scq, .recv_cq = e->rcq, .cap = {16, 16, 4, 4, 64}, .qp_type = IBV_QPT_UD};
    return MADE(ibv_create_qp(e->pd, &i));
}
static struct ibv_ah *to(union ibv_gid gid) {
    struct ibv_ah_attr at = {.is_global = 1,
                             .port_num = 1,
                             .grh = {.dgid = gid, .sgid_index = loopback, .hop_limit = 1}};
    return MADE(ibv_create_ah(s.pd, &at));
}
static void sends(uint64_t id, const char *text, struct ibv_ah *ah, uint32_t qpn, uint32_t key) {
    strcpy(s.buf, text);
    struct ibv_sge g = {(uintptr_t)s.buf, 32, s.mr->lkey};
    struct ibv_send_wr w = {
        .wr_id = id, .sg_list = &g, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = SIG};
    struct ibv_send_wr *bad;
    w.wr.ud.ah = ah, w.wr.ud.remote_qpn = qpn, w.wr.ud.remote_qkey = key;
    SUCCEEDS(ibv_post_send(s.qp, &w, &bad));
    EXPECT_WC("V136", s.scq, id, IBV_WC_SUCCESS);
}
static void gets(struct end *e, uint64_t id, const char *text) {
    struct ibv_wc w = EXPECT_WC("V136", e->rcq, id, IBV_WC_SUCCESS);
    CHECK("V136", w.src_qp == s.qp->qp_num && w.qp_num == e->qp->qp_num, "from %x to %x", w.src_qp,
          w.qp_num);
    CHECK("V136", w.byte_len == 72 && (w.wc_flags & IBV_WC_GRH), "%u bytes", w.byte_len);
    CHECK("V136", !strcmp(e->buf + 40, text), "%s, wanted %s", e->buf + 40, text);
}
static void room(struct end *e, uint64_t id) {
    SUCCEEDS(post_recv(e, id, e->buf, 256, e->mr->lkey));
}

static void arguments(void) {
    union ibv_gid group = gid_of("::ffff:239.255.1.1"), host = gid_of("::ffff:192.0.2.1");
    struct ibv_device_attr d;
    SUCCEEDS(ibv_query_device(s.ctx, &d));
    CHECK("V152", d.max_mcast_grp > 0 && d.max_mcast_qp_attach > 0, "%d", d.max_mcast_grp);
    struct ibv_qp_init_attr i = {
        .send_cq = a.scq, .recv_cq = a.rcq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *rc = MADE(ibv_create_qp(a.pd, &i));
    FAILS("V136", ibv_attach_mcast(rc, &group, 0), EINVAL);
    FAILS("V136", ibv_detach_mcast(rc, &group, 0), EINVAL);
    SUCCEEDS(ibv_destroy_qp(rc));
    FAILS("V136", ibv_attach_mcast(a.qp, &host, 0), EINVAL);
    FAILS("V136", ibv_attach_mcast(a.qp, NULL, 0), EINVAL);
    FAILS("V136", ibv_detach_mcast(a.qp, &group, 0), EINVAL);
    /* Attached twice is attached. */
    SUCCEEDS(ibv_attach_mcast(a.qp, &group, 0));
    SUCCEEDS(ibv_attach_mcast(a.qp, &group, 0xc001));
    FAILS("V136", ibv_destroy_qp(a.qp), EBUSY);
    SUCCEEDS(ibv_detach_mcast(a.qp, &group, 0));
    FAILS("V136", ibv_detach_mcast(a.qp, &group, 0), EINVAL);
    /* ... and detached is detached. */
    struct ibv_ah *ah = to(group), *unicast = to(own);
    room(&a, 31);
    sends(32, "to nobody", ah, GROUP_QPN, KEY);
    sends(33, "behind", unicast, a.qp->qp_num, KEY);
    gets(&a, 31, "behind");
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_ah(unicast));
    for (int n = 0; n <= d.max_total_mcast_qp_attach; n++) {
        SUCCEEDS(ibv_attach_mcast(a.qp, &group, 0));
        SUCCEEDS(ibv_detach_mcast(a.qp, &group, 0));
    }
}

/* A packet that no Transom sends to a group: the number of a queue pair in it reaches nothing. */
static void forged(void) {
    union ibv_gid group = gid_of("::ffff:239.255.1.4");
    uint32_t hash = 0x811c9dc5;
    for (int n = 0; n < 16; n++)
        hash = (hash ^ group.raw[n]) * 0x01000193;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(0x5000 + hash % 0x1000)};
    memcpy(&at.sin_addr, group.raw + 12, 4);
    struct in_addr from;
    inet_pton(AF_INET, "127.0.0.1", &from);
    int raw = socket(AF_INET, SOCK_DGRAM, 0);
    SUCCEEDS(setsockopt(raw, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from));
    SUCCEEDS(ibv_attach_mcast(a.qp, &group, 0));
    room(&a, 41);
    uint32_t numbers[] = {a.qp->qp_num, 0, GROUP_QPN - 1, GROUP_QPN};
    for (int n = 0; n < 4; n++) {
        uint32_t words[] = {htonl(0x6400ffff), htonl(numbers[n]), 0,   htonl(KEY),
                            htonl(s.qp->qp_num), 0,               0,   0,
                            0,                   0,               0,   0,
                            0,                   0};
        sprintf((char *)&words[5], "number %d", n);
        CHECK("V136", sendto(raw, words, sizeof words, 0, (void *)&at, sizeof at) == sizeof words,
              "errno %d", errno);
    }
    gets(&a, 41, "number 3");
    SUCCEEDS(ibv_detach_mcast(a.qp, &group, 0));
    close(raw);
}

static int descriptors(void) {
    int count = 0;
    for (int n = 0; n < 1024; n++)
        count += fcntl(n, F_GETFD) >= 0;
    return count;
}
/* How many descriptors a device leaves that is closed with a queue pair. */
static int leaves(bool attached) {
    int before = descriptors();
    struct end e;
    open_end(&e, NULL, ALL);
    struct ibv_qp *q = ud_qp(&e);
    union ibv_gid group = gid_of("::ffff:239.255.1.5");
    if (attached)
        SUCCEEDS(ibv_attach_mcast(q, &group, 0));
    SUCCEEDS(ibv_close_device(e.ctx));
    return descriptors() - before;
}

static void members(const char *name) {
    union ibv_gid group = gid_of(name), other = gid_of("::ffff:239.255.1.9");
    struct ibv_ah *ah = to(group), *elsewhere = to(other);
    SUCCEEDS(ibv_attach_mcast(a.qp, &group, 0));
    SUCCEEDS(ibv_attach_mcast(b.qp, &group, 0));
    room(&a, 1), room(&b, 1);
    sends(2, "to both", ah, GROUP_QPN, KEY);
    gets(&a, 1, "to both"), gets(&b, 1, "to both");

    /* Another group, another key, and the number of a queue pair: none of them arrives. */
    room(&a, 3), room(&b, 3);
    sends(4, "to another group", elsewhere, GROUP_QPN, KEY);
    sends(5, "by another key", ah, GROUP_QPN, KEY + 1);
    sends(6, "to a number", ah, a.qp->qp_num, KEY);
    sends(7, "behind", ah, GROUP_QPN, KEY);
    gets(&a, 3, "behind"), gets(&b, 3, "behind");

    /* A member that leaves gets nothing more; the other one does. The first of two receives of `b`
     * is for the queue pair itself. */
    SUCCEEDS(ibv_detach_mcast(b.qp, &group, 0));
    room(&a, 8), room(&b, 8);
    sends(9, "to one", ah, GROUP_QPN, KEY);
    gets(&a, 8, "to one");
    struct ibv_ah *unicast = to(own);
    sends(10, "to b itself", unicast, b.qp->qp_num, KEY);
    gets(&b, 8, "to b itself");

    /* A member that sends gets its own. */
    SUCCEEDS(ibv_attach_mcast(s.qp, &group, 0));
    SUCCEEDS(post_recv(&s, 11, s.buf + 4096, 256, s.mr->lkey));
    room(&a, 11);
    sends(12, "to itself", ah, GROUP_QPN, KEY);
    gets(&a, 11, "to itself");
    EXPECT_WC("V136", s.rcq, 11, IBV_WC_SUCCESS);
    CHECK("V136", !strcmp(s.buf + 4096 + 40, "to itself"), "%s", s.buf + 4096 + 40);
    SUCCEEDS(ibv_detach_mcast(s.qp, &group, 0));
    SUCCEEDS(ibv_detach_mcast(a.qp, &group, 0));
    SUCCEEDS(ibv_destroy_ah(unicast));
    SUCCEEDS(ibv_destroy_ah(elsewhere));
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* ---- rdma_cm ---- */

static struct sockaddr_in address(const char *text) {
    struct sockaddr_in in = {.sin_family = AF_INET};
    inet_pton(AF_INET, text, &in.sin_addr);
    return in;
}
#define REFUSED(call, e)                                                              \
    do {                                                                              \
        errno = 0;                                                                    \
        int _r = (call);                                                              \
        CHECK("V136", _r == -1 && errno == (e), "%s: %d errno %d", #call, _r, errno); \
    } while (0)

static struct rdma_cm_event *next(struct rdma_event_channel *channel, int kind) {
    struct rdma_cm_event *event = NULL;
    struct pollfd p = {channel->fd, POLLIN, 0};
    CHECK("V136", poll(&p, 1, HANG) == 1, "no event, wanted %s", rdma_event_str(kind));
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V136", (int)event->event == kind && event->status == 0, "%s, status %d, wanted %s",
          rdma_event_str(event->event), event->status, rdma_event_str(kind));
    return event;
}

static void joined(void) {
    struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
    struct sockaddr_in host = address("127.0.0.1"), group = address("239.255.2.1");
    struct sockaddr_in other = address("239.255.2.2");
    struct rdma_cm_id *id, *tcp, *sender;
    int mine, unused;
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
    REFUSED(rdma_join_multicast(id, (void *)&group, &mine), EINVAL); /* on no device yet */
    SUCCEEDS(rdma_bind_addr(id, (void *)&host));
    SUCCEEDS(rdma_create_id(channel, &tcp, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(tcp, (void *)&host));
    REFUSED(rdma_join_multicast(tcp, (void *)&group, &mine), EINVAL);
    SUCCEEDS(rdma_destroy_id(tcp));
    REFUSED(rdma_join_multicast(id, (void *)&host, &mine), EINVAL);
    REFUSED(rdma_join_multicast(id, NULL, &mine), EINVAL);
    REFUSED(rdma_leave_multicast(id, (void *)&group), EADDRNOTAVAIL);

    /* Left before its event was fetched: there is none. */
    SUCCEEDS(rdma_join_multicast(id, (void *)&other, &unused));
    SUCCEEDS(rdma_leave_multicast(id, (void *)&other));

    const struct ibv_qp_init_attr fresh = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp_init_attr init = fresh;
    SUCCEEDS(rdma_create_qp(id, NULL, &init));
    struct ibv_mr *mr = MADE(ibv_reg_mr(id->pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE));
    SUCCEEDS(rdma_join_multicast(id, (void *)&group, &mine));
    REFUSED(rdma_join_multicast(id, (void *)&group, &mine), EADDRINUSE);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    struct rdma_ud_param ud = event->param.ud;
    union ibv_gid wanted = gid_of("::ffff:239.255.2.1");
    CHECK("V136", event->id == id && ud.private_data == &mine, "context %p", ud.private_data);
    CHECK("V136", ud.qp_num == GROUP_QPN && ud.qkey == CM_KEY, "%x %x", ud.qp_num, ud.qkey);
    CHECK("V136",
          ud.ah_attr.is_global && ud.ah_attr.port_num == 1 &&
              !memcmp(&ud.ah_attr.grh.dgid, &wanted, 16),
          "the address");
    SUCCEEDS(rdma_ack_cm_event(event));

    /* Messages sent by the attributes of the event arrive. */
    struct end i = b;
    i.qp = id->qp, i.rcq = id->recv_cq, i.mr = mr;
    struct ibv_ah *ah = MADE(ibv_create_ah(s.pd, &ud.ah_attr));
    room(&i, 21);
    sends(22, "to an id", ah, ud.qp_num, ud.qkey);
    gets(&i, 21, "to an id");

    /* A queue pair that has not left is destroyed all the same, with what it had. */
    int before = descriptors();
    SUCCEEDS(rdma_create_id(channel, &sender, NULL, RDMA_PS_UDP));
    SUCCEEDS(rdma_bind_addr(sender, (void *)&host));
    init = fresh;
    SUCCEEDS(rdma_create_qp(sender, NULL, &init));
    SUCCEEDS(rdma_join_multicast(sender, (void *)&group, NULL));
    SUCCEEDS(rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_MULTICAST_JOIN)));
    rdma_destroy_qp(sender);
    SUCCEEDS(rdma_destroy_id(sender));
    CHECK("V136", descriptors() == before, "%d descriptors, %d before", descriptors(), before);

    /* Joined in order to send: nothing arrives, not even its own. */
    SUCCEEDS(rdma_create_id(channel, &sender, NULL, RDMA_PS_UDP));
    SUCCEEDS(rdma_bind_addr(sender, (void *)&host));
    init = fresh;
    SUCCEEDS(rdma_create_qp(sender, NULL, &init));
    struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
                                           .join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
                                           .addr = (void *)&group};
    REFUSED(rdma_join_multicast_ex(sender, &attr, NULL), EINVAL);
    attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, attr.join_flags = 2;
    REFUSED(rdma_join_multicast_ex(sender, &attr, NULL), EINVAL);
    REFUSED(rdma_join_multicast_ex(sender, NULL, NULL), EINVAL);
    attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
    SUCCEEDS(rdma_join_multicast_ex(sender, &attr, NULL));
    SUCCEEDS(rdma_ack_cm_event(next(channel, RDMA_CM_EVENT_MULTICAST_JOIN)));
    struct end only = b;
    only.qp = sender->qp, only.rcq = sender->recv_cq, only.mr = mr;
    room(&only, 23), room(&i, 24);
    sends(25, "to full members", ah, ud.qp_num, ud.qkey);
    gets(&i, 24, "to full members");
    EXPECT_NONE("V136", only.rcq, 0);
    SUCCEEDS(rdma_leave_multicast(sender, (void *)&group));
    rdma_destroy_qp(sender);
    SUCCEEDS(rdma_destroy_id(sender));

    /* The queue pair leaves: nothing arrives, and the queue pair can be destroyed. */
    SUCCEEDS(rdma_leave_multicast(id, (void *)&group));
    REFUSED(rdma_leave_multicast(id, (void *)&group), EADDRNOTAVAIL);
    FAILS("V136", ibv_detach_mcast(id->qp, &wanted, 0), EINVAL);
    SUCCEEDS(ibv_destroy_ah(ah));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
    SUCCEEDS(ibv_dereg_mr(mr));
    rdma_destroy_event_channel(channel);
}

int main(void) {
    open_end(&s, NULL, ALL);
    open_end(&a, s.ctx, ALL);
    open_end(&b, s.ctx, ALL);
    struct end *all[] = {&s, &a, &b};
    for (int i = 0; i < 3; i++) {
        SUCCEEDS(ibv_destroy_qp(all[i]->qp));
        all[i]->qp = ud_qp(all[i]);
        ud_up(all[i]->qp, KEY);
    }
    union ibv_gid wanted = gid_of("::ffff:127.0.0.1");
    while (SUCCEEDS(ibv_query_gid(s.ctx, 1, loopback, &own)), memcmp(&own, &wanted, 16))
        loopback++;
    arguments();
    members("::ffff:239.255.1.1");
    members("ff0e::ffff:239.255.1.2");
    members("ff05::84:1");
    forged();
    joined();
    /* The end of a device ends what is attached. */
    int plain = leaves(false), attached = leaves(true);
    CHECK("V136", plain == attached, "%d descriptors left, %d without a group", attached, plain);
    return finish();
}
