/* Connections of rdma_cm between identifiers of this process: every call in every state, right and wrong, with the
 * events of both sides. */
#define _GNU_SOURCE
#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 3, CALLS = 36, SOON = 10000, QUIET = 150 };

enum phase { NEW, BOUND, RESOLVED, ROUTED, ASKING, ANSWERED, OVER };

struct slot {
    struct rdma_cm_id *client, *server;
    enum phase phase;
    int client_pair, server_pair; /* they have queue pairs */
    uint8_t in, out;              /* the reads that the client has asked for */
};
static __thread struct rdma_event_channel *channel;
static __thread struct rdma_cm_id *listener;
static __thread struct slot slots[SLOTS];
static __thread struct sockaddr_in6 place; /* of the listener, whatever the family */
static __thread struct ibv_pd *pd;
static __thread struct ibv_cq *cq;
static __thread struct ibv_mr *mr;
static __thread uint8_t *bytes;

static const char *result(int returned) { return returned ? name(errno) : "ok"; }

static void address(struct sockaddr_in6 *at, uint16_t port) {
    memset(at, 0, sizeof *at);
    if (IN6_IS_ADDR_V4MAPPED((struct in6_addr *)&gid)) {
        struct sockaddr_in *four = (struct sockaddr_in *)at;
        four->sin_family = AF_INET;
        four->sin_port = port;
        memcpy(&four->sin_addr, gid.raw + 12, 4);
    } else {
        at->sin6_family = AF_INET6;
        at->sin6_port = port;
        memcpy(&at->sin6_addr, gid.raw, 16);
    }
}

/* ---- events -------------------------------------------------------------------------------------------- */

static const char *of(struct rdma_cm_id *id, int *number) {
    for (int i = 0; i < SLOTS; i++) {
        *number = i;
        if (slots[i].client == id) return "client";
        if (slots[i].server == id) return "server";
    }
    *number = -1;
    return id == listener ? "listener" : "none";
}

/* Events of one call: so many are waited for, and what comes soon behind them. Those of both sides come in no order. */
static void events(int due) {
    char *text[2 * SLOTS + 2] = {0};
    size_t sizes[2 * SLOTS + 2];
    FILE *files[2 * SLOTS + 2], *all = out;
    for (int i = 0; i < 2 * SLOTS + 2; i++) files[i] = open_memstream(&text[i], &sizes[i]);
    for (;;) {
        struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
        struct rdma_cm_event *event;
        if (poll(&ready, 1, due > 0 ? SOON : QUIET) != 1 || rdma_get_cm_event(channel, &event)) break;
        if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
            rdma_ack_cm_event(event);
            continue;
        }
        due--;
        int number;
        const char *whose;
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            /* Of the client that asks: it has said who it is in its first byte. */
            number = event->param.conn.private_data ? *(const uint8_t *)event->param.conn.private_data % SLOTS : 0;
            slots[number].server = event->id;
            whose = "server";
        } else {
            whose = of(event->id, &number);
        }
        out = files[number < 0 ? 2 * SLOTS : 2 * number + (*whose == 's')];
        say(" %s %d: %s, status %d", whose, number, rdma_event_str(event->event), event->status);
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST || event->event == RDMA_CM_EVENT_ESTABLISHED ||
            event->event == RDMA_CM_EVENT_REJECTED) {
            const struct rdma_conn_param *p = &event->param.conn;
            say("  private %u bytes, sum %llx, reads %u and %u", p->private_data_len,
                (unsigned long long)sum_of(p->private_data, p->private_data ? p->private_data_len : 0), p->responder_resources,
                p->initiator_depth);
        }
        out = all;
        rdma_ack_cm_event(event);
    }
    for (int i = 0; i < 2 * SLOTS + 2; i++) {
        fclose(files[i]);
        fputs(text[i], out);
        free(text[i]);
    }
    if (due > 0) say(" %d events have not come", due);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static void give_up(int i) {
    struct slot *s = &slots[i];
    if (s->client && s->client->qp) rdma_destroy_qp(s->client);
    if (s->server && s->server->qp) rdma_destroy_qp(s->server);
    int first = (int)any(2);
    for (int turn = 0; turn < 2; turn++) {
        struct rdma_cm_id **id = turn == first ? &s->client : &s->server;
        if (!*id) continue;
        struct rdma_cm_id *other = id == &s->client ? s->server : s->client;
        int heard = other && (s->phase == ANSWERED || (s->phase == ASKING && id == &s->server));
        say("destroy %s %d: %s", id == &s->client ? "client" : "server", i, result(rdma_destroy_id(*id)));
        *id = NULL;
        events(heard);
    }
    memset(s, 0, sizeof *s);
}

static int pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
    return rdma_create_qp(id, pd, &init);
}

