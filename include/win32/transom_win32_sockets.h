/* Part of transom_win32.h: the little of Winsock that NetworkDirect programs call. */
#ifndef TRANSOM_WIN32_SOCKETS_H
#define TRANSOM_WIN32_SOCKETS_H

#ifndef TRANSOM_WIN32_H
#error "include transom_win32.h"
#endif

typedef struct sockaddr SOCKADDR, *PSOCKADDR, *LPSOCKADDR;
typedef struct sockaddr_in SOCKADDR_IN, *PSOCKADDR_IN;
typedef struct sockaddr_in6 SOCKADDR_IN6, *PSOCKADDR_IN6;
typedef struct sockaddr_storage SOCKADDR_STORAGE, *PSOCKADDR_STORAGE;
typedef struct in_addr IN_ADDR;
typedef struct in6_addr IN6_ADDR;
typedef USHORT ADDRESS_FAMILY;
typedef int SOCKET;
#define INVALID_SOCKET (-1)
#define SOCKET_ERROR (-1)

typedef union _SOCKADDR_INET {
    SOCKADDR_IN Ipv4;
    SOCKADDR_IN6 Ipv6;
    ADDRESS_FAMILY si_family;
} SOCKADDR_INET, *PSOCKADDR_INET;

typedef struct _SOCKET_ADDRESS {
    LPSOCKADDR lpSockaddr;
    INT iSockaddrLength;
} SOCKET_ADDRESS, *PSOCKET_ADDRESS, *LPSOCKET_ADDRESS;

typedef struct _SOCKET_ADDRESS_LIST {
    INT iAddressCount;
    SOCKET_ADDRESS Address[1];
} SOCKET_ADDRESS_LIST, *PSOCKET_ADDRESS_LIST, *LPSOCKET_ADDRESS_LIST;

typedef struct WSAData {
    WORD wVersion;
    WORD wHighVersion;
    unsigned short iMaxSockets;
    unsigned short iMaxUdpDg;
    char *lpVendorInfo;
    char szDescription[257];
    char szSystemStatus[129];
} WSADATA, *LPWSADATA;

#define WSABASEERR 10000
#define WSAEFAULT 10014
#define WSAEINVAL 10022
#define WSAEADDRINUSE 10048
#define WSASYSNOTREADY 10091
#define WSAVERNOTSUPPORTED 10092
#define WSANOTINITIALISED 10093

inline int WSAGetLastError() { return static_cast<int>(GetLastError()); }
inline void WSASetLastError(int error) { SetLastError(static_cast<DWORD>(error)); }
inline int WSAStartup(WORD version, LPWSADATA data)
{
    if (!data)
        return WSAEFAULT;
    *data = WSADATA();
    data->wVersion = version;
    data->wHighVersion = MAKEWORD(2, 2);
    return 0;
}
inline int WSACleanup() { return 0; }

/* "a.b.c.d", "a.b.c.d:port", "h::h", "[h::h]:port". 0, or SOCKET_ERROR with the reason in WSAGetLastError. */
inline INT WSAStringToAddressA(LPSTR text, INT family, LPVOID, LPSOCKADDR address, INT *length)
{
    if (!text || !address || !length)
        return WSASetLastError(WSAEFAULT), SOCKET_ERROR;
    std::string host(text);
    unsigned long port = 0;
    const size_t bracket = host.find(']');
    const size_t colon = host.rfind(':');
    const bool v6 = family == AF_INET6;
    if (colon != std::string::npos && (!v6 || (bracket != std::string::npos && colon == bracket + 1))) {
        char *end = nullptr;
        port = std::strtoul(host.c_str() + colon + 1, &end, 10);
        if (end == host.c_str() + colon + 1 || *end || port > 0xFFFF)
            return WSASetLastError(WSAEINVAL), SOCKET_ERROR;
        host.resize(colon);
    }
    if (v6 && host.size() > 1 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    const INT needed = static_cast<INT>(v6 ? sizeof(SOCKADDR_IN6) : sizeof(SOCKADDR_IN));
    if ((!v6 && family != AF_INET) || *length < needed) {
        *length = needed;
        return WSASetLastError(WSAEFAULT), SOCKET_ERROR;
    }
    SOCKADDR_INET result;
    std::memset(&result, 0, sizeof result);
    result.si_family = static_cast<ADDRESS_FAMILY>(family);
    void *into = v6 ? static_cast<void *>(&result.Ipv6.sin6_addr) : static_cast<void *>(&result.Ipv4.sin_addr);
    if (::inet_pton(family, host.c_str(), into) != 1)
        return WSASetLastError(WSAEINVAL), SOCKET_ERROR;
    (v6 ? result.Ipv6.sin6_port : result.Ipv4.sin_port) = htons(static_cast<uint16_t>(port));
    std::memcpy(address, &result, static_cast<size_t>(needed));
    *length = needed;
    return 0;
}
inline INT WSAStringToAddressW(LPCWSTR text, INT family, LPVOID protocol, LPSOCKADDR address, INT *length)
{
    return WSAStringToAddressA(&transom_win32::narrow(text)[0], family, protocol, address, length);
}
#define WSAStringToAddress WSAStringToAddressW

#endif
