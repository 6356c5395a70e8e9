/* The interface between a Windows Sockets switch and a SAN service provider, for C and C++ programs
 * that link libtransom_winsock_direct. Names, structures and values are the documented ones; see
 * README.md for what is offered.
 *
 * On Windows the words of Winsock are the system's own. Elsewhere they stand here: DWORD, u_long and
 * WCHAR have 32, 32 and 16 bits, as they have there. */
#ifndef TRANSOM_WS2SAN_H
#define TRANSOM_WS2SAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#include <winsock2.h>
#include <ws2spi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef _WIN32
#define WSPAPI

typedef uint32_t DWORD, *LPDWORD;
typedef uint16_t WORD, WCHAR;
typedef int BOOL, INT, *LPINT;
typedef void *HANDLE, *PVOID, *LPVOID, *WSAEVENT;
typedef uintptr_t SOCKET, DWORD_PTR, *PDWORD_PTR, ULONG_PTR;
typedef size_t SIZE_T;
typedef unsigned int GROUP;
struct sockaddr;
typedef struct { uint32_t Data1; uint16_t Data2, Data3; uint8_t Data4[8]; } GUID;

#define SOCKET_ERROR (-1)
#define INVALID_SOCKET ((SOCKET)~(SOCKET)0)

/* ---- structures ---- */
typedef struct { uint32_t len; char *buf; } WSABUF, *LPWSABUF;

typedef struct {
    ULONG_PTR Internal;     /* WSA_STATUS_PENDING while under way, then 0 */
    ULONG_PTR InternalHigh; /* bytes */
    DWORD Offset;           /* flags of the call */
    DWORD OffsetHigh;       /* error */
    WSAEVENT hEvent;        /* low bit 1: the switch polls; 0: the provider makes an upcall */
} WSAOVERLAPPED, *LPWSAOVERLAPPED;

typedef void *LPWSAOVERLAPPED_COMPLETION_ROUTINE; /* always NULL */
typedef struct { HANDLE ThreadHandle; DWORD_PTR Reserved; } WSATHREADID, *LPWSATHREADID;
typedef struct { int32_t lNetworkEvents; int iErrorCode[10]; } WSANETWORKEVENTS, *LPWSANETWORKEVENTS;
typedef struct { WORD wVersion, wHighVersion; WCHAR szDescription[256]; } WSPDATA, *LPWSPDATA;
typedef struct { int ChainLen; DWORD ChainEntries[7]; } WSAPROTOCOLCHAIN;
typedef struct {
    DWORD dwServiceFlags1, dwServiceFlags2, dwServiceFlags3, dwServiceFlags4, dwProviderFlags;
    GUID ProviderId;
    DWORD dwCatalogEntryId;
    WSAPROTOCOLCHAIN ProtocolChain;
    int iVersion, iAddressFamily, iMaxSockAddr, iMinSockAddr, iSocketType, iProtocol;
    int iProtocolMaxOffset, iNetworkByteOrder, iSecurityScheme;
    DWORD dwMessageSize, dwProviderReserved;
    WCHAR szProtocol[256];
} WSAPROTOCOL_INFOW, *LPWSAPROTOCOL_INFOW;
typedef struct { struct sockaddr *lpSockaddr; INT iSockaddrLength; } SOCKET_ADDRESS;
typedef struct { INT iAddressCount; SOCKET_ADDRESS Address[1]; } SOCKET_ADDRESS_LIST;
typedef void QOS, *LPQOS;

/* ---- values ---- */
#define SO_MAX_MSG_SIZE 0x2003
#define SO_GROUP_ID 0x2001
#define SO_GROUP_PRIORITY 0x2002
#define SIO_GET_EXTENSION_FUNCTION_POINTER 0xC8000006u
#define SIO_ADDRESS_LIST_QUERY 0x48000016u
#define WSA_FLAG_OVERLAPPED 1
#define PFL_HIDDEN 4
#define XP1_QOS_SUPPORTED 0x2000
#define FD_ACCEPT 0x08
#define FD_ACCEPT_BIT 3
#define FD_CONNECT 0x10
#define FD_CONNECT_BIT 4
#define CF_ACCEPT 0
#define CF_REJECT 1
#define CF_DEFER 2

