/*
 * transom_win32.h - the part of the Windows world that NetworkDirect programs lean on, for Linux.
 *
 * NetworkDirect was born on Windows: its calls speak of OVERLAPPED, events, completion ports and wide
 * strings. This file gives a C++17 program on Linux those words with the sizes they have there (LONG,
 * ULONG and DWORD have 32 bits, pointers 64), so that its source needs no change. Two differences
 * remain: a wide character has 4 bytes, and AF_INET6 has Linux's value.
 *
 * What holds state (handles, events, completion ports, threads) lives in libtransom_nd; what does not
 * is inline here. On Windows this directory is not on the include path, and nothing here is used.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TRANSOM_WIN32_H
#define TRANSOM_WIN32_H

#ifdef _WIN32
#error "transom_win32.h is for systems that are not Windows"
#endif
#ifndef __cplusplus
#error "transom_win32.h needs C++17"
#endif

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cwchar>
#include <cwctype>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "sal.h"

/* ---- types ------------------------------------------------------------------------------- */

#ifndef VOID
#define VOID void
#endif
typedef void *PVOID, *LPVOID;
typedef const void *LPCVOID;
typedef char CHAR;
typedef unsigned char UCHAR, BYTE;
typedef BYTE *PBYTE, *LPBYTE;
typedef int16_t SHORT;
typedef uint16_t USHORT, WORD;
typedef int INT, BOOL;
typedef unsigned int UINT;
typedef BYTE BOOLEAN;
typedef int32_t LONG, HRESULT, NTSTATUS;
typedef uint32_t ULONG, DWORD;
typedef long long LONGLONG;
typedef unsigned long long ULONGLONG;
typedef unsigned long long DWORDLONG;
typedef int8_t INT8;
typedef uint8_t UINT8;
typedef int16_t INT16;
typedef uint16_t UINT16;
typedef int32_t INT32, LONG32;
typedef uint32_t UINT32, ULONG32, DWORD32;
typedef int64_t INT64, LONG64;
typedef uint64_t UINT64, ULONG64, DWORD64;
typedef intptr_t INT_PTR, LONG_PTR, SSIZE_T;
typedef uintptr_t UINT_PTR, ULONG_PTR, DWORD_PTR, KAFFINITY;
typedef size_t SIZE_T;
typedef float FLOAT;
typedef double DOUBLE;
typedef wchar_t WCHAR, TCHAR, _TCHAR;
typedef WCHAR *PWSTR, *LPWSTR, *LPTSTR;
typedef const WCHAR *PCWSTR, *LPCWSTR, *LPCTSTR;
typedef char *PSTR, *LPSTR;
typedef const char *PCSTR, *LPCSTR;
typedef BOOL *PBOOL, *LPBOOL;
typedef LONG *PLONG, *LPLONG;
typedef ULONG *PULONG;
typedef DWORD *PDWORD, *LPDWORD;
typedef USHORT *PUSHORT;
typedef SIZE_T *PSIZE_T;
typedef ULONG_PTR *PULONG_PTR;
typedef PVOID HANDLE;
typedef HANDLE *PHANDLE, *LPHANDLE;
typedef HANDLE HMODULE, HINSTANCE;
#define DECLARE_HANDLE(name)                                                                           \
    struct name##__ {                                                                                  \
        int unused;                                                                                    \
    };                                                                                                 \
    typedef struct name##__ *name

static_assert(sizeof(LONG) == 4 && sizeof(ULONG) == 4 && sizeof(DWORD) == 4 && sizeof(HRESULT) == 4,
              "Windows' 32-bit integers have 32 bits here too");
static_assert(sizeof(void *) == 8, "libtransom_nd exists for 64-bit systems only");

#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif
#define MAX_PATH 260
#define INFINITE 0xFFFFFFFFu
#define INVALID_HANDLE_VALUE ((HANDLE)(LONG_PTR)-1)
#define MAXDWORD 0xFFFFFFFFu
#define MAXULONG 0xFFFFFFFFu
#define MAXLONG 0x7FFFFFFF

/* ---- words that only Microsoft's compiler knows ------------------------------------------------- */

