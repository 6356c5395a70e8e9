/* A consumer of shared endpoints and of interrupt moderation, written from the documentation of the
 * interface: two connections from one address, the calls that are refused, a callback that is held
 * back. Once in each way in which completions may come. */
#include "consumer.h"

/* ---- a side ---- */
typedef struct {
    NDK_ADAPTER *adapter;
    NDK_PD *pd;
    NDK_CQ *cq;
    NDK_QP *qp;
    NDK_CONNECTOR *connector;
    NDK_LISTENER *listener;
    struct sockaddr_in at;
    WAIT connected, accepted, notified;
} SIDE;

static void on_notified(PVOID context, NTSTATUS status) { wait_set(&((SIDE *)context)->notified, status, NULL); }
static void on_accepted(PVOID context, NTSTATUS status) { wait_set(&((SIDE *)context)->accepted, status, NULL); }
static void on_connect(PVOID context, NDK_CONNECTOR *connector) {
    SIDE *side = context;
    side->connector = connector;
    NTSTATUS status = connector->Dispatch->NdkAccept(connector, side->qp, 1, 1, NULL, 0, NULL, NULL, on_accepted, side);
    if (status != STATUS_PENDING) on_accepted(side, status);
    wait_set(&side->connected, status, connector);
}

static SIDE *make_side(NDK_ADAPTER *adapter) {
    SIDE *s = calloc(1, sizeof *s);
    s->adapter = adapter;
    wait_init(&s->connected);
    wait_init(&s->accepted);
    wait_init(&s->notified);
    s->pd = CREATE(NDK_PD, adapter->Dispatch->NdkCreatePd(adapter, on_created, w, &object));
    s->cq = CREATE(NDK_CQ, adapter->Dispatch->NdkCreateCq(adapter, 16, on_notified, s, NULL, on_created, w, &object));
    s->qp = CREATE(NDK_QP, s->pd->Dispatch->NdkCreateQp(s->pd, s->cq, s->cq, s, 8, 8, 1, 1, 0, on_created, w, &object));
    return s;
}
static void listen_on(SIDE *s) {
    s->listener = CREATE(NDK_LISTENER, s->adapter->Dispatch->NdkCreateListener(s->adapter, on_connect, s, on_created, w, &object));
    s->at = loopback(0);
    EXPECT(END(s->listener->Dispatch->NdkListen(s->listener, ADDRESS(s->at), on_request, w)), STATUS_SUCCESS);
    ULONG size = sizeof s->at;
    EXPECT(s->listener->Dispatch->NdkGetLocalAddress(s->listener, (PSOCKADDR)&s->at, &size), STATUS_SUCCESS);
}
static void connect_from(SIDE *s) {
    s->connector = CREATE(NDK_CONNECTOR, s->adapter->Dispatch->NdkCreateConnector(s->adapter, on_created, w, &object));
}
static void close_side(SIDE *s) {
    s->qp->Dispatch->NdkFlush(s->qp);
    if (s->connector) CLOSE(s->connector, NdkCloseConnector);
    if (s->listener) CLOSE(s->listener, NdkCloseListener);
    CLOSE(s->qp, NdkCloseQp);
    CLOSE(s->cq, NdkCloseCq);
    CLOSE(s->pd, NdkClosePd);
    free(s);
}

static NTSTATUS connect_shared(SIDE *s, NDK_SHARED_ENDPOINT *from, struct sockaddr_in to) {
    return END(s->connector->Dispatch->NdkConnectWithSharedEndpoint(s->connector, s->qp, from, ADDRESS(to), 1, 1, NULL, 0, on_request, w));
}
static void complete(SIDE *from, SIDE *to) {
    EXPECT(END(from->connector->Dispatch->NdkCompleteConnect(from->connector, NULL, NULL, on_request, w)), STATUS_SUCCESS);
    wait_for(&to->connected);
    EXPECT(wait_for(&to->accepted), STATUS_SUCCESS);
}

static ULONG poll(SIDE *s, ULONG wanted) {
    NDK_RESULT results[16];
    ULONG found = 0;
    while (found < wanted) {
        ULONG more = s->cq->Dispatch->NdkGetCqResults(s->cq, results, 16);
        for (ULONG i = 0; i < more; i++) EXPECT(results[i].Status, STATUS_SUCCESS);
        found += more;
    }
    return found;
}
static void message(SIDE *from, SIDE *to) {
    EXPECT(to->qp->Dispatch->NdkReceive(to->qp, NULL, NULL, 0), STATUS_SUCCESS);
    EXPECT(from->qp->Dispatch->NdkSend(from->qp, NULL, NULL, 0, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT), STATUS_SUCCESS);
    CHECK(poll(from, 1) == 1);
}