static struct rdma_conn_param parameters(uint8_t *private, int most, int number) {
    struct rdma_conn_param p = {.retry_count = 7, .rnr_retry_count = 7};
    fill(private, 256);
    private[0] = (uint8_t)(number + SLOTS * (int)any(20));
    p.private_data = private;
    p.private_data_len = (uint8_t)(1 + any((uint32_t)most));
    p.responder_resources = (uint8_t)any(5);
    p.initiator_depth = (uint8_t)any(5);
    return p;
}

/* A message each way, or what comes instead. */
static void exchange(int i) {
    struct slot *s = &slots[i];
    struct rdma_cm_id *ids[2] = {s->client, s->server};
    if (!s->client_pair || !s->server_pair) return;
    if (!ids[0]->qp || !ids[1]->qp) return; /* rxe's server has asked once more: a client took its request back */
    for (int at = 0; at < 2; at++) {
        uint32_t length = any(64);
        fill(bytes, 128);
        int posted = rdma_post_recv(ids[1 - at], (void *)1, bytes + 64, 64, mr);
        int sent = rdma_post_send(ids[at], (void *)2, bytes, length, mr, 0);
        say("message of %d to %d of %d, %u bytes: receive %s, send %s", at, 1 - at, i, length, name(posted ? errno : 0),
            name(sent ? errno : 0));
        uint64_t since = milliseconds();
        const char *status[3] = {"none", "none", "none"};
        uint32_t came = 0;
        for (int due = !posted + !sent; due > 0 && milliseconds() - since < 2000;) {
            struct ibv_wc wc;
            if (ibv_poll_cq(cq, 1, &wc) != 1) {
                usleep(300);
                continue;
            }
            due--;
            status[wc.wr_id % 3] = ibv_wc_status_str(wc.status);
            if (wc.wr_id == 1) came = wc.status ? 0 : wc.byte_len;
        }
        say(" receive: %s, %u bytes, as sent %d; send: %s", status[1], came, !memcmp(bytes, bytes + 64, came), status[2]);
    }
}

