/* A program that writes the start-up of a rendezvous by itself, with numbers of its choice and heeding no
 * answer, gets no queue pair that has its peer (V75): not with the peer's own number either, which
 * any process of the host may send from the peer's address. */
#include "common.h"
#include "claims.h"
enum { ACCEPTED, REJECTED, CLOSED };
static struct end e, f;
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t sum = ~0u;
    for (size_t i = 0; i < n; i++) {
        sum ^= p[i];
        for (int k = 0; k < 8; k++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
    }
    return ~sum;
}
/* The start-up of a queue pair of type `kind` and number `source` for `destination`; its answer. */
static int claim(int s, uint8_t kind, uint32_t source, uint32_t destination) {
    uint8_t reply[20], rest[512];
    if (!say(s, kind, source, destination) || !all_of(s, reply, 20))
        return CLOSED;
    size_t more = reply[18] << 8 | reply[19];
    if (memcmp(reply, "MPA ID Rep Frame", 16) || more > sizeof rest || !all_of(s, rest, more)) {
        CHECK("V75", false, "no Reply came");
        return CLOSED;
    }
    return reply[16] & 0x20 ? REJECTED : ACCEPTED;
}
/* An RDMA Write of eight bytes of 0x99, whatever the answer was. The connection may be gone. */
static void write_anyway(int s, const struct end *to) {
    uint8_t frame[28] = {0, 22, 0xc1, 0x40};
    put32(frame + 4, to->mr->rkey);
    put32(frame + 8, (uintptr_t)to->buf >> 32);
    put32(frame + 12, (uint32_t)(uintptr_t)to->buf);
    memset(frame + 16, 0x99, 8);
    uint32_t sum = htole32(crc32c(frame, 24));
    memcpy(frame + 24, &sum, 4);
    if (send(s, frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame)
        while (recv(s, frame, sizeof frame, 0) > 0)
            ;
}
/* A Send each way; what was posted before is served first. */
static uint64_t turn = 0;
static void go_on(const char *what) {
    struct end *both[] = {&e, &f};
    for (int i = 0; i < 2; i++) {
        struct end *from = both[i], *to = both[!i];
        SUCCEEDS(post_recv(to, turn + 1, to->buf + 64, 8, to->mr->lkey));
        SUCCEEDS(post(from, turn, IBV_WR_SEND, SIG, from->buf + 128, 8, from->mr->lkey, 0, 0));
        EXPECT_WC(what, from->scq, turn, IBV_WC_SUCCESS);
        EXPECT_WC(what, to->rcq, turn, IBV_WC_SUCCESS);
        EXPECT_NONE(what, to->rcq, 0);
        CHECK(what, state_of(from->qp) == IBV_QPS_RTS, "state %d", state_of(from->qp));
    }
    for (int i = 0; i < 2; i++)
        CHECK(what, both[i]->buf[0] == 0x11 + i, "byte %x", both[i]->buf[0]);
    turn++;
}
static void attack(struct end *victim, struct end *peer, uint8_t kind, uint32_t source,
                   uint32_t destination, const char *what) {
    int s = reach(peer->gid, victim->gid, destination);
    int answer = claim(s, kind, source, destination);
    CHECK("V75", answer != ACCEPTED, "%s was accepted", what);
    write_anyway(s, victim);
    close(s);
    go_on(what);
}
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_end(&e, NULL, ALL);
    open_end(&f, NULL, ALL);
    memset(e.buf, 0x11, 64);
    memset(f.buf, 0x12, 64);
    pair_up(&e, &f, DEF);
    struct end *both[] = {&e, &f};
    /* A receive waits at both sides throughout. */
    for (int i = 0; i < 2; i++)
        SUCCEEDS(post_recv(both[i], 0, both[i]->buf + 64, 8, both[i]->mr->lkey));
    go_on("up");
    /* The side with the smaller number, and the side with the larger one. */
    for (int i = 0; i < 2; i++) {
        struct end *v = both[i], *p = both[!i];
        uint32_t own = v->qp->qp_num, peer = p->qp->qp_num;
        attack(v, p, IBV_QPT_RC, peer, own, "the peer's own number");
        attack(v, p, IBV_QPT_UC, peer, own, "another type");
        attack(v, p, IBV_QPT_RC, peer ^ 1, own, "another number");
        attack(v, p, IBV_QPT_RC, own, own, "the queue pair's own number");
        attack(v, p, IBV_QPT_RC, peer, own ^ 1, "a queue pair that there is not");
        int held[8];
        for (int k = 0; k < 8; k++)
            held[k] = reach(p->gid, v->gid, own);
        for (int k = 0; k < 8; k++)
            CHECK("V75", claim(held[k], IBV_QPT_RC, peer, own) != ACCEPTED, "claim %d of 8", k);
        go_on("eight claims at a time");
        for (int k = 0; k < 8; k++)
            close(held[k]);
    }
    /* The peer itself may come anew (V68, V79). Each side has one receive. */
    uint64_t last = turn;
    for (int i = 0; i < 2; i++) {
        struct end *back = both[i], *stays = both[!i];
        qp_state(back->qp, IBV_QPS_RESET);
        qp_up(back->qp, stays->gid, stays->qp->qp_num, DEF);
        /* A Send of its own waits for the new connection; its last one has ended then. */
        SUCCEEDS(post(back, 5, IBV_WR_SEND, SIG, back->buf + 128, 8, back->mr->lkey, 0, 0));
        EXPECT_WC("V79", back->scq, 5, IBV_WC_SUCCESS);
        EXPECT_WC("V79", stays->rcq, last, IBV_WC_SUCCESS);
        last = 7; /* which waits at the side that came anew */
        SUCCEEDS(post_recv(back, last, back->buf + 64, 8, back->mr->lkey));
        SUCCEEDS(post(stays, 6, IBV_WR_SEND, SIG, stays->buf + 128, 8, stays->mr->lkey, 0, 0));
        EXPECT_WC("V79", stays->scq, 6, IBV_WC_SUCCESS);
        EXPECT_WC("V79", back->rcq, last, IBV_WC_SUCCESS);
        SUCCEEDS(post_recv(back, last, back->buf + 64, 8, back->mr->lkey));
    }
    return finish();
}
