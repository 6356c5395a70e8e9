// Of ND2 7.6: addresses, limits and values: 25 to 27, 32. Included by easy.cpp.
#pragma once

#include "easy.h"

#ifndef _WIN32
#include <net/if.h>
#include <sys/ioctl.h>

// The address that NdResolveAddress finds; its family's length is told, and no more is written.
template <class T> static T resolved(const T &remote)
{
    T local = {};
    char room[sizeof(sockaddr_in6) + 1] = {};
    SIZE_T size = sizeof local - 1;
    HR(NdResolveAddress(sa(remote), sizeof remote, (sockaddr *)room, &size), ND_BUFFER_OVERFLOW);
    CHECK(size == sizeof local && room[0] == 0);
    HR(NdResolveAddress(sa(remote), sizeof remote, (sockaddr *)room, &size), ND_SUCCESS);
    CHECK(size == sizeof local && room[sizeof local] == 0);
    std::memcpy(&local, room, sizeof local);
    return local;
}

// Loopback comes up and has a network of each family, in which one address is this machine's.
// Whether there is IPv6.
static bool give_networks()
{
    ifreq one = {};
    const int four = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0);
    CHECK(four >= 0);
    std::strcpy(one.ifr_name, "lo");
    one.ifr_flags = IFF_UP;
    CHECK(ioctl(four, SIOCSIFFLAGS, &one) == 0);
    std::strcpy(one.ifr_name, "lo:1");
    const sockaddr_in own = address("192.0.2.1", 0), mask = address("255.255.255.0", 0);
    std::memcpy(&one.ifr_addr, &own, sizeof own);
    CHECK(ioctl(four, SIOCSIFADDR, &one) == 0);
    std::memcpy(&one.ifr_netmask, &mask, sizeof mask);
    CHECK(ioctl(four, SIOCSIFNETMASK, &one) == 0);
    struct {
        in6_addr address;
        std::uint32_t prefix;
        int index;
    } other = {{}, 64, (int)if_nametoindex("lo")}; // in6_ifreq of the kernel
    CHECK(inet_pton(AF_INET6, "fd00::1", &other.address) == 1);
    const bool both = ioctl(six, SIOCSIFADDR, &other) == 0;
    sockaddr_in6 six_own = {};
    six_own.sin6_family = AF_INET6;
    six_own.sin6_addr = other.address;
    while (both && bind(six, sa(six_own), sizeof six_own) != 0) // tentative for a moment
        Sleep(1);
    // A port that ordinary programs may not have; this one might, in its own namespace.
    const sockaddr_in low = address("0.0.0.0", 1);
    CHECK(bind(four, sa(low), sizeof low) == 0);
    close(six);
    return both;
}

// ND2 6.3: from where the routes would go.
static void resolving()
{
    const sockaddr_in away = address("192.0.2.9", 7);
    sockaddr_in6 away6 = {}, local6 = {};
    away6.sin6_family = AF_INET6;
    CHECK(inet_pton(AF_INET6, "fd00::9", &away6.sin6_addr) == 1);
    sockaddr_in6 room = {};
    SIZE_T size = sizeof room;
    HR(NdResolveAddress(sa(away), sizeof away, (sockaddr *)&room, &size), ND_NETWORK_UNREACHABLE);
    HR(NdResolveAddress(sa(away6), sizeof away6, (sockaddr *)&room, &size), ND_NETWORK_UNREACHABLE);
    const bool both = give_networks();
    const sockaddr_in local = resolved(away), own = address("192.0.2.1", 0);
    CHECK(std::memcmp(&local, &own, sizeof own) == 0); // no port
    if (both) {
        local6 = resolved(away6);
        CHECK(inet_pton(AF_INET6, "fd00::1", &away6.sin6_addr) == 1);
        CHECK(std::memcmp(&local6, &away6, sizeof away6) == 0);
    } else {
        std::fprintf(stderr, "easy 25: no IPv6 here; it was not tried\n");
    }
    const sockaddr_in itself = resolved(own), none = address("0.0.0.0", 0);
    CHECK(std::memcmp(&itself, &own, sizeof own) == 0);
    HR(NdResolveAddress(sa(none), sizeof none, (sockaddr *)&room, &size), ND_INVALID_ADDRESS);
    HR(NdResolveAddress(sa(away), sizeof away - 1, (sockaddr *)&room, &size), ND_INVALID_ADDRESS);
    HR(NdCleanup(), ND_SUCCESS);
    HR(NdResolveAddress(sa(away), sizeof away, (sockaddr *)&room, &size), ND_DEVICE_NOT_READY);
}

