/* A program that has the library on its own path: a connection within it that lasts. Prints how many segments the
   process has attached by then. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
enum { TURNS = 2000, LENGTH = 4096 };
static char bytes[LENGTH];
int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    if (geteuid() == 0 && setresuid(0, 0, 0))
        return 2;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, size) || listen(listener, 8) || getsockname(listener, (void *)&at, &size))
        return 3;
    if (!fork()) {
        int active = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(active, (void *)&at, size))
            _exit(4);
        for (int i = 0; i < TURNS; i++)
            if (write(active, bytes, LENGTH) != LENGTH || read(active, bytes, 1) != 1)
                _exit(5);
        _exit(0);
    }
    int passive = accept(listener, 0, 0);
    for (int i = 0; i < TURNS; i++) {
        for (int got = 0, some; got < LENGTH; got += some)
            if ((some = read(passive, bytes, LENGTH - got)) <= 0)
                return 6;
        if (write(passive, bytes, 1) != 1)
            return 7;
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    int segments = 0;
    for (char line[512]; maps && fgets(line, sizeof line, maps);)
        segments += strstr(line, "/SYSV") != NULL;
    printf("%d segments\n", segments);
    return 0;
}
