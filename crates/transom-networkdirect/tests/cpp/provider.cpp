// The library as Microsoft's client framework uses it on Windows: loaded by its path, asked for objects, freed. Not
// linked with it, so that nothing but these calls keeps it in the process.
#include <ndspi.h>
#include <ws2tcpip.h>

#include "system.h"

#include <vector>

#define HR(a, b) CHECK_EQ((UINT32)(a), (UINT32)(b))

// The words in the headers, as Windows' compilers read them.
static_assert(sizeof(WCHAR) == 2 && sizeof(long) == 4 && sizeof(ULONG) == 4 && sizeof(SIZE_T) == 8 && AF_INET6 == 23);
static_assert(sizeof(OVERLAPPED) == 32 && offsetof(OVERLAPPED, hEvent) == 24);
static_assert(sizeof(ND2_ADAPTER_INFO) == 96 && sizeof(ND2_RESULT) == 32 && sizeof(ND2_SGE) == 16);
static_assert(sizeof(ND_ADAPTER_INFO) == 128 && sizeof(ND_RESULT) == 16 && sizeof(ND_SGE) == 24);

static const GUID ANY_ID = {0x103135bf, 0xed2b, 0x47f1, {0xbb, 0x0b, 0x54, 0x52, 0x41, 0x4e, 0x53, 0x4d}};

template <class F> static F named(HMODULE library, const char *name)
{
    const F found = (F)(void *)GetProcAddress(library, name);
    CHECK(found);
    return found;
}

struct Library {
    HMODULE handle = LoadLibraryA("transom_nd.dll");
    HRESULT(STDAPICALLTYPE *get)(REFCLSID, REFIID, void **);
    HRESULT(STDAPICALLTYPE *can_unload)();

    Library()
    {
        CHECK(handle);
        get = named<decltype(get)>(handle, "DllGetClassObject");
        can_unload = named<decltype(can_unload)>(handle, "DllCanUnloadNow");
    }
    IND2Provider *provider() const
    {
        IND2Provider *made = nullptr;
        HR(get(ANY_ID, IID_IND2Provider, (void **)&made), S_OK);
        return made;
    }
};