#define WSA_INVALID_HANDLE 6
#define WSA_OPERATION_ABORTED 995
#define WSA_IO_INCOMPLETE 996
#define WSA_IO_PENDING 997
#define WSAEFAULT 10014
#define WSAEINVAL 10022
#define WSAEMFILE 10024
#define WSAEWOULDBLOCK 10035
#define WSAENOTSOCK 10038
#define WSAEMSGSIZE 10040
#define WSAEPROTOTYPE 10041
#define WSAENOPROTOOPT 10042
#define WSAEPROTONOSUPPORT 10043
#define WSAEOPNOTSUPP 10045
#define WSAEAFNOSUPPORT 10047
#define WSAEADDRINUSE 10048
#define WSAEADDRNOTAVAIL 10049
#define WSAENETDOWN 10050
#define WSAECONNABORTED 10053
#define WSAECONNRESET 10054
#define WSAENOBUFS 10055
#define WSAENOTCONN 10057
#define WSAETIMEDOUT 10060
#define WSAECONNREFUSED 10061
#define WSAEHOSTUNREACH 10065
#define WSASYSNOTREADY 10091
#define WSAVERNOTSUPPORTED 10092
#define WSATRY_AGAIN 11002

typedef int(WSPAPI *LPCONDITIONPROC)(LPWSABUF lpCallerId, LPWSABUF lpCallerData, LPQOS lpSQOS, LPQOS lpGQOS, LPWSABUF lpCalleeId, LPWSABUF lpCalleeData, GROUP *g, DWORD_PTR dwCallbackData);

/* ---- what the provider hands the switch: 30 entries; those that a switch serves itself are NULL ---- */
typedef struct {
    SOCKET(WSPAPI *lpWSPAccept)(SOCKET s, struct sockaddr *addr, LPINT addrlen, LPCONDITIONPROC lpfnCondition, DWORD_PTR dwCallbackData, LPINT lpErrno);
    void *lpWSPAddressToString;
    void *lpWSPAsyncSelect;
    int(WSPAPI *lpWSPBind)(SOCKET s, const struct sockaddr *name, int namelen, LPINT lpErrno);
    void *lpWSPCancelBlockingCall;
    int(WSPAPI *lpWSPCleanup)(LPINT lpErrno);
    int(WSPAPI *lpWSPCloseSocket)(SOCKET s, LPINT lpErrno);
    int(WSPAPI *lpWSPConnect)(SOCKET s, const struct sockaddr *name, int namelen, const WSABUF *lpCallerData, LPWSABUF lpCalleeData, const QOS *lpSQOS, const QOS *lpGQOS, LPINT lpErrno);
    int(WSPAPI *lpWSPDuplicateSocket)(SOCKET s, DWORD dwProcessId, LPWSAPROTOCOL_INFOW lpProtocolInfo, LPINT lpErrno);
    int(WSPAPI *lpWSPEnumNetworkEvents)(SOCKET s, WSAEVENT hEventObject, LPWSANETWORKEVENTS lpNetworkEvents, LPINT lpErrno);
    int(WSPAPI *lpWSPEventSelect)(SOCKET s, WSAEVENT hEventObject, int32_t lNetworkEvents, LPINT lpErrno);
    BOOL(WSPAPI *lpWSPGetOverlappedResult)(SOCKET s, LPWSAOVERLAPPED lpOverlapped, LPDWORD lpcbTransfer, BOOL fWait, LPDWORD lpdwFlags, LPINT lpErrno);
    void *lpWSPGetPeerName;
    void *lpWSPGetSockName;
    int(WSPAPI *lpWSPGetSockOpt)(SOCKET s, int level, int optname, char *optval, LPINT optlen, LPINT lpErrno);
    BOOL(WSPAPI *lpWSPGetQOSByName)(SOCKET s, LPWSABUF lpQOSName, LPQOS lpQOS, LPINT lpErrno);
    int(WSPAPI *lpWSPIoctl)(SOCKET s, DWORD dwIoControlCode, const void *lpvInBuffer, DWORD cbInBuffer, LPVOID lpvOutBuffer, DWORD cbOutBuffer, LPDWORD lpcbBytesReturned, LPWSAOVERLAPPED lpOverlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine, LPWSATHREADID lpThreadId, LPINT lpErrno);
    void *lpWSPJoinLeaf;
    int(WSPAPI *lpWSPListen)(SOCKET s, int backlog, LPINT lpErrno);
    int(WSPAPI *lpWSPRecv)(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesRecvd, LPDWORD lpFlags, LPWSAOVERLAPPED lpOverlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine, LPWSATHREADID lpThreadId, LPINT lpErrno);
    void *lpWSPRecvDisconnect;
    void *lpWSPRecvFrom;
    void *lpWSPSelect;
    int(WSPAPI *lpWSPSend)(SOCKET s, LPWSABUF lpBuffers, DWORD dwBufferCount, LPDWORD lpNumberOfBytesSent, DWORD dwFlags, LPWSAOVERLAPPED lpOverlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine, LPWSATHREADID lpThreadId, LPINT lpErrno);
    void *lpWSPSendDisconnect;
    void *lpWSPSendTo;
    int(WSPAPI *lpWSPSetSockOpt)(SOCKET s, int level, int optname, const char *optval, int optlen, LPINT lpErrno);
    void *lpWSPShutdown;
    SOCKET(WSPAPI *lpWSPSocket)(int af, int type, int protocol, const WSAPROTOCOL_INFOW *lpProtocolInfo, GROUP g, DWORD dwFlags, LPINT lpErrno);
    void *lpWSPStringToAddress;
} WSPPROC_TABLE, *LPWSPPROC_TABLE;
#endif /* not Windows */

