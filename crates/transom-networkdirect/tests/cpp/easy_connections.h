// Of ND2 7.6: connections and traffic: 21 to 24, 28, 30, 31. Included by easy.cpp.
#pragma once

#include "easy.h"

static void easy_21()
{
    two(
        [](Link &link) {
            Side s;
            s.make_queues();
            link.to_client.put(s.listen());
            s.take_request();
            const ULONG limit = s.info().MaxCalleeData;
            std::vector<char> data(limit + 1, 'd');
            HR(s.connector->Accept(s.qp, 0, 0, data.data(), limit + 1, &s.ov), ND_INVALID_BUFFER_SIZE);
            ULONG size = 0;
            HR(s.connector->GetPrivateData(nullptr, &size), ND_BUFFER_OVERFLOW);
            CHECK_EQ(size, s.info().MaxCallerData);
            HR(s.wait(s.connector, s.connector->Accept(s.qp, 0, 0, data.data(), limit, &s.ov)), ND_SUCCESS);
        },
        [](Link &link) {
            Side c;
            c.make_queues();
            c.bind();
            const sockaddr_in from = address("127.0.0.1", 0);
            HR(c.connector->Bind(sa(from), sizeof from), 0xC0000238);
            const USHORT port = link.to_client.get<USHORT>();
            const ULONG limit = c.info().MaxCallerData;
            std::vector<char> data(limit + 1, 'c');
            HR(c.connect(port, data.data(), limit + 1), ND_INVALID_BUFFER_SIZE);
            HR(c.connect(port, data.data(), limit), ND_SUCCESS);
            char some[8];
            ULONG size = sizeof some;
            HR(c.connector->GetPrivateData(some, &size), ND_BUFFER_OVERFLOW);
            CHECK(size == c.info().MaxCalleeData && std::memcmp(some, "dddddddd", 8) == 0);
            HR(c.wait(c.connector, c.connector->CompleteConnect(&c.ov)), ND_SUCCESS);
        });
}

static void easy_22()
{
    const int rounds = 300, size = 100000;
    connected(
        [](Side &s, Link &link) {
            std::vector<unsigned char> buffer(size);
            IND2MemoryRegion *mr = s.region(buffer.data(), size, ND_MR_FLAG_ALLOW_REMOTE_WRITE);
            HR(s.accept(), ND_SUCCESS);
            link.to_client.put(Descriptor{(UINT64)buffer.data(), mr->GetRemoteToken()});
            for (int round = 1; round <= rounds; ++round) {
                const unsigned char want = (unsigned char)round;
                while (__atomic_load_n(&buffer[size - 1], __ATOMIC_ACQUIRE) != want)
                    ;
                for (unsigned char c : buffer)
                    CHECK_EQ(c, want);
                std::memset(buffer.data(), 0, size); // ours until we ask for more
                link.to_client.put(round);
            }
        },
        [](Side &c, Link &link) {
            std::vector<unsigned char> buffer(size);
            IND2MemoryRegion *mr = c.region(buffer.data(), size, 0);
            const Descriptor d = link.to_client.get<Descriptor>();
            for (int round = 1; round <= rounds; ++round) {
                std::memset(buffer.data(), round, size);
                const ND2_SGE sge = c.sge(mr, buffer.data(), size);
                HR(c.qp->Write(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
                c.expect(ND_SUCCESS, &c, Nd2RequestTypeWrite);
                CHECK_EQ(link.to_client.get<int>(), round);
            }
        });
}

static void easy_23()
{
    connected(
        [](Side &s, Link &link) {
            OVERLAPPED accept = {}; // its end is not asked for before the Send
            HR(s.connector->Accept(s.qp, 0, 0, nullptr, 0, &accept), ND_PENDING);
            link.to_server.get<int>(); // the client has completed
            HRESULT hr;
            while ((hr = s.qp->Send(&s, nullptr, 0, 0)) == ND_CONNECTION_INVALID)
                Sleep(0);
            HR(hr, ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeSend);
            HR(s.connector->GetOverlappedResult(&accept, TRUE), ND_SUCCESS);
            link.to_server.get<int>();
        },
        [](Side &c, Link &link) {
            HR(c.qp->Receive(&c, nullptr, 0), ND_SUCCESS);
            link.to_server.put(1);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeReceive);
            link.to_server.put(2);
        });
}

static void easy_24()
{
    connected(
        [](Side &s, Link &link) {
            HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            const ND2_RESULT r = s.result();
            HR(r.Status, ND_SUCCESS);
            CHECK_EQ(r.BytesTransferred, 0);
            link.to_client.put(1);
        },
        [](Side &c, Link &link) {
            HR(c.qp->Write(&c, nullptr, 0, 0, 0, 0), ND_SUCCESS);
            HR(c.qp->Read(&c, nullptr, 0, 12345, 678, 0), ND_SUCCESS);
            HR(c.qp->Send(&c, nullptr, 0, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeWrite);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeRead);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeSend);
            link.to_client.get<int>();
        });
}

