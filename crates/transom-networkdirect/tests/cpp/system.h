// The system besides NetworkDirect, as the tests take it: a time limit, an end without a word, two processes.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#ifdef _WIN32
#include <windows.h>
#else
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
#endif

#ifdef _WIN32
inline int process() { return (int)GetCurrentProcessId(); }
// The process ends here, and nothing is closed in order.
[[noreturn]] inline void vanish(int code)
{
    std::fflush(stderr);
    TerminateProcess(GetCurrentProcess(), (UINT)code);
    std::abort();
}
// The process ends by then.
inline void time_limit(unsigned seconds)
{
    static HANDLE timer = nullptr;
    const auto over = [](void *, BOOLEAN) {
        std::fprintf(stderr, "[%d] the time is over\n", process());
        vanish(142);
    };
    if (timer)
        DeleteTimerQueueTimer(nullptr, timer, nullptr);
    CreateTimerQueueTimer(&timer, nullptr, over, nullptr, seconds * 1000, 0, WT_EXECUTEONLYONCE);
}
#else
inline int process() { return getpid(); }
inline int closesocket(int fd) { return close(fd); }
[[noreturn]] inline void vanish(int code) { _exit(code); }
inline void time_limit(unsigned seconds) { alarm(seconds); }
#endif

#define CHECK(e)                                                                                       \
    do {                                                                                               \
        if (!(e)) {                                                                                    \
            std::fprintf(stderr, "%s:%d: [%d] not true: %s\n", __FILE__, __LINE__, process(), #e);     \
            vanish(1);                                                                                 \
        }                                                                                              \
    } while (0)
#define CHECK_EQ(a, b)                                                                                 \
    do {                                                                                               \
        const unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b);           \
        if (a_ != b_) {                                                                                \
            std::fprintf(stderr, "%s:%d: [%d] %s is %#llx, not %#llx\n", __FILE__, __LINE__, process(), #a, a_, b_); \
            vanish(1);                                                                                 \
        }                                                                                              \
    } while (0)

// A pipe that a child inherits. A number is whole or not there.
struct Pipe {
#ifdef _WIN32
    HANDLE reading, writing;
    Pipe()
    {
        SECURITY_ATTRIBUTES inherited = {sizeof inherited, nullptr, TRUE};
        CHECK(CreatePipe(&reading, &writing, &inherited, 0));
    }
    Pipe(HANDLE reading_, HANDLE writing_) : reading(reading_), writing(writing_) {}
    // Only the child writes from now on: reading ends with it.
    void is_the_child_s() { CloseHandle(writing); }
    bool write_all(const void *from, size_t size)
    {
        DWORD done = 0;
        return WriteFile(writing, from, (DWORD)size, &done, nullptr) && done == size;
    }
    bool read_all(void *to, size_t size)
    {
        DWORD done = 0;
        return ReadFile(reading, to, (DWORD)size, &done, nullptr) && done == size;
    }
#else
    int fd[2];
    Pipe() { CHECK(pipe(fd) == 0); }
    void is_the_child_s() { close(fd[1]); }
    bool write_all(const void *from, size_t size) { return write(fd[1], from, size) == (ssize_t)size; }
    bool read_all(void *to, size_t size) { return read(fd[0], to, size) == (ssize_t)size; }
#endif
    template <class T> void put(const T &value) { CHECK(write_all(&value, sizeof value)); }
    template <class T> T get()
    {
        T value;
        CHECK(read_all(&value, sizeof value));
        return value;
    }
};
struct Link {
    Pipe to_client, to_server;
};

// A process beside this one. Linux forks it; Windows starts the program again, which passes over all children up to
// this one, so that what comes before a child in a test must not be needed in it.
class Child {
#ifdef _WIN32
    HANDLE handle = nullptr;
#else
    pid_t pid = -1;
#endif

public:
    // `client` is run there. It must be begun before the library has threads.
    Child(Link &link, const std::function<void(Link &)> &client);
    // Whether it has ended well.
    bool ends_well();
    // The other process is ended from outside.
    void kill();
    // Whether this process is a child, and another one than was begun last.
    static bool is_one();
#ifndef _WIN32
    pid_t number() const { return pid; }
#endif
};

#ifdef _WIN32
namespace children {
// How many this process has begun, or passed over.
inline int count = 0;
// The number of this one, and the ends of its pipes.
struct Me {
    int number = -1;
    unsigned long long ends[4] = {};
    Me()
    {
        const char *given = std::getenv("TRANSOM_TEST_CHILD");
        if (given)
            CHECK(std::sscanf(given, "%d %llu %llu %llu %llu", &number, &ends[0], &ends[1], &ends[2], &ends[3]) == 5);
    }
};
inline const Me &me()
{
    static const Me one;
    return one;
}
} // namespace children

inline bool Child::is_one() { return children::me().number >= 0; }
inline Child::Child(Link &link, const std::function<void(Link &)> &client)
{
    const children::Me &me = children::me();
    const int number = children::count++;
    if (me.number == number) {
        const auto end = [&](int i) { return (HANDLE)(ULONG_PTR)me.ends[i]; };
        Link mine = {Pipe(end(0), end(1)), Pipe(end(2), end(3))};
        time_limit(300);
        client(mine);
        vanish(0);
    }
    if (me.number >= 0)
        return;
    char text[200];
    const auto value = [](HANDLE end) { return (unsigned long long)(ULONG_PTR)end; };
    std::snprintf(text, sizeof text, "%d %llu %llu %llu %llu", number, value(link.to_client.reading), value(link.to_client.writing),
                  value(link.to_server.reading), value(link.to_server.writing));
    CHECK(SetEnvironmentVariableA("TRANSOM_TEST_CHILD", text));
    std::string line = GetCommandLineA();
    STARTUPINFOA start = {};
    start.cb = sizeof start;
    PROCESS_INFORMATION made = {};
    CHECK(CreateProcessA(nullptr, &line[0], nullptr, nullptr, TRUE, 0, nullptr, nullptr, &start, &made));
    CHECK(SetEnvironmentVariableA("TRANSOM_TEST_CHILD", nullptr));
    CloseHandle(made.hThread);
    handle = made.hProcess;
}
inline bool Child::ends_well()
{
    DWORD code = 1;
    CHECK(WaitForSingleObject(handle, INFINITE) == WAIT_OBJECT_0 && GetExitCodeProcess(handle, &code));
    CloseHandle(handle);
    return code == 0;
}
inline void Child::kill()
{
    CHECK(TerminateProcess(handle, 9));
    CHECK(!ends_well());
}
#else
inline bool Child::is_one() { return false; }
inline Child::Child(Link &link, const std::function<void(Link &)> &client)
{
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        time_limit(300);
        client(link);
        vanish(0);
    }
}
inline bool Child::ends_well()
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
inline void Child::kill()
{
    CHECK(::kill(pid, SIGKILL) == 0);
    CHECK(!ends_well());
}
#endif