/* ---- beside Winsock's own ---- */
typedef struct { uint32_t len; char *buf; HANDLE handle; } WSABUFEX, *LPWSABUFEX;
#define WSA_STATUS_PENDING 0x103

#define MEM_READ 1
#define MEM_WRITE 2
#define MEM_READWRITE 3

#define WSD_SOL_SOCKET 0xFFFF /* SOL_SOCKET as the interface numbers it */
#define SO_MAX_RDMA_SIZE 0x700D
#define SO_RDMA_THRESHOLD_SIZE 0x700E
/* Transom's own. OFFER: 32 bits in, which optional functions are found from now on; without it, both.
 * EXPLAIN: the newest refusal on the socket, as text with its NUL; WSAEFAULT stores the room it needs,
 * and an empty text says that there was none. */
#define SIO_TRANSOM_OFFER 0x98005401u
#define TRANSOM_OFFER_RDMA_READ 1
#define TRANSOM_OFFER_CACHE_CALLBACK 2
#define SIO_TRANSOM_EXPLAIN 0x58005402u
/* NAME: a TRANSOM_NAME in. Names a registration of the socket, for messages and for `transom show`;
 * WSAEINVAL if it has no such registration. */
#define SIO_TRANSOM_NAME 0x98005403u
typedef struct {
    HANDLE hMemory;                   /* of WSPRegisterMemory; or NULL, and */
    unsigned char RdmaDescriptor[16]; /* what WSPRegisterRdmaMemory returned */
    char Name[32];                    /* UTF-8 with its NUL */
} TRANSOM_NAME;

/* ---- what the switch hands the provider: 16 entries ---- */
typedef struct {
    void *lpWPUCloseEvent;
    int(WSPAPI *lpWPUCloseSocketHandle)(SOCKET s, LPINT lpErrno);
    void *lpWPUCreateEvent;
    SOCKET(WSPAPI *lpWPUCreateSocketHandle)(DWORD dwCatalogEntryId, DWORD_PTR dwContext, LPINT lpErrno);
    void *lpWPUFDIsSet;
    void *lpWPUGetProviderPath;
    void *lpWPUModifyIFSHandle;
    void *lpWPUPostMessage;
    void *lpWPUQueryBlockingCallback;
    void *lpWPUQuerySocketHandleContext;
    void *lpWPUQueueApc;
    BOOL(WSPAPI *lpWPUResetEvent)(WSAEVENT hEvent, LPINT lpErrno);
    BOOL(WSPAPI *lpWPUSetEvent)(WSAEVENT hEvent, LPINT lpErrno);
    void *lpWPUOpenCurrentThread;
    void *lpWPUCloseThread;
    int(WSPAPI *lpWPUCompleteOverlappedRequest)(SOCKET s, LPWSAOVERLAPPED lpOverlapped, DWORD dwError, DWORD cbTransferred, LPINT lpErrno);
} WSPUPCALLTABLEEX, *LPWSPUPCALLTABLEEX;