#define WINAPI
#define CALLBACK
#define APIENTRY
#define STDAPICALLTYPE
#define STDMETHODCALLTYPE
#define STDMETHODVCALLTYPE
#define __stdcall
#define __cdecl
#define __fastcall
#define FORCEINLINE inline
#define __forceinline inline
#define _cdecl
#define CONST const
#define FAR
#define NEAR
#define DECLSPEC_NOVTABLE
#define DECLSPEC_ALIGN(n) __attribute__((aligned(n)))
#define __declspec(x) TRANSOM_DECLSPEC_##x
#define TRANSOM_DECLSPEC_novtable
#define TRANSOM_DECLSPEC_dllimport
#define TRANSOM_DECLSPEC_dllexport
#define TRANSOM_DECLSPEC_noinline __attribute__((noinline))
#define TRANSOM_DECLSPEC_noreturn __attribute__((noreturn))
#define TRANSOM_DECLSPEC_thread thread_local
#define TRANSOM_DECLSPEC_nothrow
#define TRANSOM_DECLSPEC_selectany __attribute__((weak))
#define TRANSOM_DECLSPEC_align(n) __attribute__((aligned(n)))
#define TRANSOM_DECLSPEC_uuid(text)
#define TRANSOM_DECLSPEC_deprecated
#define EXTERN_C extern "C"
#define EXTERN_C_START extern "C" {
#define EXTERN_C_END }
#define UNREFERENCED_PARAMETER(x) ((void)(x))
#define DBG_UNREFERENCED_PARAMETER(x) ((void)(x))
#define C_ASSERT(e) static_assert(e, #e)
#define _countof(a) (sizeof(a) / sizeof((a)[0]))
#define ARRAYSIZE(a) (sizeof(a) / sizeof((a)[0]))
#define RTL_NUMBER_OF(a) (sizeof(a) / sizeof((a)[0]))
#define FIELD_OFFSET(type, field) ((LONG)offsetof(type, field))
#define CONTAINING_RECORD(address, type, field)                                                        \
    ((type *)((char *)(address) - reinterpret_cast<size_t>(&reinterpret_cast<type *>(0x1000)->field) + \
              0x1000))
#define MAKEWORD(low, high) ((WORD)(((BYTE)(low)) | (((WORD)((BYTE)(high))) << 8)))
#define MAKELONG(low, high) ((LONG)(((WORD)(low)) | (((DWORD)((WORD)(high))) << 16)))
#define LOWORD(x) ((WORD)(((DWORD_PTR)(x)) & 0xffff))
#define HIWORD(x) ((WORD)((((DWORD_PTR)(x)) >> 16) & 0xffff))
#define LOBYTE(x) ((BYTE)(((DWORD_PTR)(x)) & 0xff))
#define HIBYTE(x) ((BYTE)((((DWORD_PTR)(x)) >> 8) & 0xff))
#define ZeroMemory(p, n) ::memset((p), 0, (n))
#define RtlZeroMemory(p, n) ::memset((p), 0, (n))
#define SecureZeroMemory(p, n) ::explicit_bzero((p), (n))
#define CopyMemory(d, s, n) ::memcpy((d), (s), (n))
#define RtlCopyMemory(d, s, n) ::memcpy((d), (s), (n))
#define MoveMemory(d, s, n) ::memmove((d), (s), (n))
#define FillMemory(p, n, c) ::memset((p), (c), (n))
#define YieldProcessor() transom_win32::pause()
#define MemoryBarrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define DebugBreak() __builtin_trap()
#define __debugbreak() __builtin_trap()
#define __int8 char
#define __int16 short
#define __int32 int
#define __int64 long long
#define _snprintf snprintf
#define _vsnprintf vsnprintf
#define _strdup strdup
#define _stricmp strcasecmp
#define _strnicmp strncasecmp

#ifndef NOMINMAX
/* Functions rather than Windows' macros: the C++ library's own headers use these names. */
template <class A, class B> constexpr std::common_type_t<A, B> min(const A &a, const B &b) { return a < b ? a : b; }
template <class A, class B> constexpr std::common_type_t<A, B> max(const A &a, const B &b) { return a > b ? a : b; }
#endif

