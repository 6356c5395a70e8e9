/* Queue pairs of datagrams, in one process: `a` sends, `b` receives, over every kind of address that
 * the host has. What is lost is known by what was sent behind it and has arrived. */
#include "common.h"
#define M_INIT_UD (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define KEY 0x11111111u
#define GRH 40
static struct end a, b;

static struct ibv_qp *ud_qp(struct end *e, struct ibv_srq *srq) {
    struct ibv_qp_init_attr i = {.send_cq = e->scq,
                                 .recv_cq = e->rcq,
                                 .srq = srq,
                                 .cap = {16, 16, 4, 4, 64},
                                 .qp_type = IBV_QPT_UD};
    return MADE(ibv_create_qp(e->pd, &i));
}
static void ud_init(struct ibv_qp *q, uint32_t key) {
    struct ibv_qp_attr at = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = key};
    SUCCEEDS(ibv_modify_qp(q, &at, M_INIT_UD));
}
static void ud_rts(struct ibv_qp *q) {
    struct ibv_qp_attr at = {.qp_state = IBV_QPS_RTS, .sq_psn = 1};
    SUCCEEDS(ibv_modify_qp(q, &at, IBV_QP_STATE | IBV_QP_SQ_PSN));
}
static void ud_up(struct ibv_qp *q, uint32_t key) {
    ud_init(q, key);
    qp_state(q, IBV_QPS_RTR);
    ud_rts(q);
}
static struct ibv_ah_attr to_gid(union ibv_gid gid, int index) {
    return (struct ibv_ah_attr){.is_global = 1,
                                .port_num = 1,
                                .dlid = 0xc000,
                                .grh = {.dgid = gid, .sgid_index = index, .hop_limit = 64}};
}
static struct ibv_ah *handle_to(struct ibv_pd *pd, union ibv_gid gid, int index) {
    struct ibv_ah_attr at = to_gid(gid, index);
    return MADE(ibv_create_ah(pd, &at));
}
static struct ibv_send_wr request(uint64_t id, struct ibv_sge *s, struct ibv_ah *ah, uint32_t qpn,
                                  uint32_t key) {
    struct ibv_send_wr w = {
        .wr_id = id, .sg_list = s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = SIG};
    w.wr.ud.ah = ah;
    w.wr.ud.remote_qpn = qpn;
    w.wr.ud.remote_qkey = key;
    return w;
}
/* Send `length` bytes of a's buffer from its beginning. */
static int sends(uint64_t id, uint32_t length, struct ibv_ah *ah, uint32_t qpn, uint32_t key) {
    struct ibv_sge s = {(uintptr_t)a.buf, length, a.mr->lkey};
    struct ibv_send_wr w = request(id, &s, ah, qpn, key), *bad;
    return ibv_post_send(a.qp, &w, &bad);
}
static void sent(uint64_t id, uint32_t length, struct ibv_ah *ah, uint32_t qpn, uint32_t key) {
    SUCCEEDS(sends(id, length, ah, qpn, key));
    struct ibv_wc w = EXPECT_WC("V138", a.scq, id, IBV_WC_SUCCESS);
    CHECK("V84", w.opcode == IBV_WC_SEND, "opcode %d", w.opcode);
}
/* Messages sent to a queue pair of this process before have been delivered or dropped. */
static void fence(void) {
    struct ibv_ah *ah = handle_to(a.pd, a.gid, 0);
    SUCCEEDS(post_recv(&a, 90, a.buf + 32768, 4096, a.mr->lkey));
    sent(91, 8, ah, a.qp->qp_num, KEY);
    EXPECT_WC("V143", a.rcq, 90, IBV_WC_SUCCESS);
    SUCCEEDS(ibv_destroy_ah(ah));
}
/* Back to sending after a local error. */
static void out_of_sqe(void) {
    CHECK("V70", state_of(a.qp) == IBV_QPS_SQE, "state %d", state_of(a.qp));
    qp_state(a.qp, IBV_QPS_RTS);
    CHECK("V61", state_of(a.qp) == IBV_QPS_RTS, "state %d", state_of(a.qp));
}

