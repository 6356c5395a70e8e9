// Shared by the cases of easy.cpp.
#pragma once

#include "nd_test.h"

#ifndef _WIN32
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sched.h>
#endif

static_assert(FAILED(ND_BUFFER_OVERFLOW) && FAILED(ND_DEVICE_BUSY) && FAILED(ND_NO_MORE_ENTRIES), "easy_32");
static_assert(!FAILED(ND_TIMEOUT) && !FAILED(ND_PENDING), "easy_32");
static_assert(ND_VERSION_2 == 0x20000, "easy_01");

struct Packet {
    BOOL done;
    OVERLAPPED *ov;
    DWORD error;
};
static Packet packet(HANDLE port, DWORD limit)
{
    DWORD bytes;
    ULONG_PTR key;
    OVERLAPPED *ov = nullptr;
    const BOOL done = GetQueuedCompletionStatus(port, &bytes, &key, &ov, limit);
    return Packet{done, ov, done ? 0 : GetLastError()};
}

struct Descriptor {
    UINT64 address;
    UINT32 token;
};
