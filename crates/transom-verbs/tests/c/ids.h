/* Shared by the programs of rdma_cm: a listener on one channel, ids that connect to it on another. */
#include "common.h"
#include <rdma/rdma_cma.h>

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}
static struct rdma_cm_event *next(struct rdma_event_channel *channel, int kind) {
    struct pollfd fd = {channel->fd, POLLIN, 0};
    CHECK("V120", poll(&fd, 1, HANG) == 1, "no event, wanted %s", rdma_event_str(kind));
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(channel, &event));
    CHECK("V120", (int)event->event == kind, "%s, wanted %s", rdma_event_str(event->event),
          rdma_event_str(kind));
    return event;
}
static void comes(struct rdma_event_channel *channel, int kind) {
    SUCCEEDS(rdma_ack_cm_event(next(channel, kind)));
}
static struct rdma_event_channel *ours, *theirs;
static struct rdma_cm_id *listener;
static int port;

static struct rdma_cm_id *routed(void) {
    struct rdma_cm_id *id;
    struct sockaddr_in peer = loopback(port);
    SUCCEEDS(rdma_create_id(ours, &id, &id, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (void *)&peer, 2000));
    comes(ours, RDMA_CM_EVENT_ADDR_RESOLVED);
    FAILS("V115", rdma_connect(id, NULL) == -1 ? errno : 0, EINVAL); /* without a route */
    SUCCEEDS(rdma_resolve_route(id, 2000));
    comes(ours, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}
static void give_queues(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    SUCCEEDS(rdma_create_qp(id, NULL, &init));
}
static void open_channels(void) {
    ours = MADE(rdma_create_event_channel());
    theirs = MADE(rdma_create_event_channel());
}
static struct rdma_cm_id *bound(struct rdma_event_channel *channel, int number) {
    struct rdma_cm_id *id;
    struct sockaddr_in at = loopback(number);
    SUCCEEDS(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_bind_addr(id, (void *)&at));
    return id;
}
/* A listener at `number` (0: any). */
static void open_listener(int number) {
    listener = bound(theirs, number);
    SUCCEEDS(rdma_listen(listener, 8));
    port = ntohs(rdma_get_src_port(listener));
}
/* A connection by rdma_cm; the passive side's id. */
static inline struct rdma_cm_id *connected(struct rdma_cm_id **active) {
    *active = routed();
    give_queues(*active);
    SUCCEEDS(rdma_connect(*active, NULL));
    struct rdma_cm_event *event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *passive = event->id;
    SUCCEEDS(rdma_ack_cm_event(event));
    give_queues(passive);
    SUCCEEDS(rdma_accept(passive, NULL));
    comes(ours, RDMA_CM_EVENT_ESTABLISHED);
    comes(theirs, RDMA_CM_EVENT_ESTABLISHED);
    return passive;
}
static inline void part(struct rdma_cm_id *active, struct rdma_cm_id *passive) {
    rdma_destroy_qp(passive);
    rdma_destroy_qp(active);
    SUCCEEDS(rdma_destroy_id(passive));
    SUCCEEDS(rdma_destroy_id(active));
}
/* An error of a call that returns -1. */
#define ERROR(call) ((call) == -1 ? errno : 0)
