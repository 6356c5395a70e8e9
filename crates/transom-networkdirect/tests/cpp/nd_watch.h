// A request whose end is counted, by its event or by packets on the program's own completion port.
#pragma once

#include "nd_scene.h"

#include <map>

// How ends are seen: by events, or by packets on a port to which every overlapped file is bound.
struct Watch {
    HANDLE port = nullptr;
    struct Packets {
        int count;
        BOOL succeeded;
    };
    std::map<OVERLAPPED *, Packets> packets;

    explicit Watch(bool by_port)
    {
        if (by_port)
            port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 1);
    }
    // No packet is left: each has belonged to a request that waited for it.
    ~Watch()
    {
        drain();
        CHECK(packets.empty());
        if (port)
            CloseHandle(port);
    }
    // Requests of the side's own `ov` queue no packets: bit 0 of its event.
    void add(Side &side)
    {
        if (!port)
            return;
        CHECK(CreateIoCompletionPort(side.file, port, 7, 0) == port);
        side.ov.hEvent = (HANDLE)((ULONG_PTR)side.ov.hEvent | 1);
    }
    static void remove(Side &side) { side.ov.hEvent = (HANDLE)((ULONG_PTR)side.ov.hEvent & ~(ULONG_PTR)1); }
    bool take(DWORD milliseconds)
    {
        DWORD bytes;
        ULONG_PTR key;
        OVERLAPPED *ov = nullptr;
        const BOOL succeeded = GetQueuedCompletionStatus(port, &bytes, &key, &ov, milliseconds);
        if (!ov)
            return false;
        CHECK_EQ(key, 7);
        Packets &of_this = packets[ov];
        of_this = Packets{of_this.count + 1, succeeded};
        return true;
    }
    void drain()
    {
        while (port && take(0))
            ;
    }
};

class Request {
    Watch &watch;
    HANDLE event;
    OVERLAPPED ov;

public:
    explicit Request(Watch &watch_) : watch(watch_), event(CreateEvent(nullptr, FALSE, FALSE, nullptr)) { fill(); }
    ~Request()
    {
        none();
        CloseHandle(event);
    }
    Request(const Request &) = delete;
    // Bytes as a stack may hold them; the call that begins replaces them.
    void fill()
    {
        std::memset(&ov, 0xCD, sizeof ov);
        ov.hEvent = watch.port ? nullptr : event;
    }
    OVERLAPPED *operator&() { return &ov; }
    // No end has been seen since the last.
    void none()
    {
        CHECK_EQ(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
        watch.drain();
        CHECK_EQ(watch.packets.count(&ov), 0);
    }
    // A refused call has not begun: no end, and nothing that a wait would wait for.
    void refused(HRESULT given, HRESULT wanted)
    {
        HR(given, wanted);
        none();
        CHECK(HasOverlappedIoCompleted(&ov));
        CHECK_EQ(ov.hEvent, watch.port ? nullptr : event);
    }
    // The request is under way, whichever object is asked.
    void pends(std::initializer_list<IND2Overlapped *> objects)
    {
        for (IND2Overlapped *one : objects)
            HR(one->GetOverlappedResult(&ov, FALSE), ND_PENDING);
        CHECK(!HasOverlappedIoCompleted(&ov));
        none();
    }
    // The request ends once, with this status.
    void ends(IND2Overlapped *object, HRESULT status)
    {
        HR(end(object), status);
    }
    HRESULT end(IND2Overlapped *object)
    {
        if (watch.port) {
            while (!watch.packets.count(&ov))
                CHECK(watch.take(INFINITE));
        } else
            CHECK_EQ(WaitForSingleObject(event, INFINITE), WAIT_OBJECT_0);
        return taken(object);
    }
    // As `ends`, of a request whose end has been seen before this call.
    void has_ended(IND2Overlapped *object, HRESULT status)
    {
        watch.drain();
        CHECK(watch.port ? watch.packets.count(&ov) == 1 : WaitForSingleObject(event, 0) == WAIT_OBJECT_0);
        HR(taken(object), status);
    }

private:
    HRESULT taken(IND2Overlapped *object)
    {
        const HRESULT status = object->GetOverlappedResult(&ov, FALSE);
        CHECK(status != ND_PENDING);
        HR(object->GetOverlappedResult(&ov, TRUE), status);
        CHECK_EQ((UINT32)ov.Internal, internal(status));
        if (watch.port) {
            CHECK_EQ(watch.packets[&ov].count, 1);
            CHECK_EQ(watch.packets[&ov].succeeded, status >= 0);
            watch.packets.erase(&ov);
        }
        none();
        return status;
    }
};

// Both ends of a connection, with their files on the port.
struct Watched : Ends {
    Watch &watch;
    explicit Watched(Watch &watch_) : watch(watch_)
    {
        watch.add(active);
        watch.add(passive);
    }
    ~Watched()
    {
        Watch::remove(active);
        Watch::remove(passive);
    }
    // A message each way.
    void talk() { talk(active, passive), talk(passive, active); }
    static void talk(Side &from, Side &to)
    {
        HR(to.qp->Receive(&from, nullptr, 0), ND_SUCCESS);
        HR(from.qp->Send(&to, nullptr, 0, 0), ND_SUCCESS);
        from.is(from.polled(), ND_SUCCESS, &to, Nd2RequestTypeSend);
        to.is(to.polled(), ND_SUCCESS, &from, Nd2RequestTypeReceive);
    }
    static void silent(Side &side)
    {
        ND2_RESULT r;
        CHECK_EQ(side.cq->GetResults(&r, 1), 0);
    }
    // The steps that are left of a connection.
    void steps(const char *left)
    {
        for (; *left; ++left)
            step(*left);
    }
    IND2Connector *connector(Side &side)
    {
        IND2Connector *made = nullptr;
        HR(side.adapter->CreateConnector(IID_IND2Connector, side.file, (void **)&made), ND_SUCCESS);
        return made;
    }
    HRESULT connect_to(IND2Connector *c, IND2QueuePair *qp, USHORT to_port, OVERLAPPED *ov, const char *data = "")
    {
        const sockaddr_in to = address("127.0.0.1", to_port);
        return c->Connect(qp, sa(to), sizeof to, 4, 4, data, (ULONG)std::strlen(data), ov);
    }
};