/* ---- extension functions: WSPIoctl(SIO_GET_EXTENSION_FUNCTION_POINTER) with these GUIDs ---- */
#define WSAID_FAMILY(n) { n, 0xF58C, 0x11D1, { 0xAD, 0x6C, 0x00, 0xC0, 0x4F, 0xA3, 0x4A, 0x2D } }
#define WSAID_REGISTERMEMORY WSAID_FAMILY(0xC0B422F5)
#define WSAID_DEREGISTERMEMORY WSAID_FAMILY(0xC0B422F6)
#define WSAID_REGISTERRDMAMEMORY WSAID_FAMILY(0xC0B422F7)
#define WSAID_DEREGISTERRDMAMEMORY WSAID_FAMILY(0xC0B422F8)
#define WSAID_RDMAWRITE WSAID_FAMILY(0xC0B422F9)
#define WSAID_RDMAREAD WSAID_FAMILY(0xC0B422FA)
#define WSAID_MEMORYREGISTRATIONCACHECALLBACK \
    { 0xE5DA4AF8, 0xD824, 0x48CD, { 0xA7, 0x99, 0x63, 0x37, 0xA9, 0x8E, 0xD2, 0xAF } }

typedef HANDLE(WSPAPI *LPFN_WSPREGISTERMEMORY)(SOCKET s, PVOID lpBuffer, DWORD dwBufferLength, DWORD dwFlags, LPINT lpErrno);
typedef int(WSPAPI *LPFN_WSPDEREGISTERMEMORY)(SOCKET s, HANDLE handle, LPINT lpErrno);
/* 0 is success */
typedef int(WSPAPI *LPFN_WSPREGISTERRDMAMEMORY)(SOCKET s, PVOID lpBuffer, DWORD dwBufferLength, DWORD dwFlags, LPVOID lpRdmaBufferDescriptor, LPDWORD lpdwDescriptorLength, LPINT lpErrno);
typedef int(WSPAPI *LPFN_WSPDEREGISTERRDMAMEMORY)(SOCKET s, LPVOID lpRdmaBufferDescriptor, DWORD dwDescriptorLength, LPINT lpErrno);
typedef int(WSPAPI *LPFN_WSPRDMAWRITE)(SOCKET s, LPWSABUFEX lpBuffers, DWORD dwBufferCount, LPVOID lpTargetBufferDescriptor, DWORD dwTargetDescriptorLength, DWORD dwTargetBufferOffset, LPDWORD lpdwNumberOfBytesWritten, DWORD dwFlags, LPWSAOVERLAPPED lpOverlapped, LPWSAOVERLAPPED_COMPLETION_ROUTINE lpCompletionRoutine, LPWSATHREADID lpThreadId, LPINT lpErrno);
typedef LPFN_WSPRDMAWRITE LPFN_WSPRDMAREAD;
typedef int(WSPAPI *LPFN_WSPMEMORYREGISTRATIONCACHECALLBACK)(LPVOID lpvAddress, SIZE_T Size, LPINT lpErrno);

/* The only exported function. The upcall table is passed by pointer. */
int WSPAPI WSPStartupEx(WORD wVersionRequested, LPWSPDATA lpWSPData, LPWSAPROTOCOL_INFOW lpProtocolInfo, LPWSPUPCALLTABLEEX lpUpcallTable, LPWSPPROC_TABLE lpProcTable);

#ifdef __cplusplus
}
#endif
#endif