/* ---- structures --------------------------------------------------------------------------- */

typedef union _LARGE_INTEGER {
    struct {
        DWORD LowPart;
        LONG HighPart;
    };
    struct {
        DWORD LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, *PLARGE_INTEGER;

typedef union _ULARGE_INTEGER {
    struct {
        DWORD LowPart;
        DWORD HighPart;
    };
    struct {
        DWORD LowPart;
        DWORD HighPart;
    } u;
    ULONGLONG QuadPart;
} ULARGE_INTEGER, *PULARGE_INTEGER;

typedef struct _FILETIME {
    DWORD dwLowDateTime;
    DWORD dwHighDateTime;
} FILETIME, *PFILETIME, *LPFILETIME;

typedef struct _SYSTEM_INFO {
    DWORD dwOemId;
    DWORD dwPageSize;
    LPVOID lpMinimumApplicationAddress;
    LPVOID lpMaximumApplicationAddress;
    DWORD_PTR dwActiveProcessorMask;
    DWORD dwNumberOfProcessors;
    DWORD dwProcessorType;
    DWORD dwAllocationGranularity;
    WORD wProcessorLevel;
    WORD wProcessorRevision;
} SYSTEM_INFO, *LPSYSTEM_INFO;

typedef struct _SECURITY_ATTRIBUTES {
    DWORD nLength;
    LPVOID lpSecurityDescriptor;
    BOOL bInheritHandle;
} SECURITY_ATTRIBUTES, *PSECURITY_ATTRIBUTES, *LPSECURITY_ATTRIBUTES;

/* An asynchronous request. Internal holds its status, 0x103 while it is under way. */
typedef struct _OVERLAPPED {
    ULONG_PTR Internal;
    ULONG_PTR InternalHigh;
    union {
        struct {
            DWORD Offset;
            DWORD OffsetHigh;
        };
        PVOID Pointer;
    };
    HANDLE hEvent;
} OVERLAPPED, *LPOVERLAPPED;

typedef struct _OVERLAPPED_ENTRY {
    ULONG_PTR lpCompletionKey;
    LPOVERLAPPED lpOverlapped;
    ULONG_PTR Internal;
    DWORD dwNumberOfBytesTransferred;
} OVERLAPPED_ENTRY, *LPOVERLAPPED_ENTRY;

typedef struct _GROUP_AFFINITY {
    KAFFINITY Mask;
    WORD Group;
    WORD Reserved[3];
} GROUP_AFFINITY, *PGROUP_AFFINITY;

static_assert(sizeof(OVERLAPPED) == 32 && offsetof(OVERLAPPED, hEvent) == 24, "OVERLAPPED layout");
#define HasOverlappedIoCompleted(o)                                                                    \
    (__atomic_load_n(&(o)->Internal, __ATOMIC_ACQUIRE) != (ULONG_PTR)0x103)

typedef struct _GUID {
    uint32_t Data1;
    uint16_t Data2;
    uint16_t Data3;
    uint8_t Data4[8];
} GUID, IID, CLSID;
typedef GUID *LPGUID;
typedef const GUID *LPCGUID;
typedef const GUID &REFGUID;
typedef const IID &REFIID;
typedef const CLSID &REFCLSID;

inline bool IsEqualGUID(REFGUID a, REFGUID b) { return ::memcmp(&a, &b, sizeof(GUID)) == 0; }
#define IsEqualIID(a, b) IsEqualGUID((a), (b))
#define IsEqualCLSID(a, b) IsEqualGUID((a), (b))
inline bool operator==(REFGUID a, REFGUID b) { return IsEqualGUID(a, b); }
inline bool operator!=(REFGUID a, REFGUID b) { return !IsEqualGUID(a, b); }

/* An identifier is a constant of every source file that asks for it; initguid.h changes nothing. */
#define DEFINE_GUID(name, l, w1, w2, b1, b2, b3, b4, b5, b6, b7, b8)                                   \
    inline constexpr GUID name = {l, w1, w2, {b1, b2, b3, b4, b5, b6, b7, b8}}
DEFINE_GUID(GUID_NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

/* ---- status values -------------------------------------------------------------------------- */

#define SUCCEEDED(hr) (((HRESULT)(hr)) >= 0)
#define FAILED(hr) (((HRESULT)(hr)) < 0)
#define NT_SUCCESS(status) (((NTSTATUS)(status)) >= 0)
#define HRESULT_CODE(hr) ((hr) & 0xFFFF)
#define HRESULT_FACILITY(hr) (((hr) >> 16) & 0x1FFF)
#define FACILITY_WIN32 7
#define HRESULT_FROM_WIN32(x)                                                                          \
    ((HRESULT)(x) <= 0 ? (HRESULT)(x) : (HRESULT)(((x) & 0x0000FFFF) | (FACILITY_WIN32 << 16) | 0x80000000))
#define S_OK ((HRESULT)0)
#define S_FALSE ((HRESULT)1)
#define E_NOTIMPL ((HRESULT)0x80004001)
#define E_NOINTERFACE ((HRESULT)0x80004002)
#define E_POINTER ((HRESULT)0x80004003)
#define E_ABORT ((HRESULT)0x80004004)
#define E_FAIL ((HRESULT)0x80004005)
#define E_UNEXPECTED ((HRESULT)0x8000FFFF)
#define E_ACCESSDENIED ((HRESULT)0x80070005)
#define E_HANDLE ((HRESULT)0x80070006)
#define E_OUTOFMEMORY ((HRESULT)0x8007000E)
#define E_INVALIDARG ((HRESULT)0x80070057)
#define CLASS_E_NOAGGREGATION ((HRESULT)0x80040110)
#define CLASS_E_CLASSNOTAVAILABLE ((HRESULT)0x80040111)
#define NOERROR 0

#define ERROR_SUCCESS 0
#define ERROR_FILE_NOT_FOUND 2
#define ERROR_ACCESS_DENIED 5
#define ERROR_INVALID_HANDLE 6
#define ERROR_NOT_ENOUGH_MEMORY 8
#define ERROR_OUTOFMEMORY 14
#define ERROR_GEN_FAILURE 31
#define ERROR_NOT_SUPPORTED 50
#define ERROR_INVALID_PARAMETER 87
#define ERROR_INSUFFICIENT_BUFFER 122
#define ERROR_ABANDONED_WAIT_0 735
#define ERROR_OPERATION_ABORTED 995
#define ERROR_IO_INCOMPLETE 996
#define ERROR_IO_PENDING 997
#define ERROR_NOACCESS 998
#define ERROR_CONNECTION_REFUSED 1225
#define ERROR_CONNECTION_INVALID 1229
#define ERROR_CONNECTION_ACTIVE 1230
#define ERROR_NETWORK_UNREACHABLE 1231
#define ERROR_HOST_UNREACHABLE 1232
#define ERROR_CONNECTION_ABORTED 1236
#define ERROR_TIMEOUT 1460

#define STATUS_WAIT_0 ((DWORD)0x00000000)
#define WAIT_OBJECT_0 ((DWORD)0x00000000)
#define WAIT_ABANDONED ((DWORD)0x00000080)
#define WAIT_ABANDONED_0 ((DWORD)0x00000080)
#define WAIT_IO_COMPLETION ((DWORD)0x000000C0)
#define WAIT_TIMEOUT ((DWORD)258)
#define WAIT_FAILED ((DWORD)0xFFFFFFFF)
#define STILL_ACTIVE ((DWORD)0x00000103)
#define MAXIMUM_WAIT_OBJECTS 64

/* ---- what the library keeps: handles ------------------------------------------------------------ */

typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID);
typedef DWORD(WINAPI *PTHREAD_START_ROUTINE)(LPVOID);

extern "C" {
DWORD transom_win32_get_last_error(void);
void transom_win32_set_last_error(DWORD error);
BOOL transom_win32_close_handle(HANDLE handle);
HANDLE transom_win32_create_event(BOOL manual_reset, BOOL initial_state);
BOOL transom_win32_set_event(HANDLE event);
BOOL transom_win32_reset_event(HANDLE event);
HANDLE transom_win32_create_semaphore(LONG initial, LONG maximum);
BOOL transom_win32_release_semaphore(HANDLE semaphore, LONG count, LONG *previous);
HANDLE transom_win32_create_mutex(BOOL owned);
BOOL transom_win32_release_mutex(HANDLE mutex);
DWORD transom_win32_wait(DWORD count, const HANDLE *handles, BOOL all, DWORD milliseconds);
HANDLE transom_win32_create_thread(LPTHREAD_START_ROUTINE start, void *argument, SIZE_T stack, DWORD *id);
BOOL transom_win32_get_exit_code_thread(HANDLE thread, DWORD *code);
DWORD transom_win32_current_thread_id(void);
HANDLE transom_win32_create_completion_port(HANDLE file, HANDLE port, ULONG_PTR key, DWORD threads);
BOOL transom_win32_get_queued_completion_status(HANDLE port, DWORD *bytes, ULONG_PTR *key,
                                                LPOVERLAPPED *overlapped, DWORD milliseconds);
BOOL transom_win32_get_queued_completion_status_ex(HANDLE port, OVERLAPPED_ENTRY *entries, ULONG count,
                                                   ULONG *removed, DWORD milliseconds);
BOOL transom_win32_post_queued_completion_status(HANDLE port, DWORD bytes, ULONG_PTR key,
                                                 LPOVERLAPPED overlapped);
BOOL transom_win32_get_overlapped_result(HANDLE file, LPOVERLAPPED overlapped, DWORD *bytes, BOOL wait);
BOOL transom_win32_set_file_completion_notification_modes(HANDLE file, UCHAR flags);
}

inline DWORD GetLastError() { return transom_win32_get_last_error(); }
inline void SetLastError(DWORD error) { transom_win32_set_last_error(error); }
inline BOOL CloseHandle(HANDLE handle) { return transom_win32_close_handle(handle); }

inline HANDLE CreateEventW(LPSECURITY_ATTRIBUTES, BOOL manual, BOOL initial, LPCWSTR)
{
    return transom_win32_create_event(manual, initial);
}
inline HANDLE CreateEventA(LPSECURITY_ATTRIBUTES, BOOL manual, BOOL initial, LPCSTR)
{
    return transom_win32_create_event(manual, initial);
}
#define CreateEvent CreateEventW
inline BOOL SetEvent(HANDLE event) { return transom_win32_set_event(event); }
inline BOOL ResetEvent(HANDLE event) { return transom_win32_reset_event(event); }

inline HANDLE CreateSemaphoreW(LPSECURITY_ATTRIBUTES, LONG initial, LONG maximum, LPCWSTR)
{
    return transom_win32_create_semaphore(initial, maximum);
}
#define CreateSemaphore CreateSemaphoreW
inline BOOL ReleaseSemaphore(HANDLE semaphore, LONG count, LONG *previous)
{
    return transom_win32_release_semaphore(semaphore, count, previous);
}
inline HANDLE CreateMutexW(LPSECURITY_ATTRIBUTES, BOOL owned, LPCWSTR)
{
    return transom_win32_create_mutex(owned);
}
#define CreateMutex CreateMutexW
inline BOOL ReleaseMutex(HANDLE mutex) { return transom_win32_release_mutex(mutex); }

inline DWORD WaitForSingleObject(HANDLE handle, DWORD milliseconds)
{
    return transom_win32_wait(1, &handle, FALSE, milliseconds);
}
inline DWORD WaitForSingleObjectEx(HANDLE handle, DWORD milliseconds, BOOL)
{
    return transom_win32_wait(1, &handle, FALSE, milliseconds);
}
inline DWORD WaitForMultipleObjects(DWORD count, const HANDLE *handles, BOOL all, DWORD milliseconds)
{
    return transom_win32_wait(count, handles, all, milliseconds);
}
inline DWORD WaitForMultipleObjectsEx(DWORD count, const HANDLE *handles, BOOL all, DWORD milliseconds, BOOL)
{
    return transom_win32_wait(count, handles, all, milliseconds);
}

inline HANDLE CreateThread(LPSECURITY_ATTRIBUTES, SIZE_T stack, LPTHREAD_START_ROUTINE start, LPVOID argument,
                           DWORD, LPDWORD id)
{
    return transom_win32_create_thread(start, argument, stack, id);
}
inline uintptr_t _beginthreadex(void *, unsigned stack, unsigned (*start)(void *), void *argument, unsigned,
                                unsigned *id)
{
    return reinterpret_cast<uintptr_t>(transom_win32_create_thread(
        reinterpret_cast<LPTHREAD_START_ROUTINE>(start), argument, stack, reinterpret_cast<DWORD *>(id)));
}
inline BOOL GetExitCodeThread(HANDLE thread, LPDWORD code)
{
    return transom_win32_get_exit_code_thread(thread, code);
}
inline DWORD GetCurrentThreadId() { return transom_win32_current_thread_id(); }
inline DWORD GetCurrentProcessId() { return static_cast<DWORD>(::getpid()); }
inline HANDLE GetCurrentProcess() { return (HANDLE)(LONG_PTR)-1; }
inline HANDLE GetCurrentThread() { return (HANDLE)(LONG_PTR)-2; }
inline BOOL SetThreadPriority(HANDLE, int) { return TRUE; }
inline BOOL SetPriorityClass(HANDLE, DWORD) { return TRUE; }
#define THREAD_PRIORITY_NORMAL 0
#define THREAD_PRIORITY_HIGHEST 2
#define THREAD_PRIORITY_TIME_CRITICAL 15
#define HIGH_PRIORITY_CLASS 0x80
#define REALTIME_PRIORITY_CLASS 0x100

#define FILE_SKIP_COMPLETION_PORT_ON_SUCCESS 0x1
#define FILE_SKIP_SET_EVENT_ON_HANDLE 0x2
inline HANDLE CreateIoCompletionPort(HANDLE file, HANDLE port, ULONG_PTR key, DWORD threads)
{
    return transom_win32_create_completion_port(file, port, key, threads);
}
inline BOOL GetQueuedCompletionStatus(HANDLE port, LPDWORD bytes, PULONG_PTR key, LPOVERLAPPED *overlapped,
                                      DWORD milliseconds)
{
    return transom_win32_get_queued_completion_status(port, bytes, key, overlapped, milliseconds);
}
inline BOOL GetQueuedCompletionStatusEx(HANDLE port, LPOVERLAPPED_ENTRY entries, ULONG count, PULONG removed,
                                        DWORD milliseconds, BOOL)
{
    return transom_win32_get_queued_completion_status_ex(port, entries, count, removed, milliseconds);
}
inline BOOL PostQueuedCompletionStatus(HANDLE port, DWORD bytes, ULONG_PTR key, LPOVERLAPPED overlapped)
{
    return transom_win32_post_queued_completion_status(port, bytes, key, overlapped);
}
inline BOOL GetOverlappedResult(HANDLE file, LPOVERLAPPED overlapped, LPDWORD bytes, BOOL wait)
{
    return transom_win32_get_overlapped_result(file, overlapped, bytes, wait);
}
inline BOOL SetFileCompletionNotificationModes(HANDLE file, UCHAR flags)
{
    return transom_win32_set_file_completion_notification_modes(file, flags);
}

/* ---- time, processors ------------------------------------------------------------------------- */

namespace transom_win32 {
inline void pause()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}
inline long long nanoseconds(clockid_t clock)
{
    timespec now;
    ::clock_gettime(clock, &now);
    return static_cast<long long>(now.tv_sec) * 1000000000 + now.tv_nsec;
}
/* Windows counts time in units of 100 ns, since 1601. */
inline FILETIME file_time(unsigned long long hundreds)
{
    return FILETIME{static_cast<DWORD>(hundreds), static_cast<DWORD>(hundreds >> 32)};
}
} // namespace transom_win32

inline void Sleep(DWORD milliseconds)
{
    timespec left{static_cast<time_t>(milliseconds / 1000), static_cast<long>(milliseconds % 1000) * 1000000};
    if (milliseconds == INFINITE)
        for (;;)
            ::pause();
    while (::nanosleep(&left, &left) == -1 && errno == EINTR) {
    }
}
inline BOOL SwitchToThread() { return Sleep(0), TRUE; }
inline BOOL QueryPerformanceCounter(LARGE_INTEGER *count)
{
    return count->QuadPart = transom_win32::nanoseconds(CLOCK_MONOTONIC), TRUE;
}
inline BOOL QueryPerformanceFrequency(LARGE_INTEGER *frequency)
{
    return frequency->QuadPart = 1000000000, TRUE;
}
inline ULONGLONG GetTickCount64()
{
    return static_cast<ULONGLONG>(transom_win32::nanoseconds(CLOCK_MONOTONIC) / 1000000);
}
inline DWORD GetTickCount() { return static_cast<DWORD>(GetTickCount64()); }
inline void GetSystemTimeAsFileTime(LPFILETIME time)
{
    *time = transom_win32::file_time(
        static_cast<unsigned long long>(transom_win32::nanoseconds(CLOCK_REALTIME) / 100) + 116444736000000000ull);
}
/* Idle, kernel (idle included, as on Windows) and user time of all processors. */
inline BOOL GetSystemTimes(LPFILETIME idle, LPFILETIME kernel, LPFILETIME user)
{
    unsigned long long u = 0, n = 0, s = 0, i = 0, w = 0;
    std::FILE *stat = std::fopen("/proc/stat", "r");
    int fields = stat ? std::fscanf(stat, "cpu %llu %llu %llu %llu %llu", &u, &n, &s, &i, &w) : 0;
    if (stat)
        std::fclose(stat);
    if (fields != 5)
        return FALSE;
    const unsigned long long tick = 10000000ull / static_cast<unsigned long long>(::sysconf(_SC_CLK_TCK));
    if (idle)
        *idle = transom_win32::file_time((i + w) * tick);
    if (kernel)
        *kernel = transom_win32::file_time((s + i + w) * tick);
    if (user)
        *user = transom_win32::file_time((u + n) * tick);
    return TRUE;
}
inline void GetSystemInfo(LPSYSTEM_INFO info)
{
    *info = SYSTEM_INFO();
    const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
    info->dwPageSize = static_cast<DWORD>(::sysconf(_SC_PAGESIZE));
    info->dwAllocationGranularity = 65536;
    info->dwNumberOfProcessors = static_cast<DWORD>(processors);
    info->dwActiveProcessorMask = processors >= 64 ? ~DWORD_PTR(0) : (DWORD_PTR(1) << processors) - 1;
}
inline DWORD_PTR SetThreadAffinityMask(HANDLE, DWORD_PTR mask) { return mask; }

/* ---- memory ------------------------------------------------------------------------------------ */

#define HEAP_ZERO_MEMORY 0x00000008
inline HANDLE GetProcessHeap() { return (HANDLE)(LONG_PTR)4; }
inline LPVOID HeapAlloc(HANDLE, DWORD flags, SIZE_T size)
{
    return flags & HEAP_ZERO_MEMORY ? ::calloc(1, size ? size : 1) : ::malloc(size ? size : 1);
}
inline LPVOID HeapReAlloc(HANDLE, DWORD, LPVOID memory, SIZE_T size) { return ::realloc(memory, size ? size : 1); }
inline BOOL HeapFree(HANDLE, DWORD, LPVOID memory) { return ::free(memory), TRUE; }
inline void *_aligned_malloc(size_t size, size_t alignment)
{
    void *memory = nullptr;
    return ::posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, size) ? nullptr
                                                                                                    : memory;
}
inline void _aligned_free(void *memory) { ::free(memory); }
#define MEM_COMMIT 0x1000
#define MEM_RESERVE 0x2000
#define MEM_RELEASE 0x8000
#define PAGE_NOACCESS 0x01
#define PAGE_READONLY 0x02
#define PAGE_READWRITE 0x04
/* A page in front of each allocation remembers its length, for VirtualFree(address, 0, MEM_RELEASE). */
inline LPVOID VirtualAlloc(LPVOID, SIZE_T size, DWORD, DWORD protection)
{
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t whole = (size + page - 1) / page * page + page;
    void *memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return nullptr;
    *static_cast<size_t *>(memory) = whole;
    char *first = static_cast<char *>(memory) + page;
    if (protection == PAGE_READONLY || protection == PAGE_NOACCESS)
        ::mprotect(first, whole - page, protection == PAGE_READONLY ? PROT_READ : PROT_NONE);
    return first;
}
inline BOOL VirtualFree(LPVOID address, SIZE_T, DWORD)
{
    char *memory = static_cast<char *>(address) - ::sysconf(_SC_PAGESIZE);
    return ::munmap(memory, *reinterpret_cast<size_t *>(memory)) == 0;
}

