/* The layout of ws2san.h, held by the compiler: the orders and sizes of WSD 2.2, 2.3 and 2.6. */
#include "ws2san.h"

#ifdef __cplusplus
#define HOLDS(fact) static_assert(fact, #fact)
#else
#define HOLDS(fact) _Static_assert(fact, #fact)
#endif
#define SLOT(table, entry, index) HOLDS(offsetof(table, entry) == (index) * sizeof(void *))

HOLDS(sizeof(void *) == 4 || sizeof(WSABUFEX) == 24);
HOLDS(sizeof(void *) == 4 || (offsetof(WSABUFEX, buf) == 8 && offsetof(WSABUFEX, handle) == 16));
HOLDS(sizeof(WSABUF) == 2 * sizeof(void *) && sizeof(WSAOVERLAPPED) == 3 * sizeof(void *) + 8);
HOLDS(sizeof(WSPDATA) == 516 && sizeof(WSAPROTOCOL_INFOW) == 628 && sizeof(WSANETWORKEVENTS) == 44);
HOLDS(offsetof(WSAPROTOCOL_INFOW, dwProviderReserved) == 112);
HOLDS(sizeof(GUID) == 16);

/* WSD 2.2 */
HOLDS(sizeof(WSPUPCALLTABLEEX) == 16 * sizeof(void *));
SLOT(WSPUPCALLTABLEEX, lpWPUCloseEvent, 0);
SLOT(WSPUPCALLTABLEEX, lpWPUCloseSocketHandle, 1);
SLOT(WSPUPCALLTABLEEX, lpWPUCreateEvent, 2);
SLOT(WSPUPCALLTABLEEX, lpWPUCreateSocketHandle, 3);
SLOT(WSPUPCALLTABLEEX, lpWPUFDIsSet, 4);
SLOT(WSPUPCALLTABLEEX, lpWPUGetProviderPath, 5);
SLOT(WSPUPCALLTABLEEX, lpWPUModifyIFSHandle, 6);
SLOT(WSPUPCALLTABLEEX, lpWPUPostMessage, 7);
SLOT(WSPUPCALLTABLEEX, lpWPUQueryBlockingCallback, 8);
SLOT(WSPUPCALLTABLEEX, lpWPUQuerySocketHandleContext, 9);
SLOT(WSPUPCALLTABLEEX, lpWPUQueueApc, 10);
SLOT(WSPUPCALLTABLEEX, lpWPUResetEvent, 11);
SLOT(WSPUPCALLTABLEEX, lpWPUSetEvent, 12);
SLOT(WSPUPCALLTABLEEX, lpWPUOpenCurrentThread, 13);
SLOT(WSPUPCALLTABLEEX, lpWPUCloseThread, 14);
SLOT(WSPUPCALLTABLEEX, lpWPUCompleteOverlappedRequest, 15);

/* WSD 2.3 */
HOLDS(sizeof(WSPPROC_TABLE) == 30 * sizeof(void *));
SLOT(WSPPROC_TABLE, lpWSPAccept, 0);
SLOT(WSPPROC_TABLE, lpWSPAddressToString, 1);
SLOT(WSPPROC_TABLE, lpWSPAsyncSelect, 2);
SLOT(WSPPROC_TABLE, lpWSPBind, 3);
SLOT(WSPPROC_TABLE, lpWSPCancelBlockingCall, 4);
SLOT(WSPPROC_TABLE, lpWSPCleanup, 5);
SLOT(WSPPROC_TABLE, lpWSPCloseSocket, 6);
SLOT(WSPPROC_TABLE, lpWSPConnect, 7);
SLOT(WSPPROC_TABLE, lpWSPDuplicateSocket, 8);
SLOT(WSPPROC_TABLE, lpWSPEnumNetworkEvents, 9);
SLOT(WSPPROC_TABLE, lpWSPEventSelect, 10);
SLOT(WSPPROC_TABLE, lpWSPGetOverlappedResult, 11);
SLOT(WSPPROC_TABLE, lpWSPGetPeerName, 12);
SLOT(WSPPROC_TABLE, lpWSPGetSockName, 13);
SLOT(WSPPROC_TABLE, lpWSPGetSockOpt, 14);
SLOT(WSPPROC_TABLE, lpWSPGetQOSByName, 15);
SLOT(WSPPROC_TABLE, lpWSPIoctl, 16);
SLOT(WSPPROC_TABLE, lpWSPJoinLeaf, 17);
SLOT(WSPPROC_TABLE, lpWSPListen, 18);
SLOT(WSPPROC_TABLE, lpWSPRecv, 19);
SLOT(WSPPROC_TABLE, lpWSPRecvDisconnect, 20);
SLOT(WSPPROC_TABLE, lpWSPRecvFrom, 21);
SLOT(WSPPROC_TABLE, lpWSPSelect, 22);
SLOT(WSPPROC_TABLE, lpWSPSend, 23);
SLOT(WSPPROC_TABLE, lpWSPSendDisconnect, 24);
SLOT(WSPPROC_TABLE, lpWSPSendTo, 25);
SLOT(WSPPROC_TABLE, lpWSPSetSockOpt, 26);
SLOT(WSPPROC_TABLE, lpWSPShutdown, 27);
SLOT(WSPPROC_TABLE, lpWSPSocket, 28);
SLOT(WSPPROC_TABLE, lpWSPStringToAddress, 29);

/* WSD 2.6 */
HOLDS(MEM_READ == 1 && MEM_WRITE == 2 && MEM_READWRITE == 3);
HOLDS(SO_MAX_RDMA_SIZE == 0x700D && SO_RDMA_THRESHOLD_SIZE == 0x700E && SO_MAX_MSG_SIZE == 0x2003);
HOLDS(SIO_GET_EXTENSION_FUNCTION_POINTER == 0xC8000006u && SIO_ADDRESS_LIST_QUERY == 0x48000016u);
HOLDS(FD_ACCEPT == 8 && FD_CONNECT == 16 && CF_ACCEPT == 0 && CF_REJECT == 1 && CF_DEFER == 2);

/* A GUID of WSD 2.4 and a function type of 2.5, as a program uses them. */
static const GUID register_memory = WSAID_REGISTERMEMORY;
static const GUID cache_callback = WSAID_MEMORYREGISTRATIONCACHECALLBACK;
int uses_them(LPFN_WSPREGISTERMEMORY f, SOCKET s, LPINT e) {
    return f(s, NULL, 0, MEM_READ, e) != NULL || register_memory.Data1 == cache_callback.Data1;
}