static void states(void) {
    struct ibv_qp *q = ud_qp(&a, NULL);
    struct ibv_qp_attr at = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
    FAILS("V61", ibv_modify_qp(q, &at, M_INIT), EINVAL); /* access flags instead of a key */
    FAILS("V61", ibv_modify_qp(q, &at, M_INIT_UD & ~IBV_QP_QKEY), EINVAL);
    SUCCEEDS(ibv_modify_qp(q, &at, M_INIT_UD));
    struct ibv_ah *ah = handle_to(a.pd, a.gid, 0);
    struct ibv_sge s = {(uintptr_t)a.buf, 8, a.mr->lkey};
    struct ibv_send_wr w = request(1, &s, ah, q->qp_num, 5), *bad = NULL;
    FAILS("V65", ibv_post_send(q, &w, &bad), EINVAL);
    CHECK("V81", bad == &w, "bad_wr %p", bad);
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
    FAILS("V61", ibv_modify_qp(q, &rtr, IBV_QP_STATE | IBV_QP_DEST_QPN), EINVAL);
    qp_state(q, IBV_QPS_RTR);
    FAILS("V65", ibv_post_send(q, &w, &bad), EINVAL);
    ud_rts(q);
    struct ibv_qp_attr got;
    struct ibv_qp_init_attr init;
    SUCCEEDS(ibv_query_qp(q, &got, 0, &init));
    CHECK("V64", got.qkey == 5 && got.qp_state == IBV_QPS_RTS && init.qp_type == IBV_QPT_UD,
          "key %u state %d type %d", got.qkey, got.qp_state, init.qp_type);
    /* Without an address handle nothing is posted. */
    w.wr.ud.ah = NULL;
    FAILS("V81", ibv_post_send(q, &w, &bad), EINVAL);
    EXPECT_NONE("V81", a.scq, 0);
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_qp(q));
}

