/* A client that connects to the port it is given, and waits for the end. */
#include "common.h"
#include <rdma/rdma_cma.h>

int main(int count, char **words) {
    if (count < 2) return 2;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(atoi(words[1])),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_cm_id *id;
    SUCCEEDS(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    SUCCEEDS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 2000));
    SUCCEEDS(rdma_resolve_route(id, 2000));
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    SUCCEEDS(rdma_create_qp(id, NULL, &init));
    struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
    if (rdma_connect(id, &parameters)) return 3;
    /* A synchronous id has a channel of its own. */
    struct rdma_cm_event *event;
    SUCCEEDS(rdma_get_cm_event(id->channel, &event));
    CHECK("V130", event->event == RDMA_CM_EVENT_DISCONNECTED, "%s", rdma_event_str(event->event));
    SUCCEEDS(rdma_ack_cm_event(event));
    rdma_destroy_qp(id);
    SUCCEEDS(rdma_destroy_id(id));
    return finish();
}
