// Of ND2 7.6: the provider, adapters and overlapped calls: 1 to 8. Included by easy.cpp.
#pragma once

#include "easy.h"

static void easy_01()
{
    Side s;
    ND2_ADAPTER_INFO info = {};
    ULONG size = sizeof info;
    info.InfoVersion = ND_VERSION_2;
    HR(s.adapter->Query(&info, &size), ND_SUCCESS);
    CHECK_EQ(info.InfoVersion, 0x20000);
    CHECK_EQ(size, sizeof info);
    info.InfoVersion = 2;
    HR(s.adapter->Query(&info, &size), ND_NOT_SUPPORTED);
    size = 0;
    HR(s.adapter->Query(nullptr, &size), ND_BUFFER_OVERFLOW);
    CHECK_EQ(size, 96);
}

static void easy_02()
{
    const GUID any = {1, 2, 3, {4}};
    IND2Provider *provider = nullptr;
    HR(DllGetClassObject(any, IID_IND2Provider, (void **)&provider), S_OK);
    const sockaddr_in a = address("127.0.0.1", 7);
    UINT64 id = 0;
    HR(provider->ResolveAddress(sa(a), sizeof a, &id), ND_SUCCESS);
    IND2Adapter *adapter = nullptr;
    HR(provider->OpenAdapter(IID_IND2Adapter, id, (void **)&adapter), ND_SUCCESS);
    CHECK_EQ(provider->Release(), 0);
    ULONG size = 0;
    HR(adapter->QueryAddressList(nullptr, &size), ND_BUFFER_OVERFLOW);
    HR(DllCanUnloadNow(), S_FALSE);
    CHECK_EQ(adapter->Release(), 0);
    HR(DllCanUnloadNow(), S_OK);
}

static void easy_03()
{
    Side s;
    const HANDLE port = CreateIoCompletionPort(s.file, nullptr, 7, 0);
    char buffer[64];
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    OVERLAPPED ov = {};
    HR(mr->Register(buffer, sizeof buffer, 0, &ov), ND_PENDING);
    Packet p = packet(port, 0);
    CHECK(p.done && p.ov == &ov);
    HR(mr->GetOverlappedResult(&ov, FALSE), ND_SUCCESS);
    CHECK(packet(port, 0).ov == nullptr);
    HR(mr->Deregister(&ov), ND_PENDING);
    CHECK(packet(port, 0).ov == &ov && packet(port, 0).ov == nullptr);
    mr->Release();
    CloseHandle(port);
}

static void easy_04()
{
    Side s;
    const HANDLE port = CreateIoCompletionPort(s.file, nullptr, 0, 0);
    s.make_queues();
    s.bind();
    OVERLAPPED ov = {};
    const sockaddr_in to = address("127.0.0.1", 1); // nobody listens
    HR(s.connector->Connect(s.qp, sa(to), sizeof to, 0, 0, nullptr, 0, &ov), ND_PENDING);
    const Packet p = packet(port, INFINITE);
    CHECK(!p.done && p.ov == &ov);
    HR(s.connector->GetOverlappedResult(&ov, FALSE), ND_CONNECTION_REFUSED);
    CloseHandle(port);
}

static void easy_05()
{
    Side s;
    const HANDLE port = CreateIoCompletionPort(s.file, nullptr, 0, 0);
    char buffer[64];
    IND2MemoryRegion *mr = nullptr;
    HR(s.adapter->CreateMemoryRegion(IID_IND2MemoryRegion, s.file, (void **)&mr), ND_SUCCESS);
    const HANDLE event = CreateEvent(nullptr, FALSE, FALSE, nullptr);
    OVERLAPPED ov = {};
    ov.hEvent = (HANDLE)((ULONG_PTR)event | 1);
    HR(mr->Register(buffer, sizeof buffer, 0, &ov), ND_PENDING);
    CHECK_EQ(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    CHECK(packet(port, 0).ov == nullptr);
    mr->Release();
    CloseHandle(event);
    CloseHandle(port);
}

static void easy_06()
{
    Side s;
    const HANDLE port = CreateIoCompletionPort(s.file, nullptr, 0, 0);
    IND2CompletionQueue *cq[2];
    for (auto &one : cq)
        HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, (void **)&one), ND_SUCCESS);
    OVERLAPPED ov[3] = {};
    HR(cq[0]->Notify(ND_CQ_NOTIFY_ANY, &ov[0]), ND_PENDING);
    HR(cq[1]->Notify(ND_CQ_NOTIFY_ANY, &ov[1]), ND_PENDING);
    HR(cq[0]->Notify(ND_CQ_NOTIFY_ERRORS, &ov[2]), ND_PENDING);
    HR(cq[0]->CancelOverlappedRequests(), ND_SUCCESS);
    for (int i : {0, 2}) {
        const Packet p = packet(port, 0);
        CHECK(!p.done && p.ov == &ov[i]);
        CHECK_EQ(p.error, ERROR_OPERATION_ABORTED);
        HR(cq[0]->GetOverlappedResult(&ov[i], FALSE), ND_CANCELED);
    }
    CHECK(packet(port, 0).ov == nullptr);
    HR(cq[1]->GetOverlappedResult(&ov[1], FALSE), ND_PENDING);
    HR(cq[1]->CancelOverlappedRequests(), ND_SUCCESS);
    CHECK(packet(port, 0).ov == &ov[1]);
    for (auto *one : cq)
        one->Release();
    CloseHandle(port);
}

static void easy_07()
{
    Side s;
    s.make_queues();
    OVERLAPPED ov = {};
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &ov), ND_PENDING);
    char buffer[8];
    IND2MemoryRegion *other = s.region(buffer, sizeof buffer, 0);
    HR(other->GetOverlappedResult(&ov, FALSE), ND_PENDING);
    HR(s.cq->CancelOverlappedRequests(), ND_SUCCESS);
    HR(other->GetOverlappedResult(&ov, TRUE), ND_CANCELED);
}

static void easy_08()
{
    two(
        [](Link &link) {
            Side s;
            s.make_queues();
            link.to_client.put(s.listen());
            s.take_request();
            HR(s.accept(), ND_CONNECTION_REFUSED);
        },
        [](Link &link) {
            Side c;
            c.make_queues();
            c.bind();
            HR(c.connect(link.to_client.get<USHORT>()), ND_SUCCESS);
            CHECK_EQ(c.connector->Release(), 0);
            c.connector = nullptr;
        });
}