/* ---- interlocked ---------------------------------------------------------------------------------- */

template <class T> inline T InterlockedIncrement(volatile T *p) { return __atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST); }
template <class T> inline T InterlockedDecrement(volatile T *p) { return __atomic_sub_fetch(p, 1, __ATOMIC_SEQ_CST); }
template <class T> inline T InterlockedIncrement64(volatile T *p) { return InterlockedIncrement(p); }
template <class T> inline T InterlockedDecrement64(volatile T *p) { return InterlockedDecrement(p); }
template <class T, class V> inline T InterlockedExchangeAdd(volatile T *p, V v)
{
    return __atomic_fetch_add(p, static_cast<T>(v), __ATOMIC_SEQ_CST);
}
template <class T, class V> inline T InterlockedExchangeAdd64(volatile T *p, V v) { return InterlockedExchangeAdd(p, v); }
template <class T, class V> inline T InterlockedAdd(volatile T *p, V v)
{
    return __atomic_add_fetch(p, static_cast<T>(v), __ATOMIC_SEQ_CST);
}
template <class T, class V> inline T InterlockedExchange(volatile T *p, V v)
{
    return __atomic_exchange_n(p, static_cast<T>(v), __ATOMIC_SEQ_CST);
}
template <class T, class V> inline T InterlockedExchange64(volatile T *p, V v) { return InterlockedExchange(p, v); }
template <class T, class V, class W> inline T InterlockedCompareExchange(volatile T *p, V value, W expected)
{
    T old = static_cast<T>(expected);
    __atomic_compare_exchange_n(p, &old, static_cast<T>(value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}
template <class T, class V, class W> inline T InterlockedCompareExchange64(volatile T *p, V value, W expected)
{
    return InterlockedCompareExchange(p, value, expected);
}
template <class T, class V> inline T InterlockedOr(volatile T *p, V v)
{
    return __atomic_fetch_or(p, static_cast<T>(v), __ATOMIC_SEQ_CST);
}
template <class T, class V> inline T InterlockedAnd(volatile T *p, V v)
{
    return __atomic_fetch_and(p, static_cast<T>(v), __ATOMIC_SEQ_CST);
}
inline PVOID InterlockedExchangePointer(PVOID volatile *p, PVOID v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
inline PVOID InterlockedCompareExchangePointer(PVOID volatile *p, PVOID value, PVOID expected)
{
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

/* ---- critical sections ----------------------------------------------------------------- */

/* Memory that need not be constructed, as on Windows: the lock itself is allocated by the initialiser. */
typedef struct _CRITICAL_SECTION {
    std::recursive_mutex *mutex;
} CRITICAL_SECTION, *LPCRITICAL_SECTION;
inline void InitializeCriticalSection(LPCRITICAL_SECTION s) { s->mutex = new std::recursive_mutex; }
inline BOOL InitializeCriticalSectionAndSpinCount(LPCRITICAL_SECTION s, DWORD) { return InitializeCriticalSection(s), TRUE; }
inline void DeleteCriticalSection(LPCRITICAL_SECTION s) { delete s->mutex; }
inline void EnterCriticalSection(LPCRITICAL_SECTION s) { s->mutex->lock(); }
inline BOOL TryEnterCriticalSection(LPCRITICAL_SECTION s) { return s->mutex->try_lock(); }
inline void LeaveCriticalSection(LPCRITICAL_SECTION s) { s->mutex->unlock(); }

/* ---- text, main, sockets ----------------------------------------------------------------------------- */

#include "transom_win32_text.h"
#include "transom_win32_sockets.h"

#endif
