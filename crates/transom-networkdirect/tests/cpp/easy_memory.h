// Of ND2 7.6: regions, windows and refusals: 17 to 20, 29. Included by easy.cpp.
#pragma once

#include "easy.h"

static void easy_17()
{
    connected(
        [](Side &s, Link &link) {
            HR(s.accept(), ND_SUCCESS);
            char buffer[64] = "secret";
            IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            IND2MemoryWindow *mw = s.window();
            CHECK_EQ(mw->GetRemoteToken(), 0);
            HR(s.qp->Bind(&s, mr, mw, buffer, sizeof buffer, 0), ND_SUCCESS);
            CHECK(mw->GetRemoteToken() != 0);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
            HR(mr->Deregister(&s.ov), ND_DEVICE_BUSY); // bound it is
            link.to_client.put(Descriptor{(UINT64)buffer, mw->GetRemoteToken()});
            link.to_server.get<int>();
        },
        [](Side &c, Link &link) {
            const Descriptor d = link.to_client.get<Descriptor>();
            char byte = 'x';
            const ND2_SGE sge = c.sge(c.region(&byte, 1, ND_MR_FLAG_ALLOW_LOCAL_WRITE), &byte, 1);
            HR(c.qp->Read(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
            c.expect(ND_ACCESS_VIOLATION, &c, Nd2RequestTypeRead); // but opens nothing
            CHECK_EQ(byte, 'x');
            link.to_server.put(1);
        });
}

static void easy_18()
{
    connected(
        [](Side &s, Link &link) {
            HR(s.accept(), ND_SUCCESS);
            char buffer[64];
            IND2MemoryRegion *mr = s.region(buffer, sizeof buffer, ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            IND2MemoryWindow *mw = s.window();
            OVERLAPPED ov = {};
            HR(s.qp->Bind(&s, mr, mw, buffer, sizeof buffer, ND_OP_FLAG_ALLOW_READ), ND_SUCCESS);
            HR(mr->Deregister(&ov), ND_DEVICE_BUSY); // from the post on
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
            HR(mr->Deregister(&ov), ND_DEVICE_BUSY);
            CHECK(ov.Internal != (ULONG_PTR)ND_PENDING); // nothing will be delivered
            HR(s.qp->Bind(&s, mr, mw, buffer, sizeof buffer, 0), ND_INVALID_DEVICE_STATE);
            HR(s.qp->Invalidate(&s, mw, 0), ND_SUCCESS);
            s.expect(ND_SUCCESS, &s, Nd2RequestTypeInvalidate);
            HR(s.wait(mr, mr->Deregister(&s.ov)), ND_SUCCESS);
            HR(mr->Deregister(&s.ov), ND_INVALID_DEVICE_STATE);
            link.to_client.put(1);
        },
        [](Side &, Link &link) { link.to_client.get<int>(); });
}

// The server opens `size` bytes; the client's request ends with an access violation.
static void violation(ULONG mr_flags, ULONG bind_flags,
                      const std::function<void(Side &, IND2MemoryRegion *, char *, Descriptor)> &ask, bool remote = true)
{
    connected(
        [&](Side &s, Link &link) {
            std::vector<char> buffer(4096, 'x');
            IND2MemoryRegion *mr = s.region(buffer.data(), buffer.size(), mr_flags);
            HR(s.qp->Receive(&s.ov, nullptr, 0), ND_SUCCESS);
            HR(s.accept(), ND_SUCCESS);
            UINT32 token = mr->GetRemoteToken();
            if (bind_flags != ~0u) {
                IND2MemoryWindow *mw = s.window();
                HR(s.qp->Bind(&s, mr, mw, buffer.data(), buffer.size(), bind_flags), ND_SUCCESS);
                s.expect(ND_SUCCESS, &s, Nd2RequestTypeBind);
                token = mw->GetRemoteToken();
            }
            link.to_client.put(Descriptor{(UINT64)buffer.data(), token});
            s.expect(ND_CANCELED, &s.ov, Nd2RequestTypeReceive);
            for (char c : buffer)
                CHECK(c == 'x');
            if (!remote)
                return;
            ITransomExplain *why = nullptr;
            HR(s.qp->QueryInterface(IID_ITransomExplain, (void **)&why), ND_SUCCESS);
            char text[1024];
            ULONG size = sizeof text;
            HR(why->GetLastRefusal(text, &size), S_OK);
            CHECK(size > 20 && text[size - 1] == '\0');
            why->Release();
        },
        [&](Side &c, Link &link) {
            std::vector<char> buffer(8192);
            IND2MemoryRegion *mr = c.region(buffer.data(), buffer.size(), ND_MR_FLAG_ALLOW_LOCAL_WRITE);
            ask(c, mr, buffer.data(), link.to_client.get<Descriptor>());
            const ND2_RESULT r = c.result();
            HR(r.Status, ND_ACCESS_VIOLATION);
        });
}

static void easy_19()
{
    const ULONG both = ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE;
    violation(ND_MR_FLAG_ALLOW_LOCAL_WRITE, both, [](Side &c, IND2MemoryRegion *mr, char *b, Descriptor d) {
        const ND2_SGE sge = c.sge(mr, b, 4097);
        HR(c.qp->Read(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
    });
    violation(ND_MR_FLAG_ALLOW_LOCAL_WRITE, both, [](Side &c, IND2MemoryRegion *mr, char *b, Descriptor d) {
        const ND2_SGE sge = c.sge(mr, b, 4097);
        HR(c.qp->Write(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
    });
    violation(ND_MR_FLAG_ALLOW_LOCAL_WRITE, ND_OP_FLAG_ALLOW_READ, [](Side &c, IND2MemoryRegion *mr, char *b, Descriptor d) {
        const ND2_SGE sge = c.sge(mr, b, 8);
        HR(c.qp->Write(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
    });
    // A list that is one byte too long here is found out when its turn comes.
    violation(ND_MR_FLAG_ALLOW_LOCAL_WRITE, both, [](Side &c, IND2MemoryRegion *mr, char *b, Descriptor d) {
        const ND2_SGE sge = c.sge(mr, b + 8100, 93);
        HR(c.qp->Write(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
    }, false);
}

static void easy_20()
{
    // The victim's receives are flushed as one batch behind its NotifyDisconnect, and its queue pair is done;
    // another connection of the same adapter notices nothing.
    two(
        [](Link &link) {
            Side s, other;
            for (Side *side : {&s, &other})
                side->make_queues();
            link.to_client.put(s.listen());
            link.to_client.put(other.listen());
            for (Side *side : {&s, &other}) {
                side->take_request();
                for (int i = 0; i < 3; ++i)
                    HR(side->qp->Receive(side, nullptr, 0), ND_SUCCESS);
                HR(side->accept(), ND_SUCCESS);
            }
            OVERLAPPED told = {};
            HR(s.connector->NotifyDisconnect(&told), ND_PENDING);
            HR(s.cq->Notify(ND_CQ_NOTIFY_ANY, &s.ov), ND_PENDING);
            link.to_client.put(1);
            HR(s.cq->GetOverlappedResult(&s.ov, TRUE), ND_SUCCESS);
            HR(s.connector->GetOverlappedResult(&told, FALSE), ND_SUCCESS);
            ND2_RESULT r[4];
            CHECK_EQ(s.cq->GetResults(r, 4), 3);
            for (int i = 0; i < 3; ++i)
                HR(r[i].Status, ND_CANCELED);
            HR(s.qp->Send(&s, nullptr, 0, 0), ND_SUCCESS);
            s.expect(ND_CANCELED, &s, Nd2RequestTypeSend);
            HR(other.qp->Send(&other, nullptr, 0, 0), ND_SUCCESS);
            other.expect(ND_SUCCESS, &other, Nd2RequestTypeSend);
            link.to_server.get<int>();
        },
        [](Link &link) {
            Side c, other;
            for (Side *side : {&c, &other}) {
                side->make_queues();
                HR(side->qp->Receive(side, nullptr, 0), ND_SUCCESS);
                side->bind();
            }
            for (Side *side : {&c, &other}) {
                HR(side->connect(link.to_client.get<USHORT>()), ND_SUCCESS);
                HR(side->wait(side->connector, side->connector->CompleteConnect(&side->ov)), ND_SUCCESS);
            }
            link.to_client.get<int>();
            char byte;
            const ND2_SGE sge = c.sge(c.region(&byte, 1, ND_MR_FLAG_ALLOW_LOCAL_WRITE), &byte, 1);
            HR(c.qp->Read(&byte, &sge, 1, 4096, 0x5EED, 0), ND_SUCCESS);
            HR(c.result().Status, ND_ACCESS_VIOLATION);
            c.expect(ND_CANCELED, &c, Nd2RequestTypeReceive); // the violator's, too
            other.expect(ND_SUCCESS, &other, Nd2RequestTypeReceive);
            link.to_server.put(1);
        });
}

static void easy_29()
{
    // Local write does not open the region to peers, although it is a bit of REMOTE_WRITE.
    violation(ND_MR_FLAG_ALLOW_LOCAL_WRITE, ~0u, [](Side &c, IND2MemoryRegion *mr, char *b, Descriptor d) {
        const ND2_SGE sge = c.sge(mr, b, 8);
        HR(c.qp->Write(&c, &sge, 1, d.address, d.token, 0), ND_SUCCESS);
    });
}