static struct sockaddr_in address_of(NDK_SHARED_ENDPOINT *endpoint) {
    struct sockaddr_in at;
    memset(&at, 0xee, sizeof at);
    ULONG size = 0;
    EXPECT(endpoint->Dispatch->NdkGetLocalAddress(endpoint, NULL, &size), STATUS_BUFFER_TOO_SMALL);
    CHECK(size == sizeof at);
    EXPECT(endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&at, &size), STATUS_SUCCESS);
    return at;
}

/* The endpoint's address, in every call that takes one, is in use. */
static void in_use(NDK_ADAPTER *adapter, struct sockaddr_in at, SIDE *idle, struct sockaddr_in to) {
    NDK_SHARED_ENDPOINT *none = NULL;
    EXPECT(END(adapter->Dispatch->NdkCreateSharedEndpoint(adapter, ADDRESS(at), on_created, w, &none)), STATUS_SHARING_VIOLATION);
    CHECK(none == NULL);
    EXPECT(END(idle->connector->Dispatch->NdkConnect(idle->connector, idle->qp, ADDRESS(at), ADDRESS(to), 1, 1, NULL, 0, on_request, w)), STATUS_SHARING_VIOLATION);
    NDK_LISTENER *listener = CREATE(NDK_LISTENER, adapter->Dispatch->NdkCreateListener(adapter, on_connect, NULL, on_created, w, &object));
    EXPECT(END(listener->Dispatch->NdkListen(listener, ADDRESS(at), on_request, w)), STATUS_SHARING_VIOLATION);
    ULONG size = 0;
    EXPECT(listener->Dispatch->NdkGetLocalAddress(listener, NULL, &size), STATUS_INVALID_DEVICE_STATE);
    CLOSE(listener, NdkCloseListener);
}

static void endpoints(ULONG mode) {
    STEP("endpoints");
    NDK_ADAPTER *here = open_adapter(mode), *there = open_adapter(mode);
    SIDE *one = make_side(there), *two = make_side(there);
    listen_on(one);
    listen_on(two);
    SIDE *a = make_side(here), *b = make_side(here), *idle = make_side(here);
    connect_from(a);
    connect_from(b);
    connect_from(idle);

    STEP("create");
    struct sockaddr_in any = loopback(0), foreign = any;
    foreign.sin_addr.s_addr = htonl(0x7f000002);
    NDK_SHARED_ENDPOINT *none = NULL;
    EXPECT(END(here->Dispatch->NdkCreateSharedEndpoint(here, ADDRESS(foreign), on_created, w, &none)), STATUS_INVALID_ADDRESS);
    EXPECT(here->Dispatch->NdkCreateSharedEndpoint(here, (PCSOCKADDR)&any, 3, NULL, NULL, &none), STATUS_INVALID_PARAMETER);
    EXPECT(here->Dispatch->NdkCreateSharedEndpoint(here, NULL, 16, NULL, NULL, &none), STATUS_INVALID_PARAMETER);
    CHECK(none == NULL);
    NDK_SHARED_ENDPOINT *endpoint = CREATE(NDK_SHARED_ENDPOINT, here->Dispatch->NdkCreateSharedEndpoint(here, ADDRESS(any), on_created, w, &object));
    CHECK(endpoint->Header.ObjectType == NdkObjectTypeSharedEndpoint);
    CHECK(endpoint->Header.Version.Major == 2 && endpoint->Header.NdkReserved.rf[0] == NULL);
    NDK_EXTENSION_INTERFACE extension;
    NDK_VERSION version = { 1, 0 };
    GUID id = { 0 };
    EXPECT(endpoint->Dispatch->NdkQueryExtension(&endpoint->Header, &id, version, &extension), STATUS_NOT_SUPPORTED);
    struct sockaddr_in at = address_of(endpoint);
    CHECK(at.sin_addr.s_addr == any.sin_addr.s_addr && at.sin_port != 0);
    in_use(here, at, idle, one->at);

    STEP("refused connects");
    NDK_SHARED_ENDPOINT *theirs = CREATE(NDK_SHARED_ENDPOINT, there->Dispatch->NdkCreateSharedEndpoint(there, ADDRESS(any), on_created, w, &object));
    EXPECT(connect_shared(a, theirs, one->at), STATUS_INVALID_PARAMETER);
    EXPECT(connect_shared(a, NULL, one->at), STATUS_INVALID_PARAMETER);
    EXPECT(connect_shared(a, (NDK_SHARED_ENDPOINT *)a->cq, one->at), STATUS_INVALID_PARAMETER);
    CLOSE(theirs, NdkCloseSharedEndpoint);
    EXPECT(END(a->connector->Dispatch->NdkCompleteConnect(a->connector, NULL, NULL, on_request, w)), STATUS_CONNECTION_INVALID);
    EXPECT(END(a->connector->Dispatch->NdkDisconnect(a->connector, on_request, w)), STATUS_CONNECTION_INVALID);
    EXPECT(a->qp->Dispatch->NdkSend(a->qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);

    STEP("one address, two connections");
    EXPECT(connect_shared(a, endpoint, one->at), STATUS_SUCCESS);
    EXPECT(connect_shared(a, endpoint, two->at), STATUS_CONNECTION_ACTIVE);
    complete(a, one);
    EXPECT(connect_shared(b, endpoint, one->at), STATUS_ADDRESS_ALREADY_EXISTS);
    EXPECT(connect_shared(b, endpoint, two->at), STATUS_SUCCESS);
    complete(b, two);
    SIDE *both[] = { a, b }, *peers[] = { one, two };
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in local, peer;
        ULONG size = sizeof local;
        EXPECT(both[i]->connector->Dispatch->NdkGetLocalAddress(both[i]->connector, (PSOCKADDR)&local, &size), STATUS_SUCCESS);
        CHECK(local.sin_port == at.sin_port);
        EXPECT(peers[i]->connector->Dispatch->NdkGetPeerAddress(peers[i]->connector, (PSOCKADDR)&peer, &size), STATUS_SUCCESS);
        CHECK(peer.sin_port == at.sin_port);
        message(both[i], peers[i]);
        CHECK(poll(peers[i], 1) == 1);
    }

    STEP("close before its connectors");
    WAIT closing;
    wait_init(&closing);
    EXPECT(endpoint->Dispatch->NdkCloseSharedEndpoint(&endpoint->Header, on_closed, &closing), STATUS_PENDING);
    in_use(here, at, idle, one->at);
    close_side(a);
    CHECK(KeReadStateEvent(&closing.event) == 0);
    in_use(here, at, idle, two->at);
    close_side(b);
    wait_for(&closing);
    CHECK(closing.times == 1);
    close_side(idle);
    close_side(one);
    close_side(two);
    NdkCloseAdapter(here);
    NdkCloseAdapter(there);
}