static sockaddr_in loopback()
{
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static IND2Adapter *open(IND2Provider *provider)
{
    const sockaddr_in at = loopback();
    UINT64 id = 0;
    IND2Adapter *adapter = nullptr;
    HR(provider->ResolveAddress((const sockaddr *)&at, sizeof at, &id), ND_SUCCESS);
    HR(provider->OpenAdapter(IID_IND2Adapter, id, (void **)&adapter), ND_SUCCESS);
    return adapter;
}

// ND2 6.3: each use loads the library, asks for an object and frees the library if it may.
static void framework()
{
    for (int i = 0; i < 3; ++i) {
        const Library library;
        HR(library.can_unload(), S_OK);
        IND2Provider *provider = library.provider();
        HR(library.can_unload(), S_FALSE);
        ULONG size = 0;
        HR(provider->QueryAddressList(nullptr, &size), ND_BUFFER_OVERFLOW);
        std::vector<char> room(size);
        SOCKET_ADDRESS_LIST *list = (SOCKET_ADDRESS_LIST *)room.data();
        HR(provider->QueryAddressList(list, &size), ND_SUCCESS);
        CHECK(list->iAddressCount > 0);
        for (int one = 0; one < list->iAddressCount; ++one) {
            const int family = list->Address[one].lpSockaddr->sa_family;
            CHECK(family == AF_INET || family == AF_INET6);
            CHECK_EQ(list->Address[one].iSockaddrLength, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        }
        CHECK_EQ(provider->Release(), 0);
        HR(library.can_unload(), S_OK);
        CHECK(FreeLibrary(library.handle));
    }
    const Library library;
    void *none = (void *)1;
    HR(library.get(ANY_ID, IID_IND2Adapter, &none), CLASS_E_CLASSNOTAVAILABLE);
    CHECK(none == nullptr);
    HR(library.get(ANY_ID, IID_IND2Provider, nullptr), E_POINTER);
    HR(library.can_unload(), S_OK);
    // Winsock itself, should it ever start what the entry names: WSASYSNOTREADY.
    CHECK_EQ(named<int(WSAAPI *)()>(library.handle, "WSPStartup")(), WSASYSNOTREADY);
}

// ND1 6.1: by a class factory, which can hold the library.
static void factory()
{
    const Library library;
    IClassFactory *factory = nullptr;
    INDProvider *provider = nullptr;
    HR(library.get(ANY_ID, IID_IClassFactory, (void **)&factory), S_OK);
    HR(factory->CreateInstance(factory, IID_INDProvider, (void **)&provider), CLASS_E_NOAGGREGATION);
    HR(factory->CreateInstance(nullptr, IID_INDAdapter, (void **)&provider), E_NOINTERFACE);
    HR(factory->CreateInstance(nullptr, IID_INDProvider, (void **)&provider), S_OK);
    HR(factory->LockServer(TRUE), S_OK);
    CHECK_EQ(factory->Release(), 0);
    const sockaddr_in at = loopback();
    INDAdapter *adapter = nullptr;
    HR(provider->OpenAdapter((const sockaddr *)&at, sizeof at, &adapter), ND_SUCCESS);
    CHECK_EQ(provider->Release(), 0);
    HR(library.can_unload(), S_FALSE);
    CHECK_EQ(adapter->Release(), 0);
    HR(library.can_unload(), S_FALSE); // the lock
    HR(library.get(ANY_ID, IID_IClassFactory, (void **)&factory), S_OK);
    HR(factory->LockServer(FALSE), S_OK);
    HR(factory->LockServer(FALSE), E_UNEXPECTED);
    CHECK_EQ(factory->Release(), 0);
    HR(library.can_unload(), S_OK);
}

// ND2 1.3 rule 10: the framework's end frees the library, whatever is alive.
static void unload()
{
    const Library library;
    IND2Provider *provider = library.provider();
    IND2Adapter *adapter = open(provider);
    HANDLE file = nullptr;
    IND2CompletionQueue *queue = nullptr;
    IND2QueuePair *pair = nullptr;
    OVERLAPPED ov = {};
    HR(adapter->CreateOverlappedFile(&file), ND_SUCCESS);
    HR(adapter->CreateCompletionQueue(IID_IND2CompletionQueue, file, 8, 0, 0, (void **)&queue), ND_SUCCESS);
    HR(queue->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
    for (int i = 0; i < 10; ++i)
        FreeLibrary(library.handle);
    HR(library.can_unload(), S_FALSE);
    HR(adapter->CreateQueuePair(IID_IND2QueuePair, queue, queue, nullptr, 1, 1, 1, 1, 0, (void **)&pair), ND_SUCCESS);
    HR(pair->Receive(&ov, nullptr, 0), ND_SUCCESS);
    HR(pair->Flush(), ND_SUCCESS);
    HR(queue->GetOverlappedResult(&ov, TRUE), ND_SUCCESS);
    ND2_RESULT result;
    CHECK_EQ(queue->GetResults(&result, 1), 1);
    HR(result.Status, ND_CANCELED);
    for (IUnknown *one : {(IUnknown *)pair, (IUnknown *)queue, (IUnknown *)adapter, (IUnknown *)provider})
        CHECK_EQ(one->Release(), 0);
    CloseHandle(file);
    HR(library.can_unload(), S_OK);
    FreeLibrary(library.handle);
    // And again.
    const Library second;
    CHECK(second.handle == library.handle);
    provider = second.provider();
    CHECK_EQ(open(provider)->Release(), 0);
    CHECK_EQ(provider->Release(), 0);
    HR(second.can_unload(), S_OK);
}

int main(int argc, char **argv)
{
    time_limit(300);
    static const struct {
        const char *name;
        void (*run)();
    } cases[] = {{"framework", framework}, {"factory", factory}, {"unload", unload}};
    for (const auto &one : cases)
        if (argc > 1 && std::string(one.name) == argv[1]) {
            one.run();
            return 0;
        }
    CHECK(!"a case");
}
