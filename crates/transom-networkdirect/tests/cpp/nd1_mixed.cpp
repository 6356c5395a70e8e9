// A version 1 and a version 2 program in two processes, each as server and as client: windows both
// ways, and their revocation. Version 1 may close the other side's window; version 2 cannot.
#include "nd1_test.h"

// A window as the other version has it: version 1's descriptor, in network order.
static ND_MW_DESCRIPTOR describe(IND2MemoryWindow *mw, const void *at, UINT64 size)
{
    return ND_MW_DESCRIPTOR{htobe64((ULONG_PTR)at), htobe64(size), mw->GetRemoteToken()};
}

// Version 1's side of the conversation, once connected.
static void talk(End &end, bool speaks_first)
{
    Node &node = end.node;
    ND_RESULT invalidated, received[3], sent, bound, closed, r;
    for (int i = 0; i < 3; i++)
        end.receive(received[i], 1024 * i, 1024);
    if (speaks_first) { // ND1 C-7
        end.send_nothing(sent);
        end.done(sent);
    }
    INDMemoryWindow *mw = node.window(invalidated);
    std::memset(node.buffer + 8192, '1', 256);
    ND_MW_DESCRIPTOR mine;
    HR(end.bind(bound, mw, 8192, 4096, MAY_READ | MAY_WRITE, mine), ND_SUCCESS);
    const ND_SGE sge = {&mine, sizeof mine, nullptr};
    HR(end.endpoint->Send(&sent, &sge, 1, 0), ND_SUCCESS);
    end.done(bound);
    end.done(sent);
    int next_one = 0;
    end.got(received[next_one++]);
    if (received[0].BytesTransferred == 0)
        end.got(received[next_one++]); // the other side spoke first
    ND_MW_DESCRIPTOR theirs;
    CHECK_EQ(received[next_one - 1].BytesTransferred, sizeof theirs);
    std::memcpy(&theirs, node.buffer + 1024 * (next_one - 1), sizeof theirs);
    // Use theirs, then close it.
    end.reads(ND_SUCCESS, 65536, 256, theirs);
    CHECK(node.holds(65536, 256, '2'));
    std::memset(node.buffer, 'a', 256);
    end.writes(ND_SUCCESS, 0, 256, theirs, 1024);
    HR(end.endpoint->SendAndInvalidate(&sent, nullptr, 0, &theirs, 0), ND_SUCCESS);
    end.done(sent);
    // The peer has used our window, and says so. The window is closed then, and the peer tries once
    // more.
    end.got(received[next_one++]);
    CHECK(node.holds(8192, 256, '1') && node.holds(8192 + 1024, 256, 'b'));
    HR(end.endpoint->Invalidate(&closed, mw, 0), ND_SUCCESS);
    end.send_nothing(r);
    end.done(closed);
    end.done(r);
    HR(end.hear_of_disconnect(), ND_SUCCESS); // the refusal ends it
    CHECK(node.holds(8192 + 2048, 2048, 0));
    CHECK_EQ(mw->Release(), 0);
    HR(end.disconnect(), ND_SUCCESS);
}