static void moderation(ULONG mode) {
    STEP("moderation");
    const ULONG none = 0xffffffff;
    NDK_ADAPTER *here = open_adapter(mode);
    NDK_ADAPTER_INFO info;
    ULONG size = sizeof info;
    EXPECT(here->Dispatch->NdkQueryAdapterInfo(here, &info, &size), STATUS_SUCCESS);
    CHECK(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED);
    SIDE *server = make_side(here), *client = make_side(here);
    listen_on(server);
    connect_from(client);
    struct sockaddr_in from = loopback(0);
    EXPECT(END(client->connector->Dispatch->NdkConnect(client->connector, client->qp, ADDRESS(from), ADDRESS(server->at), 1, 1, NULL, 0, on_request, w)), STATUS_SUCCESS);
    complete(client, server);
    NDK_CQ *cq = server->cq;
    NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION *control = cq->Dispatch->NdkControlCqInterruptModeration;

    EXPECT(control((NDK_CQ *)server->qp, 20, none), STATUS_INVALID_PARAMETER);
    EXPECT(control(cq, none, none), STATUS_INVALID_PARAMETER_MIX);
    EXPECT(control(cq, none, 17), STATUS_INVALID_PARAMETER_MIX); /* the queue holds 16 */
    EXPECT(control(cq, none, 16), STATUS_SUCCESS);
    EXPECT(control(cq, 0, none), STATUS_SUCCESS);
    EXPECT(control(cq, none, 1), STATUS_SUCCESS);

    STEP("the count");
    EXPECT(control(cq, none, 3), STATUS_SUCCESS);
    cq->Dispatch->NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
    message(client, server);
    message(client, server);
    CHECK(poll(server, 2) == 2); /* retrieved, and still due */
    CHECK(KeReadStateEvent(&server->notified.event) == 0);
    message(client, server);
    EXPECT(wait_for(&server->notified), STATUS_SUCCESS);
    CHECK(poll(server, 1) == 1);

    STEP("the interval");
    EXPECT(control(cq, 20, none), STATUS_SUCCESS); /* as Microsoft's sample sets it */
    cq->Dispatch->NdkArmCq(cq, NDK_CQ_NOTIFY_SOLICITED);
    message(client, server);
    EXPECT(wait_for(&server->notified), STATUS_SUCCESS);
    CHECK(poll(server, 1) == 1);

    STEP("the newest call");
    EXPECT(control(cq, none, 16), STATUS_SUCCESS);
    cq->Dispatch->NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
    message(client, server);
    CHECK(poll(server, 1) == 1);
    CHECK(KeReadStateEvent(&server->notified.event) == 0);
    EXPECT(control(cq, 0, 0), STATUS_SUCCESS);
    EXPECT(wait_for(&server->notified), STATUS_SUCCESS);
    CHECK(server->notified.times == 3);

    close_side(client);
    close_side(server);
    NdkCloseAdapter(here);
}

int main(void) {
    for (ULONG mode = NDK_COMPLETE_NATURALLY; mode <= NDK_COMPLETE_AFTER_RETURN; mode++) {
        endpoints(mode);
        moderation(mode);
    }
    puts("ok");
    return 0;
}
