// Of ND2 7.6: queues and their completions: 9 to 16. Included by easy.cpp.
#pragma once

#include "easy.h"

static void easy_09()
{
    connected(
        [](Side &s, Link &) {
            HR(s.accept(), ND_SUCCESS);
            HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive); // the peer has left
            HR(s.qp->Send(&s.ov, nullptr, 0, 0), ND_SUCCESS);
            s.expect(ND_CANCELED, &s.ov, Nd2RequestTypeSend);
            HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
        },
        [](Side &c, Link &) { HR(c.disconnect(), ND_SUCCESS); });
}

static void easy_10()
{
    connected(
        [](Side &s, Link &link) {
            for (int i = 0; i < 2; ++i)
                HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            OVERLAPPED gone = {};
            HR(s.connector->NotifyDisconnect(&gone), ND_PENDING);
            link.to_client.put(1);
            // Without a Disconnect of ours; and NotifyDisconnect ends before the flush (ND2 C19).
            HR(s.wait(s.cq, s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov)), ND_SUCCESS);
            HR(s.connector->GetOverlappedResult(&gone, FALSE), ND_SUCCESS);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeReceive);
        },
        [](Side &c, Link &link) {
            link.to_client.get<int>();
            HR(c.disconnect(), ND_SUCCESS);
        });
}

static void easy_11()
{
    // The peer disconnects, is gone without a word, or ends the connection by a violation.
    for (int how = 0; how < 3; ++how)
        connected(
            [&](Side &s, Link &) {
                HR(s.accept(), ND_SUCCESS);
                HR(s.wait(s.connector, s.connector->NotifyDisconnect(&s.ov)), ND_SUCCESS);
                HR(s.disconnect(), ND_SUCCESS);
                HR(s.connector->Disconnect(&s.ov), ND_CONNECTION_INVALID); // once
                HR(s.connector->NotifyDisconnect(&s.ov), 0xC000020C);
            },
            [&](Side &c, Link &) {
                if (how == 0)
                    HR(c.disconnect(), ND_SUCCESS);
                else if (how == 1)
                    vanish(0);
                else {
                    char byte;
                    const ND2_SGE sge = c.sge(c.region(&byte, 1, ND_MR_FLAG_ALLOW_LOCAL_WRITE), &byte, 1);
                    HR(c.qp->Write(&c, &sge, 1, 4096, 0x5EED, 0), ND_SUCCESS);
                    c.expect(ND_ACCESS_VIOLATION, &c, Nd2RequestTypeWrite);
                    HR(c.disconnect(), ND_SUCCESS); // the violator's succeeds, too
                }
            });
}

static void easy_12()
{
    const int rounds = 200;
    connected(
        [](Side &s, Link &) {
            for (int i = 0; i < 8; ++i)
                HR(s.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            for (int i = 0; i < rounds; ++i) {
                ND2_RESULT r;
                do
                    r = s.result();
                while (r.RequestType != Nd2RequestTypeReceive);
                HR(r.Status, ND_SUCCESS);
                HR(s.qp->Receive(nullptr, nullptr, 0), ND_SUCCESS);
                HR(s.qp->Send(nullptr, nullptr, 0, 0), ND_SUCCESS);
            }
            ND2_RESULT r;
            do
                r = s.result();
            while (r.Status == ND_SUCCESS);
        },
        [](Side &c, Link &) {
            for (int i = 0; i < rounds; ++i) {
                HR(c.qp->Receive(&c, nullptr, 0), ND_SUCCESS);
                HR(c.qp->Send(&c.ov, nullptr, 0, 0), ND_SUCCESS);
                c.expect(ND_SUCCESS, &c.ov, Nd2RequestTypeSend); // first, always
                c.expect(ND_SUCCESS, &c, Nd2RequestTypeReceive);
            }
            HR(c.disconnect(), ND_SUCCESS);
        });
}

static void easy_13()
{
    Side s;
    s.make_queues();
    HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
    HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov), ND_PENDING);
    HR(s.qp->Flush(), ND_SUCCESS);
    HR(s.cq->GetOverlappedResult(&s.ov, TRUE), ND_SUCCESS);
    ND2_RESULT r[3];
    CHECK_EQ(s.cq->GetResults(r, 3), 2);
    HR(r[0].Status, ND_CANCELED);
    HR(r[1].Status, ND_CANCELED);
}