// Version 2's.
static void talk(Side &side, bool speaks_first)
{
    std::vector<char> buffer(65536);
    char *at = buffer.data();
    IND2MemoryRegion *mr = side.region(at, buffer.size(), ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_RDMA_READ_SINK);
    // Posted late; the sender waits for them (ND2 C42).
    ND2_SGE sges[3];
    char ids[3];
    for (int i = 0; i < 3; i++) {
        sges[i] = side.sge(mr, at + 1024 * i, 1024);
        HR(side.qp->Receive(&ids[i], &sges[i], 1), ND_SUCCESS);
    }
    // Requests and receives share a queue here: what is not the one asked for is kept.
    std::vector<ND2_RESULT> kept;
    const auto wait_for = [&](HRESULT status, void *context) {
        for (size_t i = 0; i < kept.size(); i++)
            if (kept[i].RequestContext == context) {
                const ND2_RESULT r = kept[i];
                kept.erase(kept.begin() + i);
                HR(r.Status, status);
                return r.BytesTransferred;
            }
        for (;;) {
            const ND2_RESULT r = side.result();
            if (r.RequestContext != context) {
                kept.push_back(r);
                continue;
            }
            HR(r.Status, status);
            return r.BytesTransferred;
        }
    };
    char first, bind, send, read, write, last, again;
    int next_one = 0;
    if (speaks_first) {
        HR(side.qp->Send(&first, nullptr, 0, 0), ND_SUCCESS);
        wait_for(ND_SUCCESS, &first);
    }
    std::memset(at + 8192, '2', 256);
    IND2MemoryWindow *mw = side.window();
    HR(side.qp->Bind(&bind, mr, mw, at + 8192, 4096, MAY_READ | MAY_WRITE), ND_SUCCESS);
    const ND_MW_DESCRIPTOR mine = describe(mw, at + 8192, 4096);
    std::memcpy(at + 4096, &mine, sizeof mine);
    const ND2_SGE sge = side.sge(mr, at + 4096, sizeof mine);
    HR(side.qp->Send(&send, &sge, 1, 0), ND_SUCCESS);
    wait_for(ND_SUCCESS, &bind);
    wait_for(ND_SUCCESS, &send);
    ULONG size = wait_for(ND_SUCCESS, &ids[next_one++]);
    if (size == 0)
        size = wait_for(ND_SUCCESS, &ids[next_one++]);
    ND_MW_DESCRIPTOR theirs;
    CHECK_EQ(size, sizeof theirs);
    std::memcpy(&theirs, at + 1024 * (next_one - 1), sizeof theirs);
    const UINT64 remote = be64toh(theirs.Base);
    const ND2_SGE sink = side.sge(mr, at + 32768, 256), source = side.sge(mr, at + 40960, 256);
    HR(side.qp->Read(&read, &sink, 1, remote, theirs.Token, 0), ND_SUCCESS);
    wait_for(ND_SUCCESS, &read);
    CHECK(at[32768] == '1' && at[32768 + 255] == '1');
    std::memset(at + 40960, 'b', 256);
    HR(side.qp->Write(&write, &source, 1, remote + 1024, theirs.Token, 0), ND_SUCCESS);
    wait_for(ND_SUCCESS, &write);
    // The peer has used our window and closed it: an Invalidate of ours would come too late, a Bind
    // does not.
    CHECK_EQ(wait_for(ND_SUCCESS, &ids[next_one++]), 0);
    CHECK(at[8192 + 1024] == 'a' && at[8192 + 1024 + 255] == 'a' && at[8192] == '2');
    HR(side.wait(mr, mr->Deregister(&side.ov)), ND_SUCCESS); // no window is bound any more
    HR(side.wait(mr, mr->Register(at, buffer.size(), ND_MR_FLAG_ALLOW_LOCAL_WRITE | ND_MR_FLAG_RDMA_READ_SINK, &side.ov)), ND_SUCCESS);
    char over;
    const ND2_SGE late = side.sge(mr, at, 1024);
    HR(side.qp->Receive(&over, &late, 1), ND_SUCCESS);
    HR(side.qp->Send(&last, nullptr, 0, 0), ND_SUCCESS);
    wait_for(ND_SUCCESS, &last);
    wait_for(ND_SUCCESS, next_one < 3 ? &ids[next_one] : &over); // "closed"
    const ND2_SGE spent = side.sge(mr, at + 40960, 256);
    HR(side.qp->Write(&again, &spent, 1, remote + 2048, theirs.Token, 0), ND_SUCCESS);
    wait_for(ND_ACCESS_VIOLATION, &again);
}

static void old_server()
{
    two(
        [](Link &link) {
            Node node;
            Listening listening(node);
            End end(node);
            HR(listening.listen->GetConnectionRequest(end.connector, &end.ov), ND_PENDING);
            link.to_client.put(listening.port);
            HR(end.wait(ND_PENDING), ND_SUCCESS);
            end.make_endpoint();
            HR(end.wait(end.connector->Accept(end.endpoint, nullptr, 0, &end.ov)), ND_SUCCESS);
            talk(end, false);
        },
        [](Link &link) {
            Side side;
            side.make_queues();
            side.connect_and_complete(link.to_client.get<USHORT>());
            talk(side, true);
        });
}

static void old_client()
{
    two(
        [](Link &link) {
            Side side;
            side.make_queues();
            link.to_client.put(side.listen());
            side.take_request();
            HR(side.accept(), ND_SUCCESS);
            talk(side, false);
        },
        [](Link &link) {
            Node node;
            End end(node);
            end.make_endpoint();
            HR(end.wait(end.start_connect(link.to_client.get<USHORT>())), ND_SUCCESS);
            HR(end.complete(), ND_SUCCESS);
            talk(end, true);
        });
}

int main(int argc, char **argv)
{
    return run_case(argc, argv, {{"old_server", old_server}, {"old_client", old_client}});
}