static void handles(void) {
    struct ibv_ah_attr at = to_gid(b.gid, 0);
    at.is_global = 0;
    NULLS("V63", ibv_create_ah(a.pd, &at), EINVAL);
    at = to_gid(b.gid, 250);
    NULLS("V142", ibv_create_ah(a.pd, &at), EINVAL);
    at = to_gid(b.gid, 0);
    at.port_num = 2;
    NULLS("V142", ibv_create_ah(a.pd, &at), EINVAL);
    struct ibv_ah *ah = handle_to(a.pd, b.gid, 0);
    FAILS("V35", ibv_dealloc_pd(a.pd), EBUSY);
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* Fields of the IP header that an address handle chooses. */
static void fields(int index) {
    union ibv_gid gid;
    SUCCEEDS(ibv_query_gid(a.ctx, 1, index, &gid));
    bool v4 = gid.global.subnet_prefix == 0 && gid.raw[10] == 0xff && gid.raw[11] == 0xff;
    struct ibv_ah_attr at = to_gid(gid, index);
    at.grh.traffic_class = 0xb8;
    at.grh.hop_limit = 17;
    struct ibv_ah *ah = MADE(ibv_create_ah(a.pd, &at));
    SUCCEEDS(post_recv(&b, 15, b.buf, 8192, b.mr->lkey));
    sent(16, 8, ah, b.qp->qp_num, KEY);
    EXPECT_WC("V139", b.rcq, 15, IBV_WC_SUCCESS);
    unsigned char *grh = (unsigned char *)b.buf;
    int class = v4 ? grh[21] : (grh[0] & 15) << 4 | grh[1] >> 4, limit = v4 ? grh[28] : grh[7];
    CHECK("V140", class == 0xb8 && limit == 17, "class %#x, limit %d", class, limit);
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* The bytes, the area in front of them and the completion of one datagram, and its answer. */
static void one(int index, uint32_t length, bool immediate) {
    struct ibv_gid_entry entry;
    SUCCEEDS(ibv_query_gid_ex(a.ctx, 1, index, &entry, 0));
    union ibv_gid gid = entry.gid;
    /* Packets of both types leave as those of RoCE v2 do, whose entry of a GID is the next one. */
    int answers = index + (entry.gid_type == IBV_GID_TYPE_ROCE_V1);
    bool v4 = gid.global.subnet_prefix == 0 && gid.raw[10] == 0xff && gid.raw[11] == 0xff;
    struct ibv_ah *ah = handle_to(a.pd, gid, index);
    memset(b.buf, 0x55, 8192);
    for (uint32_t i = 0; i < length; i++)
        a.buf[i] = (char)(i * 7 + 1);
    SUCCEEDS(post_recv(&b, 20, b.buf, 8192, b.mr->lkey));
    struct ibv_sge s = {(uintptr_t)a.buf, length, a.mr->lkey};
    struct ibv_send_wr w = request(21, &s, ah, b.qp->qp_num, KEY), *bad;
    if (immediate) {
        w.opcode = IBV_WR_SEND_WITH_IMM;
        w.imm_data = htonl(0xfeedbeef);
    }
    SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
    EXPECT_WC("V138", a.scq, 21, IBV_WC_SUCCESS);
    struct ibv_wc c = EXPECT_WC("V139", b.rcq, 20, IBV_WC_SUCCESS);
    CHECK("V139", c.byte_len == GRH + length, "length %u of %u", c.byte_len, length);
    CHECK("V141",
          c.opcode == IBV_WC_RECV && c.src_qp == a.qp->qp_num && c.qp_num == b.qp->qp_num &&
              c.slid == 0 && c.dlid_path_bits == 0,
          "opcode %d from %x to %x slid %u", c.opcode, c.src_qp, c.qp_num, c.slid);
    CHECK("V141", c.sl == (v4 ? 0xa : 0x9), "sl %u of gid %d", c.sl, index);
    CHECK("V141", c.wc_flags == (IBV_WC_GRH | (immediate ? IBV_WC_WITH_IMM : 0)), "flags %x",
          c.wc_flags);
    CHECK("V87", !immediate || c.imm_data == htonl(0xfeedbeef), "immediate %x", c.imm_data);
    CHECK("V139", memcmp(b.buf + GRH, a.buf, length) == 0, "bytes of gid %d", index);
    CHECK("V139", b.buf[GRH + length] == 0x55, "a byte behind the datagram");
    struct ibv_grh *grh = (struct ibv_grh *)b.buf;
    if (v4) {
        static const char zeros[20];
        unsigned char *ip = (unsigned char *)b.buf + 20;
        CHECK("V140", memcmp(b.buf, zeros, 20) == 0 && ip[0] == 0x45 && ip[9] == 17, "header %x %u",
              ip[0], ip[9]);
        CHECK("V140", memcmp(ip + 12, gid.raw + 12, 4) == 0 && memcmp(ip + 16, gid.raw + 12, 4) == 0,
              "addresses in the header");
    } else {
        CHECK("V140", ((unsigned char)b.buf[0] >> 4) == 6 && grh->next_hdr == 17, "header %x",
              b.buf[0]);
        CHECK("V140", memcmp(&grh->sgid, &gid, 16) == 0 && memcmp(&grh->dgid, &gid, 16) == 0,
              "addresses in the header");
    }
    /* The message that came says where to answer. */
    struct ibv_ah_attr back;
    SUCCEEDS(ibv_init_ah_from_wc(b.ctx, 1, &c, grh, &back));
    CHECK("V142",
          back.is_global == 1 && back.port_num == 1 && back.grh.hop_limit == 0xff &&
              back.sl == c.sl && memcmp(&back.grh.dgid, &gid, 16) == 0 &&
              back.grh.sgid_index == answers,
          "index %u hop limit %u", back.grh.sgid_index, back.grh.hop_limit);
    FAILS("V142", ibv_init_ah_from_wc(b.ctx, 2, &c, grh, &back), EINVAL);
    struct ibv_ah *answer = MADE(ibv_create_ah_from_wc(b.pd, &c, grh, 1));
    SUCCEEDS(post_recv(&a, 22, a.buf + 16384, 8192, a.mr->lkey));
    struct ibv_sge t = {(uintptr_t)b.buf + GRH, length, b.mr->lkey};
    struct ibv_send_wr r = request(23, &t, answer, c.src_qp, KEY);
    SUCCEEDS(ibv_post_send(b.qp, &r, &bad));
    SUCCEEDS(ibv_destroy_ah(answer)); /* while its request may be under way */
    EXPECT_WC("V142", b.scq, 23, IBV_WC_SUCCESS);
    EXPECT_WC("V142", a.rcq, 22, IBV_WC_SUCCESS);
    CHECK("V139", memcmp(a.buf + 16384 + GRH, a.buf, length) == 0, "the answer's bytes");
    SUCCEEDS(ibv_destroy_ah(ah));
}

static void dropped(void) {
    struct ibv_ah *ah = handle_to(a.pd, b.gid, 0);
    uint32_t to = b.qp->qp_num;
    SUCCEEDS(post_recv(&b, 30, b.buf, 4096, b.mr->lkey));
    sent(1, 8, ah, to, KEY + 1);      /* another key */
    sent(2, 8, ah, to ^ 0xff, KEY);   /* a queue pair that does not exist */
    sent(3, 8, ah, 0x000123, KEY);    /* no port */
    struct ibv_qp *other = ud_qp(&b, NULL);
    ud_init(other, KEY);
    sent(4, 8, ah, other->qp_num, KEY); /* not ready to receive */
    struct ibv_qp *reliable = new_qp(&b);
    qp_up(reliable, a.gid, reliable->qp_num, DEF);
    sent(5, 8, ah, reliable->qp_num, KEY); /* of another kind */
    sent(6, 16, ah, to, KEY);
    struct ibv_wc c = EXPECT_WC("V139", b.rcq, 30, IBV_WC_SUCCESS);
    CHECK("V139", c.byte_len == GRH + 16, "%u bytes: one that was to be dropped", c.byte_len);
    /* Datagrams without a receive are lost; the next one that meets a receive arrives. */
    sent(7, 8, ah, to, KEY);
    sent(8, 8, ah, other->qp_num, KEY);
    fence();
    qp_state(other, IBV_QPS_RTR);
    struct ibv_sge s = {(uintptr_t)b.buf, 64, b.mr->lkey};
    struct ibv_recv_wr r = {.wr_id = 31, .sg_list = &s, .num_sge = 1}, *bad;
    SUCCEEDS(ibv_post_recv(other, &r, &bad));
    sent(9, 24, ah, other->qp_num, KEY);
    c = EXPECT_WC("V139", b.rcq, 31, IBV_WC_SUCCESS);
    CHECK("V139", c.byte_len == GRH + 24 && c.qp_num == other->qp_num, "%u bytes", c.byte_len);
    SUCCEEDS(post_recv(&b, 32, b.buf, 4096, b.mr->lkey));
    sent(10, 32, ah, to, KEY);
    c = EXPECT_WC("V139", b.rcq, 32, IBV_WC_SUCCESS);
    CHECK("V139", c.byte_len == GRH + 32, "%u bytes", c.byte_len);
    /* A receive that is too short, or whose memory is wrong, fails; the queue pair lives. */
    memset(b.buf, 0x55, 64);
    SUCCEEDS(post_recv(&b, 33, b.buf, GRH + 7, b.mr->lkey));
    sent(11, 8, ah, to, KEY);
    EXPECT_WC("V139", b.rcq, 33, IBV_WC_LOC_LEN_ERR);
    CHECK("V139", b.buf[0] == 0x55, "a byte of a datagram that does not fit");
    SUCCEEDS(post_recv(&b, 34, b.buf, 4096, a.mr->lkey));
    sent(12, 8, ah, to, KEY);
    EXPECT_WC("V139", b.rcq, 34, IBV_WC_LOC_PROT_ERR);
    SUCCEEDS(post_recv(&b, 35, b.buf, GRH + 8, b.mr->lkey));
    sent(13, 8, ah, to, KEY);
    EXPECT_WC("V139", b.rcq, 35, IBV_WC_SUCCESS);
    CHECK("V139", state_of(b.qp) == IBV_QPS_RTS, "state %d", state_of(b.qp));
    /* A key with bit 31 stands for the sender's own. */
    SUCCEEDS(post_recv(&b, 36, b.buf, 4096, b.mr->lkey));
    sent(14, 8, ah, to, 0x80000000u | 7);
    EXPECT_WC("V139", b.rcq, 36, IBV_WC_SUCCESS);
    /* The key may change while the queue pair lives. */
    struct ibv_qp_attr at = {.qkey = KEY + 5};
    SUCCEEDS(ibv_modify_qp(b.qp, &at, IBV_QP_QKEY));
    SUCCEEDS(post_recv(&b, 37, b.buf, 4096, b.mr->lkey));
    sent(15, 8, ah, to, KEY);
    sent(16, 12, ah, to, KEY + 5);
    c = EXPECT_WC("V139", b.rcq, 37, IBV_WC_SUCCESS);
    CHECK("V139", c.byte_len == GRH + 12, "%u bytes: the old key", c.byte_len);
    at.qkey = KEY;
    SUCCEEDS(ibv_modify_qp(b.qp, &at, IBV_QP_QKEY));
    SUCCEEDS(ibv_destroy_qp(reliable));
    SUCCEEDS(ibv_destroy_qp(other));
    SUCCEEDS(ibv_destroy_ah(ah));
}

static void own_errors(void) {
    struct ibv_ah *ah = handle_to(a.pd, b.gid, 0), *foreign = handle_to(b.pd, b.gid, 0);
    uint32_t to = b.qp->qp_num;
    SUCCEEDS(post_recv(&b, 40, b.buf, 8192, b.mr->lkey));
    SUCCEEDS(post_recv(&b, 41, b.buf, 8192, b.mr->lkey));
    SUCCEEDS(sends(1, 4097, ah, to, KEY)); /* beyond the MTU */
    EXPECT_WC("V138", a.scq, 1, IBV_WC_LOC_LEN_ERR);
    SUCCEEDS(sends(2, 8, ah, to, KEY)); /* behind it */
    EXPECT_WC("V70", a.scq, 2, IBV_WC_WR_FLUSH_ERR);
    /* Receives go on. */
    SUCCEEDS(post_recv(&a, 42, a.buf + 16384, 4096, a.mr->lkey));
    struct ibv_sge s = {(uintptr_t)b.buf, 8, b.mr->lkey};
    struct ibv_ah *there = handle_to(b.pd, a.gid, 0);
    struct ibv_send_wr w = request(3, &s, there, a.qp->qp_num, KEY), *bad;
    SUCCEEDS(ibv_post_send(b.qp, &w, &bad));
    EXPECT_WC("V70", b.scq, 3, IBV_WC_SUCCESS);
    EXPECT_WC("V70", a.rcq, 42, IBV_WC_SUCCESS);
    out_of_sqe();
    sent(4, 4096, ah, to, KEY); /* as long as the MTU */
    struct ibv_wc c = EXPECT_WC("V138", b.rcq, 40, IBV_WC_SUCCESS);
    CHECK("V138", c.byte_len == GRH + 4096, "%u bytes", c.byte_len);

    struct ibv_sge wrong = {(uintptr_t)a.buf, 8, b.mr->lkey};
    w = request(5, &wrong, ah, to, KEY);
    SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
    EXPECT_WC("V92", a.scq, 5, IBV_WC_LOC_PROT_ERR);
    out_of_sqe();
    SUCCEEDS(sends(6, 8, foreign, to, KEY));
    EXPECT_WC("V142", a.scq, 6, IBV_WC_LOC_QP_OP_ERR);
    out_of_sqe();
    /* The remote operands of a Write lie where a Send has its address handle, and are none. */
    int others[] = {IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM,
                    IBV_WR_SEND_WITH_INV,       IBV_WR_RDMA_READ,
                    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        struct ibv_sge t = {(uintptr_t)a.buf, 8, a.mr->lkey};
        w = request(7, &t, NULL, to, KEY);
        w.opcode = others[i];
        w.wr.rdma.remote_addr = i % 2 ? 8 : 0;
        SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
        EXPECT_WC("V81", a.scq, 7, IBV_WC_LOC_QP_OP_ERR);
        out_of_sqe();
    }
    sent(8, 12, ah, to, KEY);
    c = EXPECT_WC("V70", b.rcq, 41, IBV_WC_SUCCESS);
    CHECK("V70", c.byte_len == GRH + 12, "%u bytes: one that failed was sent", c.byte_len);
    SUCCEEDS(ibv_destroy_ah(there));
    SUCCEEDS(ibv_destroy_ah(foreign));
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* Lists, inline data, silent success, SQD, ERR and RESET. */
static void posting(void) {
    struct ibv_ah *ah = handle_to(a.pd, b.gid, 0);
    uint32_t to = b.qp->qp_num;
    for (int i = 0; i < 3; i++)
        SUCCEEDS(post_recv(&b, 50 + i, b.buf + i * 256, 256, b.mr->lkey));
    char text[] = "inline";
    struct ibv_sge parts[2] = {{(uintptr_t)a.buf, 3, a.mr->lkey},
                               {(uintptr_t)a.buf + 100, 5, a.mr->lkey}};
    struct ibv_sge in = {(uintptr_t)text, sizeof text, 0};
    struct ibv_send_wr w[3], *bad;
    w[0] = request(1, parts, ah, to, KEY);
    w[0].num_sge = 2;
    w[1] = request(2, &in, ah, to, KEY);
    w[1].send_flags = IBV_SEND_INLINE; /* and unsignaled */
    w[2] = request(3, parts, ah, to, KEY);
    w[2].num_sge = 0;
    w[0].next = &w[1];
    w[1].next = &w[2];
    SUCCEEDS(ibv_post_send(a.qp, w, &bad));
    memset(text, 0, sizeof text);
    EXPECT_WC("V83", a.scq, 1, IBV_WC_SUCCESS);
    EXPECT_WC("V83", a.scq, 3, IBV_WC_SUCCESS);
    uint32_t lengths[] = {8, sizeof text, 0};
    for (int i = 0; i < 3; i++) {
        struct ibv_wc c = EXPECT_WC("V139", b.rcq, 50 + i, IBV_WC_SUCCESS);
        CHECK("V139", c.byte_len == GRH + lengths[i], "%u bytes", c.byte_len);
    }
    CHECK("V139", memcmp(b.buf + GRH, a.buf, 3) == 0 && memcmp(b.buf + GRH + 3, a.buf + 100, 5) == 0,
          "a list of two");
    CHECK("V86", strcmp(b.buf + 256 + GRH, "inline") == 0, "%.6s", b.buf + 256 + GRH);

    struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD};
    SUCCEEDS(ibv_modify_qp(a.qp, &sqd, IBV_QP_STATE));
    SUCCEEDS(post_recv(&b, 54, b.buf, 4096, b.mr->lkey));
    SUCCEEDS(sends(5, 8, ah, to, KEY));
    EXPECT_NONE("V69", a.scq, 20);
    qp_state(a.qp, IBV_QPS_RTS);
    EXPECT_WC("V69", a.scq, 5, IBV_WC_SUCCESS);
    EXPECT_WC("V69", b.rcq, 54, IBV_WC_SUCCESS);

    SUCCEEDS(post_recv(&b, 55, b.buf, 4096, b.mr->lkey));
    qp_state(b.qp, IBV_QPS_ERR);
    EXPECT_WC("V67", b.rcq, 55, IBV_WC_WR_FLUSH_ERR);
    struct ibv_sge s = {(uintptr_t)b.buf, 8, b.mr->lkey};
    struct ibv_ah *there = handle_to(b.pd, a.gid, 0);
    struct ibv_send_wr late = request(6, &s, there, a.qp->qp_num, KEY);
    SUCCEEDS(ibv_post_send(b.qp, &late, &bad));
    EXPECT_WC("V67", b.scq, 6, IBV_WC_WR_FLUSH_ERR);
    SUCCEEDS(post_recv(&b, 56, b.buf, 4096, b.mr->lkey));
    EXPECT_WC("V67", b.rcq, 56, IBV_WC_WR_FLUSH_ERR);
    qp_state(b.qp, IBV_QPS_RESET);
    ud_init(b.qp, KEY);
    SUCCEEDS(post_recv(&b, 57, b.buf, 4096, b.mr->lkey));
    qp_state(b.qp, IBV_QPS_RESET); /* drops the receive */
    ud_up(b.qp, KEY);
    SUCCEEDS(post_recv(&b, 58, b.buf, 4096, b.mr->lkey));
    sent(7, 8, ah, to, KEY);
    EXPECT_WC("V68", b.rcq, 58, IBV_WC_SUCCESS);
    EXPECT_NONE("V68", b.rcq, 0);
    SUCCEEDS(ibv_destroy_ah(there));
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* To itself; receives of a shared queue; solicited events; the other way to post. */
static void others(void) {
    struct ibv_ah *ah = handle_to(a.pd, a.gid, 0);
    SUCCEEDS(post_recv(&a, 60, a.buf + 16384, 4096, a.mr->lkey));
    sent(1, 8, ah, a.qp->qp_num, KEY);
    struct ibv_wc c = EXPECT_WC("V143", a.rcq, 60, IBV_WC_SUCCESS);
    CHECK("V143", c.src_qp == a.qp->qp_num, "from %x", c.src_qp);

    struct ibv_srq_init_attr si = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = MADE(ibv_create_srq(b.pd, &si));
    struct ibv_qp *shares = ud_qp(&b, srq);
    ud_up(shares, KEY);
    struct ibv_sge s = {(uintptr_t)b.buf, 4096, b.mr->lkey};
    struct ibv_recv_wr r = {.wr_id = 61, .sg_list = &s, .num_sge = 1}, *badr;
    SUCCEEDS(ibv_post_srq_recv(srq, &r, &badr));
    sent(2, 8, ah, shares->qp_num, KEY);
    c = EXPECT_WC("V139", b.rcq, 61, IBV_WC_SUCCESS);
    CHECK("V139", c.qp_num == shares->qp_num, "to %x", c.qp_num);

    SUCCEEDS(ibv_req_notify_cq(b.rcq, 1));
    r.wr_id = 62;
    SUCCEEDS(ibv_post_srq_recv(srq, &r, &badr));
    r.wr_id = 63;
    SUCCEEDS(ibv_post_srq_recv(srq, &r, &badr));
    struct ibv_sge t = {(uintptr_t)a.buf, 8, a.mr->lkey};
    struct ibv_send_wr w = request(3, &t, ah, shares->qp_num, KEY), *bad;
    SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
    struct pollfd p = {b.ch->fd, POLLIN, 0};
    EXPECT_WC("V139", b.rcq, 62, IBV_WC_SUCCESS);
    CHECK("V100", poll(&p, 1, 0) == 0, "an event for a datagram that is not solicited");
    w.send_flags |= IBV_SEND_SOLICITED;
    SUCCEEDS(ibv_post_send(a.qp, &w, &bad));
    struct ibv_cq *cq;
    void *context;
    SUCCEEDS(ibv_get_cq_event(b.ch, &cq, &context)); /* nobody polls */
    CHECK("V100", cq == b.rcq, "the wrong queue");
    ibv_ack_cq_events(cq, 1);
    EXPECT_WC("V139", b.rcq, 63, IBV_WC_SUCCESS);
    EXPECT_WC("V138", a.scq, 3, IBV_WC_SUCCESS);
    EXPECT_WC("V138", a.scq, 3, IBV_WC_SUCCESS);
    SUCCEEDS(ibv_destroy_qp(shares));
    SUCCEEDS(ibv_destroy_srq(srq));

    struct ibv_qp_init_attr_ex i = {.send_cq = a.scq,
                                    .recv_cq = a.rcq,
                                    .cap = {4, 4, 2, 1, 0},
                                    .qp_type = IBV_QPT_UD,
                                    .pd = a.pd,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                    .send_ops_flags =
                                        IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
    NULLS("V71", ibv_create_qp_ex(a.ctx, &i), EOPNOTSUPP);
    i.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    struct ibv_qp *q = MADE(ibv_create_qp_ex(a.ctx, &i));
    struct ibv_qp_ex *x = MADE(ibv_qp_to_qp_ex(q));
    CHECK("V91", x->wr_set_ud_addr && x->wr_send_imm && !x->wr_rdma_write, "calls");
    ud_up(q, KEY);
    struct ibv_ah *there = handle_to(a.pd, b.gid, 0);
    SUCCEEDS(post_recv(&b, 64, b.buf, 4096, b.mr->lkey));
    ibv_wr_start(x);
    x->wr_id = 9;
    x->wr_flags = SIG;
    ibv_wr_send(x);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 8);
    FAILS("V91", ibv_wr_complete(x), EINVAL); /* no address */
    ibv_wr_start(x);
    x->wr_id = 10;
    x->wr_flags = SIG;
    ibv_wr_send_imm(x, htonl(77));
    ibv_wr_set_ud_addr(x, there, b.qp->qp_num, KEY);
    ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 20);
    SUCCEEDS(ibv_wr_complete(x));
    EXPECT_WC("V91", a.scq, 10, IBV_WC_SUCCESS);
    c = EXPECT_WC("V91", b.rcq, 64, IBV_WC_SUCCESS);
    CHECK("V91", c.byte_len == GRH + 20 && c.imm_data == htonl(77) && c.src_qp == q->qp_num,
          "%u bytes, %x from %x", c.byte_len, c.imm_data, c.src_qp);
    SUCCEEDS(ibv_destroy_qp(q));
    SUCCEEDS(ibv_destroy_ah(there));
    SUCCEEDS(ibv_destroy_ah(ah));
}

/* A place is free when its completion has been polled; a list that does not fit is posted up to there. */
static void depth(void) {
    struct ibv_ah *ah = handle_to(a.pd, b.gid, 0);
    for (uint64_t i = 0; i < 200; i++) {
        SUCCEEDS(sends(i, 8, ah, 0x000123, KEY));
        EXPECT_WC("V82", a.scq, i, IBV_WC_SUCCESS);
    }
    for (int i = 0; i < 16; i++)
        SUCCEEDS(post_recv(&b, 70 + i, b.buf, 64, b.mr->lkey));
    FAILS("V81", post_recv(&b, 99, b.buf, 64, b.mr->lkey), ENOMEM);
    for (uint64_t i = 0; i < 16; i++) {
        sent(i, 8, ah, b.qp->qp_num, KEY);
        EXPECT_WC("V139", b.rcq, 70 + i, IBV_WC_SUCCESS);
    }
    SUCCEEDS(post_recv(&b, 99, b.buf, 64, b.mr->lkey));
    sent(1, 8, ah, b.qp->qp_num, KEY);
    EXPECT_WC("V139", b.rcq, 99, IBV_WC_SUCCESS);
    SUCCEEDS(ibv_destroy_ah(ah));
}

int main(void) {
    open_end(&a, NULL, ALL);
    open_end(&b, a.ctx, ALL);
    SUCCEEDS(ibv_destroy_qp(a.qp));
    SUCCEEDS(ibv_destroy_qp(b.qp));
    a.qp = ud_qp(&a, NULL);
    b.qp = ud_qp(&b, NULL);
    states();
    ud_up(a.qp, KEY);
    ud_up(b.qp, KEY);
    handles();
    struct ibv_gid_entry entries[64];
    ssize_t gids = ibv_query_gid_table(a.ctx, entries, 64, 0);
    CHECK("V26", gids > 0, "%zd entries", gids);
    for (ssize_t i = 0; i < gids; i++) {
        if (entries[i].gid.raw[0] == 0xfe)
            continue; /* the address of a link, which says nothing without its interface */
        fields((int)entries[i].gid_index);
        one((int)entries[i].gid_index, 8, false);
        one((int)entries[i].gid_index, 1001, true);
        one((int)entries[i].gid_index, 0, false);
    }
    dropped();
    own_errors();
    posting();
    others();
    depth();
    return finish();
}
