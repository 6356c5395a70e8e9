/* Posting, completion queues, shared receive queues, the `wr_*` interface. */
#include "common.h"
#define EXPECT_LATE(cq, id)                                                            \
    do {                                                                               \
        CHECK("V152", wc.wr_id == (uint64_t)(id) && wc.status == IBV_WC_LOC_QP_OP_ERR, \
              "id %ld status %s", (long)wc.wr_id, st(wc.status));                      \
        CHECK("V92", state_of(e.qp) == IBV_QPS_ERR, "state");                          \
    } while (0)
static uint64_t K(struct end *e) {
    return e->mr->lkey;
}
static void quiet(struct ibv_context *c) {
    struct ibv_async_event ev;
    while (async_event(c, 100, &ev) >= 0)
        ibv_ack_async_event(&ev);
}
int main(void) {
    struct end e = {0}, f = {0};
    open_end(&e, NULL, ALL);
    open_end(&f, NULL, ALL);
    struct ibv_wc wc;
    pair_up(&e, &f, DEF);
    struct ibv_sge s[40];
    for (int i = 0; i < 40; i++)
        s[i] = (struct ibv_sge){(uintptr_t)e.buf + i, 1, K(&e)};
    struct ibv_recv_wr r[40], *rb;
    struct ibv_send_wr w[40], *wb;
    for (int i = 0; i < 40; i++) {
        r[i] = (struct ibv_recv_wr){
            .wr_id = i, .next = i < 39 ? &r[i + 1] : NULL, .sg_list = s, .num_sge = 1};
        w[i] = (struct ibv_send_wr){.wr_id = 1000 + i,
                                    .next = i < 39 ? &w[i + 1] : NULL,
                                    .sg_list = s,
                                    .num_sge = 1,
                                    .opcode = IBV_WR_RDMA_WRITE,
                                    .send_flags = SIG,
                                    .wr.rdma = {(uintptr_t)f.buf + i, K(&f)}};
    }
    /* bad entry in the middle: too many entries */
    struct ibv_qp_attr qa;
    struct ibv_qp_init_attr qi;
    SUCCEEDS(ibv_query_qp(e.qp, &qa, 1, &qi));
    int maxs = qi.cap.max_send_sge, maxr = qi.cap.max_recv_sge;
    /* V90: a receive may be longer than any message. */
    struct ibv_sge longer = {(uintptr_t)e.buf, 0xffffffff, K(&e)};
    struct ibv_recv_wr of_it = {.wr_id = 99, .sg_list = &longer, .num_sge = 1};
    struct ibv_qp *other = new_qp(&e);
    qp_init(other, 0);
    SUCCEEDS(ibv_post_recv(other, &of_it, &rb));
    SUCCEEDS(ibv_destroy_qp(other));
    r[2].num_sge = maxr + 1;
    rb = NULL;
    FAILS("V81", ibv_post_recv(e.qp, r, &rb), EINVAL);
    CHECK("V81", rb == &r[2], "bad_wr %ld", (long)(rb ? rb->wr_id : -1));
    r[2].num_sge = 1;
    r[15].next = NULL;
    rb = NULL;
    FAILS("V81", ibv_post_recv(e.qp, r, &rb), ENOMEM);
    CHECK("V81", rb == &r[14], "bad_wr %ld (2 are posted, 14 places)", (long)(rb ? rb->wr_id : -1));
    r[15].next = &r[16];
    r[0].num_sge = -1;
    FAILS("V81", ibv_post_recv(e.qp, r, &rb), EINVAL);
    r[0].num_sge = 1;
    w[3].next = NULL;
    w[1].num_sge = maxs + 1;
    wb = NULL;
    FAILS("V81", ibv_post_send(e.qp, w, &wb), EINVAL);
    CHECK("V81", wb == &w[1], "bad_wr %p", wb);
    EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
    EXPECT_NONE("V81", e.scq, 50);
    w[1].num_sge = 1;
    for (int o = 0; o < 6; o++) {
        int op[] = {16, 99, 1 << 30, -1, 200, 13};
        w[2].opcode = op[o];
        wb = NULL;
        FAILS("V81", ibv_post_send(e.qp, w, &wb), EINVAL);
        CHECK("V81", wb == &w[2], "bad_wr");
        EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
        EXPECT_WC("V81", e.scq, 1001, IBV_WC_SUCCESS);
        EXPECT_NONE("V81", e.scq, 5);
    }
    w[2].opcode = IBV_WR_RDMA_WRITE;
    w[2].opcode = IBV_WR_RDMA_READ;
    w[2].send_flags = SIG | IBV_SEND_INLINE;
    FAILS("V81", ibv_post_send(e.qp, w, &wb), EINVAL);
    CHECK("V81", wb == &w[2], "bad_wr inline read");
    EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
    EXPECT_WC("V81", e.scq, 1001, IBV_WC_SUCCESS);
    w[2].opcode = IBV_WR_RDMA_WRITE;
    struct ibv_sge big = {(uintptr_t)e.buf, 257, 0};
    w[2].sg_list = &big;
    wb = NULL;
    FAILS("V81/V53", ibv_post_send(e.qp, w, &wb), EINVAL);
    CHECK("V81", wb == &w[2], "bad_wr inline 257");
    EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
    EXPECT_WC("V81", e.scq, 1001, IBV_WC_SUCCESS);
    struct ibv_sge two[2] = {{(uintptr_t)e.buf, 200, 0}, {(uintptr_t)e.buf, 57, 0}};
    w[2].sg_list = two;
    w[2].num_sge = 2;
    FAILS("V81/V53", ibv_post_send(e.qp, w, &wb), EINVAL);
    CHECK("V81", wb == &w[2], "inline 257 in two");
    EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
    EXPECT_WC("V81", e.scq, 1001, IBV_WC_SUCCESS);
    struct ibv_sge over[2] = {{(uintptr_t)e.buf, 0xffffffff, 0}, {(uintptr_t)e.buf, 2, 0}};
    w[2].sg_list = over;
    FAILS("V81/V53", ibv_post_send(e.qp, w, &wb), EINVAL);
    EXPECT_WC("V81", e.scq, 1000, IBV_WC_SUCCESS);
    EXPECT_WC("V81", e.scq, 1001, IBV_WC_SUCCESS);
    w[2].num_sge = 1;
    /* V86: 256 inline from memory without key, changed after the call */
    char loc[256];
    memset(loc, 'A', 256);
    big = (struct ibv_sge){(uintptr_t)loc, 256, 0x12345};
    w[2].sg_list = &big;
    w[2].next = NULL;
    CHECK("V86", !ibv_post_send(e.qp, &w[2], &wb), "inline");
    memset(loc, 'B', 256);
    EXPECT_WC("V86", e.scq, 1002, IBV_WC_SUCCESS);
    {
        int okk = 1;
        for (int i = 0; i < 256; i++)
            okk &= f.buf[2 + i] == 'A';
        CHECK("V86", okk, "inline bytes");
    }
    w[2].sg_list = s;
    w[2].send_flags = SIG;
    w[2].next = &w[3];
    /* V81: send queue full. SQD lets requests wait, so 16 places fill */
    qp_state(e.qp, IBV_QPS_SQD);
    w[3].next = &w[4];
    wb = NULL;
    w[20].next = NULL;
    FAILS("V81", ibv_post_send(e.qp, w, &wb), ENOMEM);
    CHECK("V81", wb == &w[16], "bad_wr %ld", wb ? (long)wb->wr_id : -1);
    FAILS("V81", ibv_post_send(e.qp, &w[20], &wb), ENOMEM);
    qp_state(e.qp, IBV_QPS_RTS);
    for (int i = 0; i < 16; i++)
        EXPECT_WC("V88", e.scq, 1000 + i, IBV_WC_SUCCESS);
    EXPECT_NONE("V81", e.scq, 20);
    /* V83 unsignaled */
    CHECK("V83",
          !post(&e, 1, IBV_WR_RDMA_WRITE, 0, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)) &&
              !post(&e, 2, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)),
          "posts");
    EXPECT_WC("V83", e.scq, 2, IBV_WC_SUCCESS);
    EXPECT_NONE("V83", e.scq, 50);
    /* V82: a place is free when its completion has been polled, those of unsignaled ones with the next */
    for (int round = 0; round < 4; round++) {
        int flags = round % 2 ? SIG : 0;
        for (int i = 0; i < 16; i++) {
            int last = i == 15 ? SIG : flags;
            SUCCEEDS(post(&e, i, IBV_WR_RDMA_WRITE, last, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)));
        }
        /* Whether they have completed makes no difference. */
        FAILS("V82", post(&e, 20, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)),
              ENOMEM);
        if (flags) {
            EXPECT_WC("V82", e.scq, 0, IBV_WC_SUCCESS);
            SUCCEEDS(post(&e, 16, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)));
            FAILS("V82",
                  post(&e, 20, IBV_WR_RDMA_WRITE, SIG, e.buf, 8, K(&e), (uintptr_t)f.buf, K(&f)),
                  ENOMEM);
            for (int i = 1; i < 17; i++)
                EXPECT_WC("V82", e.scq, i, IBV_WC_SUCCESS);
        } else {
            EXPECT_WC("V82", e.scq, 15, IBV_WC_SUCCESS);
        }
        EXPECT_NONE("V82", e.scq, 5);
    }
    /* V89 zero length with any key */
    int ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    for (int i = 0; i < 2; i++) {
        {
            int z = post(&e, 60 + i, ops[i], SIG, NULL, 0, 0xdead, 0x10, 0xbeef);
            CHECK("V89", !z, "zero-length op %d: post %d", ops[i], z);
        };
        wc = EXPECT_WC("V89", e.scq, 60 + i, IBV_WC_SUCCESS);
        CHECK("V84", wc.opcode == (i ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE), "opcode %d",
              wc.opcode);
        struct ibv_send_wr z = {.wr_id = 70 + i, .opcode = ops[i], .send_flags = SIG, .num_sge = 0};
        z.wr.rdma.rkey = 0xbeef;
        CHECK("V89", !ibv_post_send(e.qp, &z, &wb), "no list");
        EXPECT_WC("V89", e.scq, 70 + i, IBV_WC_SUCCESS);
    }
    {
        struct ibv_recv_wr z = {.wr_id = 80};
        CHECK("V89", !ibv_post_recv(f.qp, &z, &rb), "recv of nothing");
        CHECK("V89", !post(&e, 81, IBV_WR_SEND, SIG, NULL, 0, 0xdead, 0, 0), "send of nothing");
        EXPECT_WC("V89", e.scq, 81, IBV_WC_SUCCESS);
        wc = EXPECT_WC("V89", f.rcq, 80, IBV_WC_SUCCESS);
        CHECK("V89", wc.byte_len == 0, "byte_len %u", wc.byte_len);
    }
    {
        struct ibv_sge m3[3] = {
            {(uintptr_t)e.buf, 4, K(&e)}, {1, 0, 0xdead}, {(uintptr_t)e.buf + 4, 4, K(&e)}};
        memcpy(e.buf, "abcdefgh", 8);
        struct ibv_send_wr z = {.wr_id = 82,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = SIG,
                                .num_sge = 3,
                                .sg_list = m3,
                                .wr.rdma = {(uintptr_t)f.buf + 900, K(&f)}};
        CHECK("V89", !ibv_post_send(e.qp, &z, &wb), "entry of 0 between");
        EXPECT_WC("V89", e.scq, 82, IBV_WC_SUCCESS);
        CHECK("V89", !memcmp(f.buf + 900, "abcdefgh", 8), "bytes");
    }
    /* A region of no bytes: one at the beginning of a page has no page, which Linux refuses. */
    {
        uintptr_t page = ((uintptr_t)f.buf + 4095) & ~(uintptr_t)4095;
        errno = 0;
        CHECK("V41", !ibv_reg_mr(f.pd, (void *)page, 0, ALL) && errno == EINVAL, "errno %d", errno);
        struct ibv_mr *one = MADE(ibv_reg_mr(f.pd, (void *)page, 1, ALL));
        SUCCEEDS(ibv_dereg_mr(one));
        struct ibv_mr *z = MADE(ibv_reg_mr(f.pd, (void *)(page + 1), 0, ALL));
        CHECK("V41",
              !post(&e, 83, IBV_WR_RDMA_WRITE, SIG, e.buf, 0, K(&e), (uintptr_t)f.buf, z->rkey),
              "0");
        EXPECT_WC("V41", e.scq, 83, IBV_WC_SUCCESS);
        CHECK("V41",
              !post(&e, 84, IBV_WR_RDMA_WRITE, SIG, e.buf, 1, K(&e), (uintptr_t)f.buf, z->rkey),
              "1");
        EXPECT_WC("V41", e.scq, 84, IBV_WC_REM_ACCESS_ERR);
        SUCCEEDS(ibv_dereg_mr(z));
    }
    qp_state(e.qp, IBV_QPS_RESET);
    qp_state(f.qp, IBV_QPS_RESET);
    while (ibv_poll_cq(e.rcq, 1, &wc) > 0 || ibv_poll_cq(f.rcq, 1, &wc) > 0 ||
           ibv_poll_cq(e.scq, 1, &wc) > 0)
        ;
    {
        pair_up(&e, &f, DEF);
        FAILS("V81",
              post(&e, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, SIG | IBV_SEND_INLINE, e.buf, 8, K(&e),
                   (uintptr_t)f.buf, K(&f)),
              EINVAL);
        CHECK("V92", state_of(e.qp) == IBV_QPS_RTS, "state");
        qp_state(e.qp, IBV_QPS_RESET);
        qp_state(f.qp, IBV_QPS_RESET);
    }
    /* V81: requests, their lists, `bad_wr` and completions at odd addresses, as libiscsi has them in packed
     * structures; two of each in a chain, with a list of two. */
    {
        pair_up(&e, &f, DEF);
        static char room[1024];
        struct ibv_sge two[2] = {{(uintptr_t)e.buf, 3, K(&e)}, {(uintptr_t)e.buf + 16, 5, K(&e)}},
                       *list = (void *)(room + 1);
        struct ibv_recv_wr *receive[2] = {(void *)(room + 101), (void *)(room + 201)}, *rb = NULL;
        struct ibv_send_wr *send[2] = {(void *)(room + 301), (void *)(room + 501)}, **bad = (void *)(room + 701);
        struct ibv_wc *odd = (void *)(room + 801), even;
        for (int i = 0; i < 2; i++) {
            struct ibv_recv_wr r = {
                .wr_id = 10 + i, .next = i ? NULL : receive[1], .sg_list = list, .num_sge = 2};
            struct ibv_send_wr w = {.wr_id = 20 + i, .next = i ? NULL : send[1], .sg_list = list,
                                    .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = SIG};
            memcpy(receive[i], &r, sizeof r);
            memcpy(send[i], &w, sizeof w);
        }
        memcpy(e.buf, "abc", 3);
        memcpy(e.buf + 16, "defgh", 5);
        struct ibv_sge there[2] = {{(uintptr_t)f.buf, 4, K(&f)}, {(uintptr_t)f.buf + 16, 4, K(&f)}};
        memcpy(list, there, sizeof there);
        SUCCEEDS(ibv_post_recv(f.qp, receive[0], &rb));
        memcpy(list, two, sizeof two);
        SUCCEEDS(ibv_post_send(e.qp, send[0], bad));
        for (int i = 0; i < 2; i++) {
            while (ibv_poll_cq(f.rcq, 1, odd) == 0)
                ;
            memcpy(&even, odd, sizeof even);
            CHECK("V81", even.status == 0 && even.byte_len == 8 && even.wr_id == 10u + i, "receive");
            CHECK("V81", !memcmp(f.buf, "abcd", 4) && !memcmp(f.buf + 16, "efgh", 4), "bytes");
            EXPECT_WC("V81", e.scq, 20 + i, IBV_WC_SUCCESS);
        }
        struct ibv_send_wr many, *named;
        memcpy(&many, send[1], sizeof many);
        many.num_sge = 1000;
        memcpy(send[1], &many, sizeof many);
        FAILS("V81", ibv_post_send(e.qp, send[1], bad), EINVAL);
        memcpy(&named, bad, sizeof named);
        CHECK("V81", named == send[1], "the request that is named");
        qp_state(e.qp, IBV_QPS_RESET);
        qp_state(f.qp, IBV_QPS_RESET);
    }
    /* V37: destroy removes its completions */
    pair_up(&e, &f, DEF);
    qp_state(e.qp, IBV_QPS_ERR);
    post(&e, 95, IBV_WR_SEND, 0, e.buf, 1, K(&e), 0, 0);
    SUCCEEDS(ibv_destroy_qp(e.qp));
    EXPECT_NONE("V37", e.scq, 30);
    e.qp = new_qp(&e);
    qp_state(f.qp, IBV_QPS_RESET);
    quiet(f.ctx);
    quiet(e.ctx);
    /* V54: a queue that is to ignore overruns loses nothing, and nothing ends. */
    for (int resized = 0; resized < 2; resized++) {
        struct end g = {0};
        open_end(&g, f.ctx, ALL);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(g.ctx));
        struct ibv_cq_init_attr_ex wanted = {.cqe = 3, .channel = channel, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                             .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
        struct ibv_cq *small = ibv_cq_ex_to_cq(MADE(ibv_create_cq_ex(g.ctx, &wanted))), *old = g.scq;
        if (resized)
            SUCCEEDS(ibv_resize_cq(small, 3));
        CHECK("V52", small->cqe == 3, "depth %d", small->cqe);
        g.scq = small;
        g.qp = new_qp(&g);
        pair_up(&g, &f, DEF);
        for (int i = 0; i < 12; i++) {
            /* Each completion is in the queue before the next request is posted. */
            struct ibv_cq *of;
            void *context;
            struct pollfd p = {channel->fd, POLLIN, 0};
            SUCCEEDS(ibv_req_notify_cq(small, 0));
            SUCCEEDS(post(&g, i, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, K(&g), (uintptr_t)f.buf, K(&f)));
            CHECK("V54", poll(&p, 1, HANG) == 1, "no event of completion %d", i);
            SUCCEEDS(ibv_get_cq_event(channel, &of, &context));
            ibv_ack_cq_events(small, 1);
        }
        CHECK("V54", state_of(g.qp) == IBV_QPS_RTS, "state %d", state_of(g.qp));
        struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
        CHECK("V54", poll(&p, 1, 0) == 0, "an event");
        for (int i = 0; i < 12; i++)
            EXPECT_WC("V54", small, i, IBV_WC_SUCCESS);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        g.scq = old;
        SUCCEEDS(ibv_destroy_cq(small));
        SUCCEEDS(ibv_destroy_comp_channel(channel));
        qp_state(f.qp, IBV_QPS_RESET);
        quiet(f.ctx);
    }
    /* V54 overrun: queue of 1 with two completions */
    {
        struct end g = {0};
        open_end(&g, f.ctx, ALL);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(g.ctx));
        struct ibv_cq *small = MADE(ibv_create_cq(g.ctx, 3, NULL, channel, 0)), *old = g.scq,
                      *old_receive = g.rcq;
        g.scq = small;
        g.rcq = small;
        g.qp = new_qp(&g);
        pair_up(&g, &f, DEF);
        CHECK("V52", small->cqe == 3, "depth");
        for (int i = 0; i < 3; i++) {
            /* Each completion is in the queue before the next request is posted. */
            struct ibv_cq *of;
            void *context;
            SUCCEEDS(ibv_req_notify_cq(small, 0));
            SUCCEEDS(post(&g, i, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, K(&g), (uintptr_t)f.buf, K(&f)));
            SUCCEEDS(ibv_get_cq_event(channel, &of, &context));
            ibv_ack_cq_events(small, 1);
        }
        CHECK("V54", state_of(g.qp) == IBV_QPS_RTS, "3 fit");
        {
            struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
            CHECK("V54", poll(&p, 1, 0) == 0, "event too early");
        }
        FAILS("V55", ibv_resize_cq(small, 1), EINVAL);
        CHECK("V55", small->cqe == 3, "cqe");
        /* The queue's line names its users: `g.qp` is one, whose completions of both kinds it takes. */
        int said[2], kept = dup(2);
        char line[300] = "";
        SUCCEEDS(pipe(said));
        dup2(said[1], 2);
        SUCCEEDS(post(&g, 3, IBV_WR_RDMA_WRITE, SIG, g.buf, 8, K(&g), (uintptr_t)f.buf, K(&f)));
        FILE *lines = MADE(fdopen(said[0], "r"));
        CHECK("V54", fgets(line, sizeof line, lines), "no line");
        dup2(kept, 2);
        close(kept);
        fclose(lines);
        close(said[1]);
        CHECK("V54", strstr(line, "for 3 completions ran over; its 1 queue pairs end"), "%s", line);
        int cqerr = 0, fatal = 0;
        struct ibv_async_event ev;
        for (int i = 0; i < 2; i++) {
            int t = async_event(g.ctx, HANG, &ev);
            if (t == IBV_EVENT_CQ_ERR) {
                cqerr++;
                CHECK("V54", ev.element.cq == small, "cq");
            } else if (t == IBV_EVENT_QP_FATAL) {
                fatal++;
                CHECK("V54", ev.element.qp == g.qp, "qp");
            }
            if (t >= 0)
                ibv_ack_async_event(&ev);
        }
        CHECK("V54", cqerr == 1 && fatal == 1, "CQ_ERR %d QP_FATAL %d", cqerr, fatal);
        CHECK("V54", state_of(g.qp) == IBV_QPS_ERR, "state %d", state_of(g.qp));
        for (int i = 0; i < 3; i++)
            EXPECT_WC("V54", small, i, IBV_WC_SUCCESS);
        {
            struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
            CHECK("V54", poll(&p, 1, 100) == 0, "once");
        }
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_cq(small));
        SUCCEEDS(ibv_destroy_comp_channel(channel));
        SUCCEEDS(ibv_destroy_cq(old));
        SUCCEEDS(ibv_destroy_cq(old_receive));
        qp_state(f.qp, IBV_QPS_RESET);
        while (ibv_poll_cq(f.scq, 1, &wc) > 0)
            ;
    }
    quiet(f.ctx);
    /* V58..V60 SRQ in a PD of its own */
    {
        struct end g = {0};
        open_end(&g, f.ctx, ALL);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        struct ibv_pd *p2 = MADE(ibv_alloc_pd(g.ctx));
        struct ibv_srq_init_attr sa = {.attr = {8, 2, 0}, .srq_context = &g};
        g.srq = MADE(ibv_create_srq(p2, &sa));
        CHECK("V58", g.srq->pd == p2 && g.srq->srq_context == &g, "members");
        CHECK("V58", sa.attr.max_wr >= 8 && sa.attr.max_sge >= 2, "granted %u %u", sa.attr.max_wr,
              sa.attr.max_sge);
        g.qp = new_qp(&g);
        struct ibv_mr *m2 = MADE(ibv_reg_mr(p2, g.buf, g.len, ALL));
        pair_up(&g, &f, DEF);
        /* V28: sizes of the receive queue that such a queue pair does not have are not looked at. */
        struct ibv_srq_init_attr plain = {.attr = {8, 1, 0}};
        struct ibv_srq *of_e = MADE(ibv_create_srq(e.pd, &plain));
        struct ibv_qp_init_attr ignored = {.send_cq = e.scq,
                                           .recv_cq = e.rcq,
                                           .srq = of_e,
                                           .cap = {16, 0xffffffff, 1, 0xffffffff, 0},
                                           .qp_type = IBV_QPT_RC};
        SUCCEEDS(ibv_destroy_qp(MADE(ibv_create_qp(e.pd, &ignored))));
        SUCCEEDS(ibv_destroy_srq(of_e));
        struct ibv_srq_attr q;
        SUCCEEDS(ibv_query_srq(g.srq, &q));
        CHECK("V58", q.max_wr == sa.attr.max_wr && q.max_sge == sa.attr.max_sge && q.srq_limit == 0,
              "query %u %u %u", q.max_wr, q.max_sge, q.srq_limit);
        FAILS("V58", post_recv(&g, 1, g.buf, 8, K(&g)), EINVAL);
        struct ibv_sge ss[40];
        for (int i = 0; i < 40; i++)
            ss[i] = (struct ibv_sge){(uintptr_t)g.buf + 64 * i, 64, m2->lkey};
        for (int i = 0; i < 40; i++)
            r[i] = (struct ibv_recv_wr){.wr_id = 300 + i,
                                        .next = i < 39 ? &r[i + 1] : NULL,
                                        .sg_list = ss + i,
                                        .num_sge = 1};
        int n = q.max_wr;
        rb = NULL;
        FAILS("V58", ibv_post_srq_recv(g.srq, r, &rb), ENOMEM);
        CHECK("V58", rb == &r[n], "bad_wr %ld of %d", rb ? (long)rb->wr_id : -1, n);
        struct ibv_recv_wr one = r[39];
        one.num_sge = q.max_sge + 1;
        one.sg_list = ss;
        struct ibv_srq_attr lim = {.srq_limit = q.max_wr + 1};
        FAILS("V58", ibv_modify_srq(g.srq, &lim, IBV_SRQ_LIMIT), EINVAL);
        SUCCEEDS(ibv_query_srq(g.srq, &q));
        CHECK("V58", q.srq_limit == 0, "limit %u", q.srq_limit);
        lim.srq_limit = n - 1;
        SUCCEEDS(ibv_modify_srq(g.srq, &lim, IBV_SRQ_LIMIT));
        SUCCEEDS(ibv_query_srq(g.srq, &q));
        CHECK("V59", q.srq_limit == n - 1, "limit %u", q.srq_limit);
        struct ibv_srq_attr shr = {.max_wr = n / 2};
        FAILS("V58", ibv_modify_srq(g.srq, &shr, IBV_SRQ_MAX_WR), EINVAL);
        FAILS("V58", ibv_modify_srq(g.srq, &shr, 4), EINVAL);
        struct ibv_async_event ev;
        int t;
        {
            struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
            CHECK("V59", poll(&p, 1, 100) == 0, "limit event before");
        }
        SUCCEEDS(post(&f, 1, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V58", f.scq, 1, IBV_WC_SUCCESS);
        EXPECT_WC("V58", g.rcq, 300, IBV_WC_SUCCESS);
        {
            struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
            CHECK("V59", poll(&p, 1, 100) == 0, "n-1 left is not fewer than n-1");
        }
        SUCCEEDS(post(&f, 2, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V58", f.scq, 2, IBV_WC_SUCCESS);
        wc = EXPECT_WC("V58", g.rcq, 301, IBV_WC_SUCCESS);
        CHECK("V57", wc.qp_num == g.qp->qp_num, "qp_num");
        t = async_event(g.ctx, HANG, &ev);
        CHECK("V59", t == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == g.srq, "event %d", t);
        if (t >= 0)
            ibv_ack_async_event(&ev);
        SUCCEEDS(ibv_query_srq(g.srq, &q));
        CHECK("V59", q.srq_limit == 0, "limit after it fired %u", q.srq_limit);
        SUCCEEDS(post(&f, 3, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V58", f.scq, 3, IBV_WC_SUCCESS);
        EXPECT_WC("V58", g.rcq, 302, IBV_WC_SUCCESS);
        {
            struct pollfd p = {g.ctx->async_fd, POLLIN, 0};
            CHECK("V59", poll(&p, 1, 100) == 0, "raised twice");
        }
        lim.srq_limit = n - 1;
        SUCCEEDS(ibv_modify_srq(g.srq, &lim, IBV_SRQ_LIMIT)); /* already below: rearm */
        SUCCEEDS(post(&f, 4, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V58", g.rcq, 303, IBV_WC_SUCCESS);
        EXPECT_WC("V58", f.scq, 4, IBV_WC_SUCCESS);
        t = async_event(g.ctx, HANG, &ev);
        CHECK("V59", t == IBV_EVENT_SRQ_LIMIT_REACHED, "rearmed event %d", t);
        if (t >= 0)
            ibv_ack_async_event(&ev);
        one.num_sge = sa.attr.max_sge + 1;
        rb = NULL;
        FAILS("V58", ibv_post_srq_recv(g.srq, &one, &rb), EINVAL);
        CHECK("V58", rb == &one, "bad_wr");
        shr.max_wr = 100;
        int mr = ibv_modify_srq(g.srq, &shr, IBV_SRQ_MAX_WR);
        CHECK("V58", mr == 0, "grow %d", mr);
        SUCCEEDS(ibv_query_srq(g.srq, &q));
        CHECK("V58", q.max_wr >= 100, "max_wr %u", q.max_wr);
        /* circular list */
        struct ibv_recv_wr circ = r[0];
        circ.num_sge = 1;
        circ.next = &circ;
        rb = NULL;
        FAILS("V58", ibv_post_srq_recv(g.srq, &circ, &rb), ENOMEM);
        /* V60 */
        qp_state(g.qp, IBV_QPS_ERR);
        t = async_event(g.ctx, HANG, &ev);
        CHECK("V60", t == IBV_EVENT_QP_LAST_WQE_REACHED && ev.element.qp == g.qp, "event %d", t);
        if (t >= 0)
            ibv_ack_async_event(&ev);
        EXPECT_NONE("V60", g.rcq, 50);
        /* the waiting receives serve another queue pair; a receive in the queue pair's PD fails
         * (V58) */
        FAILS("V35", ibv_destroy_srq(g.srq), EBUSY);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        qp_state(f.qp, IBV_QPS_RESET);
        while (ibv_poll_cq(f.scq, 1, &wc) > 0)
            ;
        g.qp = new_qp(&g);
        pair_up(&g, &f, DEF);
        SUCCEEDS(post(&f, 5, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V60", f.scq, 5, IBV_WC_SUCCESS);
        EXPECT_WC("V60", g.rcq, 304, IBV_WC_SUCCESS);
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_srq(g.srq));
        g.srq = NULL;
        qp_state(f.qp, IBV_QPS_RESET);
        while (ibv_poll_cq(f.scq, 1, &wc) > 0)
            ;
        sa.attr = (struct ibv_srq_attr){4, 1, 0};
        g.srq = MADE(ibv_create_srq(p2, &sa));
        g.qp = new_qp(&g);
        struct ibv_sge bad = {(uintptr_t)g.buf, 64, g.mr->lkey};
        struct ibv_recv_wr br = {.wr_id = 400, .sg_list = &bad, .num_sge = 1};
        SUCCEEDS(ibv_post_srq_recv(g.srq, &br, &rb));
        pair_up(&g, &f, DEF);
        SUCCEEDS(post(&f, 6, IBV_WR_SEND, SIG, f.buf, 8, K(&f), 0, 0));
        EXPECT_WC("V58", f.scq, 6, IBV_WC_REM_OP_ERR);
        EXPECT_WC("V58", g.rcq, 400, IBV_WC_LOC_PROT_ERR);
        CHECK("V92", state_of(g.qp) == IBV_QPS_ERR, "state");
        {
            int seen = 0;
            for (int i = 0; i < 3; i++) {
                t = async_event(g.ctx, seen ? 100 : HANG, &ev);
                if (t == IBV_EVENT_QP_LAST_WQE_REACHED)
                    seen++;
                if (t >= 0)
                    ibv_ack_async_event(&ev);
                else
                    break;
            }
            CHECK("V60", seen == 1, "last wqe %d", seen);
        }
        SUCCEEDS(ibv_destroy_qp(g.qp));
        SUCCEEDS(ibv_destroy_srq(g.srq));
        qp_state(f.qp, IBV_QPS_RESET);
        while (ibv_poll_cq(f.scq, 1, &wc) > 0)
            ;
    }
    /* V91 */
    {
        struct ibv_qp_init_attr_ex x = {
            .send_cq = e.scq,
            .recv_cq = e.rcq,
            .qp_type = 2,
            .cap = {4, 1, 2, 1, 16},
            .pd = e.pd,
            .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND};
        struct ibv_qp *q = MADE(ibv_create_qp_ex(e.ctx, &x));
        struct ibv_qp_ex *qx = MADE(ibv_qp_to_qp_ex(q));
        CHECK("V91", (void *)qx == (void *)q, "same address");
        CHECK("V91",
              qx->wr_rdma_write && qx->wr_send && !qx->wr_rdma_read && !qx->wr_send_imm &&
                  !qx->wr_local_inv && !qx->wr_rdma_write_imm && !qx->wr_bind_mw &&
                  !qx->wr_atomic_cmp_swp && !qx->wr_send_inv,
              "pointers");
        SUCCEEDS(ibv_destroy_qp(e.qp));
        e.qp = q;
        ibv_wr_start(qx);
        qx->wr_id = 1;
        qx->wr_flags = SIG;
        ibv_wr_send(qx);
        ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        FAILS("V65", ibv_wr_complete(qx), EINVAL);
        pair_up(&e, &f, DEF);
#define W(id, p)                                              \
    do {                                                      \
        qx->wr_id = id;                                       \
        qx->wr_flags = SIG;                                   \
        ibv_wr_rdma_write(qx, K(&f), (uintptr_t)f.buf + (p)); \
    } while (0)
        memcpy(e.buf, "0123456789", 10);
        ibv_wr_start(qx);
        W(1, 2000);
        ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        W(2, 2004);
        ibv_wr_set_inline_data(qx, "inl!", 4);
        CHECK("V91", ibv_wr_complete(qx) == 0, "complete");
        EXPECT_WC("V91", e.scq, 1, IBV_WC_SUCCESS);
        EXPECT_WC("V91", e.scq, 2, IBV_WC_SUCCESS);
        CHECK("V91", !memcmp(f.buf + 2000, "0123inl!", 8), "bytes");
        char longer[300];
        memset(longer, 'L', 300);
        ibv_wr_start(qx);
        W(3, 2100);
        ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        W(4, 2104);
        ibv_wr_set_inline_data(qx, longer, x.cap.max_inline_data + 1);
        FAILS("V91", ibv_wr_complete(qx), EINVAL);
        EXPECT_NONE("V91", e.scq, 50);
        CHECK("V91", f.buf[2100] == 0, "none posted");
        ibv_wr_start(qx);
        W(5, 2100);
        ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        ibv_wr_abort(qx);
        EXPECT_NONE("V91", e.scq, 50);
        CHECK("V91", f.buf[2100] == 0, "abort");
        ibv_wr_start(qx);
        for (int i = 0; i < 40; i++) {
            W(10 + i, 2100);
            ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        }
        FAILS("V91", ibv_wr_complete(qx), ENOMEM);
        EXPECT_NONE("V91", e.scq, 50);
        CHECK("V91", f.buf[2100] == 0, "all or none");
        struct ibv_sge l3[5];
        for (int i = 0; i < 5; i++)
            l3[i] = (struct ibv_sge){(uintptr_t)e.buf + i, 1, K(&e)};
        SUCCEEDS(ibv_query_qp(q, &qa, 1, &qi));
        if (qi.cap.max_send_sge < 5) {
            ibv_wr_start(qx);
            W(6, 2100);
            ibv_wr_set_sge_list(qx, qi.cap.max_send_sge + 1, l3);
            FAILS("V91", ibv_wr_complete(qx), EINVAL);
            EXPECT_NONE("V91", e.scq, 20);
        }
        ibv_wr_start(qx);
        W(7, 2200);
        ibv_wr_set_sge_list(qx, 2, l3);
        W(8, 2202);
        struct ibv_data_buf db[2] = {{"xy", 2}, {"z", 1}};
        ibv_wr_set_inline_data_list(qx, 2, db);
        CHECK("V91", !ibv_wr_complete(qx), "complete");
        EXPECT_WC("V91", e.scq, 7, IBV_WC_SUCCESS);
        EXPECT_WC("V91", e.scq, 8, IBV_WC_SUCCESS);
        CHECK("V91", !memcmp(f.buf + 2200, "01xyz", 5), "bytes");
        struct ibv_data_buf wraps[2] = {{longer, 8}, {longer, (size_t)-8}};
        ibv_wr_start(qx);
        W(9, 2202);
        ibv_wr_set_inline_data_list(qx, 2, wraps);
        FAILS("V91", ibv_wr_complete(qx), EINVAL);
        qp_state(q, IBV_QPS_SQD);
        ibv_wr_start(qx);
        for (int i = 0; i < 40; i++) {
            W(10 + i, 2400);
            ibv_wr_set_sge(qx, K(&e), (uintptr_t)e.buf, 4);
        }
        FAILS("V91", ibv_wr_complete(qx), ENOMEM);
        qp_state(q, IBV_QPS_RTS);
        EXPECT_NONE("V91 all or none in SQD", e.scq, 50);
        CHECK("V91", f.buf[2400] == 0, "all or none in SQD");
        ibv_wr_start(qx);
        CHECK("V91", ibv_wr_complete(qx) == 0, "nothing");
        CHECK("V81",
              !post(&e, 9, IBV_WR_RDMA_WRITE, SIG, e.buf, 4, K(&e), (uintptr_t)f.buf + 2300, K(&f)),
              "old post");
        EXPECT_WC("V81", e.scq, 9, IBV_WC_SUCCESS);
        SUCCEEDS(ibv_destroy_qp(q));
    }
    /* V53 */
    int inl[][2] = {{0, 256}, {1, 256}, {256, 256}, {257, 257}, {4096, 4096}};
    for (int i = 0; i < 5; i++) {
        struct ibv_qp_init_attr a = {
            .send_cq = e.scq, .recv_cq = e.rcq, .cap = {1, 1, 1, 1, inl[i][0]}, .qp_type = 2};
        struct ibv_qp *q = MADE(ibv_create_qp(e.pd, &a));
        CHECK("V53", a.cap.max_inline_data == inl[i][1], "%d -> %u", inl[i][0],
              a.cap.max_inline_data);
        SUCCEEDS(ibv_destroy_qp(q));
    }
    return finish();
}
