/* The start-up of a rendezvous (V75), written by hand. */
static void put32(uint8_t *p, uint32_t v) {
    v = htonl(v);
    memcpy(p, &v, 4);
}
/* A TCP connection from the address of `from` to the port in a number of `to`'s. */
static int reach(union ibv_gid from, union ibv_gid to, uint32_t number) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    /* The GID of index 0 is link-local, and carries an address of IPv4. */
    int four = !memcmp(to.raw, mapped, 12) || (to.raw[10] == 0x5e && to.raw[11] == 0xfe);
    int s = socket(four ? AF_INET : AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6}, b6 = a6;
    struct sockaddr_in a4 = {.sin_family = AF_INET}, b4 = a4;
    memcpy(&a4.sin_addr, from.raw + 12, 4);
    memcpy(&b4.sin_addr, to.raw + 12, 4);
    memcpy(&a6.sin6_addr, from.raw, 16);
    memcpy(&b6.sin6_addr, to.raw, 16);
    b4.sin_port = b6.sin6_port = htons(number >> 8);
    struct sockaddr *a = four ? (void *)&a4 : (void *)&a6, *b = four ? (void *)&b4 : (void *)&b6;
    socklen_t n = four ? sizeof a4 : sizeof a6;
    struct timeval patience = {.tv_sec = 20};
    if (s < 0 || bind(s, a, n) || connect(s, b, n) ||
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience)) {
        printf("FATAL no connection to port %u: errno %d\n", number >> 8, errno);
        exit(96);
    }
    return s;
}
static int all_of(int s, void *p, size_t n) {
    return recv(s, p, n, MSG_WAITALL) == (ssize_t)n;
}
/* The start-up of a queue pair of type `kind` and number `source` for `destination`. */
static bool say(int s, uint8_t kind, uint32_t source, uint32_t destination) {
    uint8_t request[52] = "MPA ID Req Frame", *own = request + 20;
    request[16] = 0x40; /* with checksums */
    request[17] = 1;
    request[19] = 32;
    memcpy(own, "TVQP", 4);
    own[4] = 1;
    own[5] = kind;
    put32(own + 8, destination);
    put32(own + 12, source);
    put32(own + 16, 0x111);
    put32(own + 20, 0x111);
    own[24] = IBV_MTU_1024;
    return send(s, request, sizeof request, MSG_NOSIGNAL) == sizeof request;
}
