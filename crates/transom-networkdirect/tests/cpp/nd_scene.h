// A connection whose both ends live in this process, taken to any state step by step.
#pragma once

#include "nd_test.h"

#include <string>

// A sequence of steps, one letter each; capitals are the active side's.
//   b  the active side binds              C  it begins to connect
//   q  the passive side asks for a request   r  ... and has it
//   a  it begins to accept                W  the active side has the answer
//   K  it completes, and the passive side's Accept has ended
//   J  the active side rejects            j  the passive side rejects
//   i  ... with three bytes of data
//   D  the active side disconnects        d  the passive side disconnects
//   X  the active side's connector is released    x  the passive side's
//   L  the active side has noticed        l  the passive side has noticed
//   Z  the active side cancels            z  the passive side cancels
struct Ends {
    Side active, passive;
    USHORT port, other_port;

    Ends()
    {
        port = passive.listen();
        other_port = active.listen();
        for (Side *side : {&active, &passive})
            HR(side->adapter->CreateCompletionQueue(IID_IND2CompletionQueue, side->file, 64, 0, 0, (void **)&side->cq),
               ND_SUCCESS);
    }
    static IND2QueuePair *pair(Side &side, ULONG depth = 8)
    {
        IND2QueuePair *qp = nullptr;
        HR(side.adapter->CreateQueuePair(IID_IND2QueuePair, side.cq, side.cq, &side, depth, depth, 2, 2, 0, (void **)&qp),
           ND_SUCCESS);
        return qp;
    }
    // New queue pairs and connectors on both sides.
    void fresh(ULONG depth = 8)
    {
        for (Side *side : {&active, &passive}) {
            drop(side->connector);
            drop(side->qp);
            // A request under way ends with its object; until then it is written to `ov`.
            for (int i = 0; side->ov.Internal == (ULONG_PTR)ND_PENDING; ++i) {
                CHECK(i < 30000);
                Sleep(1);
            }
            ND2_RESULT r;
            while (side->cq->GetResults(&r, 1) == 1)
                ;
            side->qp = pair(*side, depth);
            side->make_connector();
        }
    }
    // This connection stays; `go` makes another one.
    void keep()
    {
        for (Side *side : {&active, &passive}) {
            side->owned.push_back(side->connector);
            side->owned.push_back(side->qp);
            side->connector = nullptr;
            side->qp = nullptr;
        }
    }
    template <class T> static void drop(T *&object)
    {
        if (object)
            object->Release();
        object = nullptr;
    }
    // The read limits are there for as long as a connection is: asking changes nothing.
    static void until_gone(Side &side)
    {
        while (side.connector->GetReadLimits(nullptr, nullptr) == ND_SUCCESS)
            Sleep(1);
    }
    void step(char what)
    {
        Side &a = active, &p = passive;
        const sockaddr_in to = address("127.0.0.1", port);
        switch (what) {
        case 'b': a.bind(); break;
        case 'C': HR(a.connector->Connect(a.qp, sa(to), sizeof to, 4, 4, "hello", 5, &a.ov), ND_PENDING); break;
        case 'q': HR(p.listener->GetConnectionRequest(p.connector, &p.ov), ND_PENDING); break;
        case 'r': HR(p.listener->GetOverlappedResult(&p.ov, TRUE), ND_SUCCESS); break;
        case 'a': HR(p.connector->Accept(p.qp, 4, 4, "welcome", 7, &p.ov), ND_PENDING); break;
        case 'W':
            answer = a.connector->GetOverlappedResult(&a.ov, TRUE);
            break;
        case 'K':
            HR(answer, ND_SUCCESS);
            HR(a.wait(a.connector, a.connector->CompleteConnect(&a.ov)), ND_SUCCESS);
            HR(p.connector->GetOverlappedResult(&p.ov, TRUE), ND_SUCCESS);
            break;
        case 'J': HR(a.connector->Reject(nullptr, 0), ND_SUCCESS); break;
        case 'j': HR(p.connector->Reject(nullptr, 0), ND_SUCCESS); break;
        case 'i': HR(p.connector->Reject("no!", 3), ND_SUCCESS); break;
        case 'D': HR(a.disconnect(), ND_SUCCESS); break;
        case 'd': HR(p.disconnect(), ND_SUCCESS); break;
        case 'X': drop(a.connector); break;
        case 'x': drop(p.connector); break;
        case 'L': until_gone(a); break;
        case 'l': until_gone(p); break;
        case 'Z': HR(a.connector->CancelOverlappedRequests(), ND_SUCCESS); break;
        case 'z': HR(p.connector->CancelOverlappedRequests(), ND_SUCCESS); break;
        default: CHECK(!"a step");
        }
    }
    void go(const char *steps)
    {
        fresh();
        for (; *steps; ++steps)
            step(*steps);
    }
    void connect() { go("bCqraWK"); }

    HRESULT answer = ND_PENDING; // how the active side's Connect has ended
};