static void easy_28()
{
    connected(
        [](Side &s, Link &link) {
            HR(s.accept(), ND_SUCCESS);
            link.to_server.get<int>();
            ND2_RESULT r;
            CHECK_EQ(s.cq->GetResults(&r, 1), 0);
        },
        [](Side &c, Link &link) {
            const auto start = std::chrono::steady_clock::now();
            HR(c.qp->Send(&c, nullptr, 0, 0), ND_SUCCESS);
            c.expect(ND_IO_TIMEOUT, &c, Nd2RequestTypeSend);
            CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(120));
            link.to_server.put(1);
        });
    // With a shared queue it waits for as long as it takes.
    two(
        [](Link &link) {
            Side s;
            HR(s.adapter->CreateCompletionQueue(IID_IND2CompletionQueue, s.file, 8, 0, 0, (void **)&s.cq), ND_SUCCESS);
            IND2SharedReceiveQueue *srq = nullptr;
            HR(s.adapter->CreateSharedReceiveQueue(IID_IND2SharedReceiveQueue, s.file, 8, 1, 0, 0, 0, (void **)&srq), ND_SUCCESS);
            s.owned.push_back(srq);
            HR(s.adapter->CreateQueuePairWithSrq(IID_IND2QueuePair, s.cq, s.cq, srq, &s, 8, 1, 0, (void **)&s.qp), ND_SUCCESS);
            HR(s.qp->Receive(&s, nullptr, 0), ND_INVALID_DEVICE_REQUEST);
            link.to_client.put(s.listen());
            s.take_request();
            HR(s.accept(), ND_SUCCESS);
            Sleep(2000); // longer than a plain queue's limit
            HR(srq->Receive(&s.ov, nullptr, 0), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s.ov, Nd2RequestTypeReceive);
            link.to_server.get<int>();
        },
        [](Link &link) {
            Side c;
            c.make_queues();
            c.connect_and_complete(link.to_client.get<USHORT>());
            HR(c.qp->Send(&c, nullptr, 0, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeSend);
            link.to_server.put(1);
        });
}

static void easy_30()
{
    connected(
        [](Side &s, Link &) {
            HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            HR(s.wait(s.connector, s.connector->NotifyDisconnect(&s.ov)), ND_SUCCESS);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
        },
        [](Side &c, Link &) {
            c.connector->Disconnect(&c.ov);
            vanish(0);
        });
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
            HR(c.connector->Reject(nullptr, 0), ND_SUCCESS);
            vanish(0);
        });
}

static void easy_31()
{
    connected(
        [](Side &s, Link &link) {
            HR(s.accept(), ND_SUCCESS);
            char buffer[64];
            IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            IND2MemoryWindow *mw = s.window();
            HR(s.qp->Bind(&s, mr, mw, buffer, sizeof buffer, ND_OP_FLAG_ALLOW_WRITE), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
            auto ov = std::make_unique<OVERLAPPED>();
            std::memset(ov.get(), 0, sizeof *ov);
            s.connector->Disconnect(ov.get());
            mr->Deregister(ov.get());
            std::memset((void *)ov.get(), 0xEE, sizeof *ov);
            ov.reset(); // and whoever writes to it now is found by a sanitizer
            s.owned.clear();
            CHECK_EQ(mr->Release(), 0);
            CHECK_EQ(mw->Release(), 0);
            CHECK_EQ(s.cq->Release(), 0);
            s.cq = nullptr;
            CHECK_EQ(s.qp->Release(), 0);
            s.qp = nullptr;
            CHECK_EQ(s.connector->Release(), 0);
            s.connector = nullptr;
            s.listener->Release();
            s.listener = nullptr;
            link.to_client.put(1);
        },
        [](Side &, Link &link) { link.to_client.get<int>(); });
}