static void call(int i) {
    struct slot *s = &slots[i];
    uint8_t private[256];
    struct sockaddr_in6 there = place;
    int right = !one_in(6);
    if (!s->client) {
        say("client %d: %s", i, result(rdma_create_id(channel, &s->client, NULL, RDMA_PS_TCP)));
        s->phase = NEW;
        return;
    }
    if (!right) { /* a call that is wrong, most of the time */
        struct rdma_cm_id *id = s->server && one_in(2) ? s->server : s->client;
        const char *whose = id == s->client ? "client" : "server";
        struct rdma_conn_param p = parameters(private, 40, i);
        switch (any(8)) {
        case 0:
            if (s->phase == RESOLVED || !id->verbs) return; /* librdmacm dies without a device */
            say("route of %s %d in %d: %s", whose, i, s->phase, result(rdma_resolve_route(id, 2000)));
            break;
        case 1:
            if (s->phase <= BOUND && id == s->client) return;
            say("address of %s %d in %d: %s", whose, i, s->phase,
                result(rdma_resolve_addr(id, NULL, (struct sockaddr *)&there, 2000)));
            break;
        case 2:
            if (!id->verbs || (s->phase == ROUTED && id == s->client)) return; /* the same */
            say("connect %s %d in %d: %s", whose, i, s->phase, result(rdma_connect(id, &p)));
            break;
        case 3:
            if (!id->verbs || (id == s->server && s->phase == ASKING)) return;
            say("accept %s %d in %d: %s", whose, i, s->phase, result(rdma_accept(id, &p)));
            break;
        case 4:
            if (id == s->server && s->phase == ASKING) return;
            say("reject %s %d in %d: %s", whose, i, s->phase, result(rdma_reject(id, private, 4)));
            break;
        case 5:
            if (s->phase <= BOUND && id == s->client) return;
            say("listen %s %d in %d: %s", whose, i, s->phase, result(rdma_listen(id, 1)));
            break;
        case 6:
            if (s->phase == NEW && id == s->client) return;
            say("bind %s %d in %d: %s", whose, i, s->phase, result(rdma_bind_addr(id, (struct sockaddr *)&there)));
            break;
        case 7: {
            struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
            int mask = 0;
            if (s->phase != ANSWERED) return; /* before it, Linux knows nothing of the peer, or gives those for INIT */
            int error = rdma_init_qp_attr(id, &attr, &mask);
            say("attributes of %s %d in %d: %s, %x", whose, i, s->phase, result(error), mask);
        }
        }
        events(0);
        return;
    }
    switch (s->phase) {
    case NEW:
        if (one_in(3)) { /* to a port of its own, an address that is none of this host's, or the listener's port */
            struct sockaddr_in6 own;
            int what = (int)any(4);
            address(&own, what == 1 ? rdma_get_src_port(listener) : 0);
            if (what == 2 && own.sin6_family == AF_INET) ((struct sockaddr_in *)&own)->sin_addr.s_addr = htonl(0xCB007109);
            int error = rdma_bind_addr(s->client, (struct sockaddr *)&own);
            say("bind client %d, %d: %s", i, what, result(error));
            if (!error) s->phase = BOUND;
            break;
        }
        /* fall through */
    case BOUND: {
        int error = rdma_resolve_addr(s->client, NULL, (struct sockaddr *)&there, 5000);
        say("address of client %d: %s", i, result(error));
        events(!error);
        if (!error) s->phase = RESOLVED;
        break;
    }
    case RESOLVED: {
        int error = rdma_resolve_route(s->client, 5000);
        say("route of client %d: %s", i, result(error));
        events(!error);
        if (!error) s->phase = ROUTED;
        break;
    }
    case ROUTED: {
        if (!s->client_pair) {
            int error = pair(s->client);
            say("queue pair of client %d: %s", i, result(error));
            s->client_pair = !error;
            break;
        }
        struct rdma_conn_param p = parameters(private, one_in(12) ? 200 : 56, i);
        int error = rdma_connect(s->client, &p);
        say("connect client %d, %u bytes, reads %u and %u: %s", i, p.private_data_len, p.responder_resources, p.initiator_depth,
            result(error));
        if (error) break;
        s->phase = ASKING;
        (s->in = p.responder_resources, s->out = p.initiator_depth);
        events(1);
        if (!s->server) s->phase = OVER;
        break;
    }
    case ASKING: {
        struct rdma_conn_param p = parameters(private, one_in(12) ? 250 : 140, i);
        p.responder_resources = (uint8_t)any(s->out + 1u); /* more is the caller's mistake (rdma_accept's manual page) */
        p.initiator_depth = (uint8_t)any(s->in + 1u);
        if (one_in(4)) {
            int error = rdma_reject(s->server, private, p.private_data_len);
            say("reject server %d, %u bytes: %s", i, p.private_data_len, result(error));
            events(!error);
            if (!error) s->phase = OVER;
            break;
        }
        if (!s->server_pair) {
            int error = pair(s->server);
            say("queue pair of server %d: %s", i, result(error));
            s->server_pair = !error;
            break;
        }
        int error = rdma_accept(s->server, &p);
        say("accept server %d, %u bytes, reads %u and %u: %s", i, p.private_data_len, p.responder_resources, p.initiator_depth,
            result(error));
        events(error ? 0 : 2);
        if (!error) s->phase = ANSWERED;
        break;
    }
    case ANSWERED: {
        if (one_in(2)) {
            exchange(i);
            break;
        }
        struct rdma_cm_id *id = one_in(2) ? s->client : s->server;
        int error = rdma_disconnect(id);
        say("disconnect %s %d: %s", id == s->client ? "client" : "server", i, result(error));
        /* Linux answers the one side when the other has called, too. */
        say("disconnect the other side of %d: %s", i, result(rdma_disconnect(id == s->client ? s->server : s->client)));
        events(error ? 0 : 2);
        s->phase = OVER;
        break;
    }
    case OVER:
        if (one_in(3) && s->server) say("disconnect client %d again: %s", i, result(rdma_disconnect(s->client)));
        give_up(i);
    }
}

void connections(void) {
    memset(slots, 0, sizeof slots);
    channel = rdma_create_event_channel();
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    say("listener: %s", result(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)));
    if (one_in(4)) say("listen at no address: %s", result(rdma_listen(listener, 4)));
    struct sockaddr_in6 at;
    address(&at, 0);
    int bound = rdma_bind_addr(listener, (struct sockaddr *)&at);
    say("bind: %s", result(bound));
    say("listen: %s, a port %d", result(rdma_listen(listener, SLOTS)), rdma_get_src_port(listener) != 0);
    address(&place, rdma_get_src_port(listener));
    if (!listener->verbs || !(pd = ibv_alloc_pd(listener->verbs))) return;
    cq = ibv_create_cq(listener->verbs, 64, NULL, NULL, 0);
    bytes = aligned_alloc(4096, 4096);
    mr = ibv_reg_mr(pd, bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
    for (step = 1; step <= CALLS; step++) {
        int i = (int)any(SLOTS);
        if (one_in(25)) give_up(i);
        else call(i);
    }
    for (int i = 0; i < SLOTS; i++) give_up(i);
    DESTROY("region", ibv_dereg_mr, mr)
    DESTROY("completion queue", ibv_destroy_cq, cq)
    DESTROY("domain", ibv_dealloc_pd, pd)
    say("destroy listener: %s", result(rdma_destroy_id(listener)));
    rdma_destroy_event_channel(channel);
    free(bytes);
}