static void easy_14()
{
    Side s;
    s.make_queues();
    HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
    HR(s.qp->Flush(), ND_SUCCESS);
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov), ND_PENDING);
    HR(s.cq->GetOverlappedResult(&s.ov, FALSE), ND_SUCCESS);
    HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov), ND_PENDING); // one entry fires once (ND2 N2)
    HR(s.cq->GetOverlappedResult(&s.ov, FALSE), ND_PENDING);
    HR(s.cq->CancelOverlappedRequests(), ND_SUCCESS);
}

static void easy_15()
{
    Side s;
    s.make_queues(64, 2, 2);
    for (int i = 0; i < 64; ++i)
        HR(s.qp->Receive(&s, nullptr, 0), ND_SUCCESS);
    HR(s.qp->Receive(&s, nullptr, 0), ND_NO_MORE_ENTRIES);
    HR(s.qp->Flush(), ND_SUCCESS);
    ND2_RESULT r[65];
    CHECK_EQ(s.cq->GetResults(r, 65), 64);
}

static void easy_16()
{
    const ULONG granted = 16; // documented: whatever was asked for
    const auto make = [](Side &s) { s.make_queues(8, 1); };
    two(
        [&](Link &link) {
            Side s;
            make(s);
            link.to_client.put(s.listen());
            s.take_request();
            char buffer[64] = {};
            IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_ALLOW_REMOTE_WRITE |
                                                                       ND_MR_FLAG_ALLOW_REMOTE_READ);
            const ND2_SGE list[2] = {s.sge(mr, buffer, 2), s.sge(mr, buffer + 8, 2)};
            HR(s.qp->Receive(&s, list, 2), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            const ND2_RESULT r = s.result();
            HR(r.Status, ND_SUCCESS);
            CHECK_EQ(r.BytesTransferred, 4);
            CHECK(std::memcmp(buffer, "ab", 2) == 0 && std::memcmp(buffer + 8, "cd", 2) == 0);
            link.to_client.put(Descriptor{(UINT64)buffer + 32, mr->GetRemoteToken()});
            link.to_server.get<int>();
            CHECK(std::memcmp(buffer + 32, "abcd", 4) == 0);
        },
        [&](Link &link) {
            Side c;
            make(c);
            c.connect_and_complete(link.to_client.get<USHORT>());
            char buffer[] = "abcd....", back[8] = {};
            IND2MemoryRegion *mr = c.region(buffer, sizeof buffer, 0), *sink = c.region(back, 8, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            const ND2_SGE list[2] = {c.sge(mr, buffer, 1), c.sge(mr, buffer + 1, 3)};
            const ND2_SGE into[2] = {c.sge(sink, back + 4, 3), c.sge(sink, back, 1)};
            HR(c.qp->Send(&c, list, 2, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeSend);
            const Descriptor d = link.to_client.get<Descriptor>();
            HR(c.qp->Write(&c, list, 2, d.address, d.token, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeWrite);
            HR(c.qp->Read(&c, into, 2, d.address, d.token, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeRead);
            CHECK(std::memcmp(back, "d\0\0\0abc", 7) == 0);
            // The grant is what ND_DATA_OVERRUN goes by, not what was asked for.
            std::vector<ND2_SGE> many(granted + 1, ND2_SGE{buffer, 0, mr->GetLocalToken()});
            HR(c.qp->Send(&c, many.data(), granted + 1, 0), ND_DATA_OVERRUN);
            HR(c.qp->Receive(&c, many.data(), granted + 1), ND_DATA_OVERRUN);
            HR(c.qp->Write(&c, many.data(), granted, d.address, d.token, 0), ND_SUCCESS);
            c.expect(ND_SUCCESS, &c, Nd2RequestTypeWrite);
            link.to_server.put(1);
        });
}