// A machine without addresses: a network namespace in which nothing is up. Before there are threads.
static void without_addresses()
{
    const pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
            vanish(77);
        const GUID any = {1, 2, 3, {4}};
        IND2Provider *provider = nullptr;
        HR(DllGetClassObject(any, IID_IND2Provider, (void **)&provider), S_OK);
        ULONG need = 0;
        HR(provider->QueryAddressList(nullptr, &need), ND_BUFFER_OVERFLOW); // not success: it would be followed
        CHECK_EQ(need, sizeof(SOCKET_ADDRESS_LIST));
        SOCKET_ADDRESS_LIST empty = {};
        empty.iAddressCount = -1;
        HR(provider->QueryAddressList(&empty, &need), ND_SUCCESS);
        CHECK_EQ(empty.iAddressCount, 0);
        CHECK_EQ(provider->Release(), 0);
        HR(NdStartup(), ND_SUCCESS);
        SIZE_T size = 1;
        HR(NdQueryAddressList(0, nullptr, &size), ND_SUCCESS); // the framework's answer (ND2 6.3)
        CHECK_EQ(size, 0);
        const sockaddr_in local = address("127.0.0.1", 0);
        HR(NdCheckAddress(sa(local), sizeof local), ND_INVALID_ADDRESS);
        resolving();
        vanish(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        std::fprintf(stderr, "easy 25: no network namespace may be made here; the empty list was not tried\n");
    else
        CHECK_EQ(WEXITSTATUS(status), 0);
}
#else
static void without_addresses() { std::fprintf(stderr, "easy 25: the empty list was not tried\n"); }
#endif

static void easy_25()
{
    without_addresses();
    // A list with addresses, and what is in it.
    Side s;
    SIZE_T size = 0;
    HR(NdQueryAddressList(0, nullptr, &size), ND_BUFFER_OVERFLOW);
    std::vector<char> room(size);
    SOCKET_ADDRESS_LIST *list = (SOCKET_ADDRESS_LIST *)room.data();
    SIZE_T less = size - 1;
    HR(NdQueryAddressList(0, list, &less), ND_BUFFER_OVERFLOW);
    CHECK(less == size && list->iAddressCount == 0); // untouched
    HR(NdQueryAddressList(0, list, &size), ND_SUCCESS);
    CHECK(list->iAddressCount > 0);
    for (int i = 0; i < list->iAddressCount; ++i)
        HR(NdCheckAddress(list->Address[i].lpSockaddr, list->Address[i].iSockaddrLength), ND_SUCCESS);
    HR(NdQueryAddressList(ND_QUERY_EXCLUDE_NDv1_ADDRESSES | ND_QUERY_EXCLUDE_NDv2_ADDRESSES, nullptr, &size), ND_SUCCESS);
    CHECK_EQ(size, 0);
}

static void easy_26()
{
    HR(NdStartup(), ND_SUCCESS);
    const sockaddr_in a = address("127.0.0.1", 0);
    static IND2Adapter *leaked; // reachable, so that a sanitizer does not call it a leak
    HR(NdOpenAdapter(IID_IND2Adapter, sa(a), sizeof a, (void **)&leaked), ND_SUCCESS);
    HR(NdCleanup(), ND_SUCCESS);
    HR(NdCleanup(), ND_DEVICE_NOT_READY);
    HR(DllCanUnloadNow(), S_FALSE);
#ifdef _WIN32
    const HMODULE library = GetModuleHandleA("transom_nd.dll");
    CHECK(library);
    for (int i = 0; i < 10; ++i)
        FreeLibrary(library); // as programs do without asking
    HR(NdStartup(), ND_SUCCESS);
#else
    Dl_info info;
    link_map *map = nullptr;
    CHECK(dladdr1((void *)NdStartup, &info, (void **)&map, RTLD_DL_LINKMAP));
    bool stays = false;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; ++d)
        stays = stays || (d->d_tag == DT_FLAGS_1 && (d->d_un.d_val & DF_1_NODELETE));
    CHECK(stays);
#endif
}

static void easy_27()
{
    Side s;
    const ND2_ADAPTER_INFO i = s.info();
    CHECK_EQ(i.MaxReceiveQueueDepth, i.MaxInitiatorQueueDepth);
    CHECK(i.MaxReceiveQueueDepth >= 64 && i.MaxReceiveQueueDepth != 0xFFFFFFFF);
    CHECK(i.InlineRequestThreshold <= i.MaxInlineDataSize && i.MaxReceiveSge <= i.MaxReceiveQueueDepth);
    CHECK(i.MaxRegistrationSize >= 67108864 && i.MaxTransferLength >= 67108864 && i.MaxCallerData >= 40);
}

// The classes of the values are asserted above; here they are met.
static void easy_32()
{
    Side s;
    s.make_queues(1);
    ULONG size = 0;
    CHECK(FAILED(s.adapter->QueryAddressList(nullptr, &size)));
    HR(s.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
    const HRESULT full = s.qp->Receive(nullptr, nullptr, 0);
    HR(full, ND_NO_MORE_ENTRIES);
    CHECK(FAILED(full));
    const HRESULT pending = s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov);
    HR(pending, ND_PENDING);
    CHECK(SUCCEEDED(pending));
    HR(s.cq->CancelOverlappedRequests(), ND_SUCCESS);
}
