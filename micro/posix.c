/* The peer of a board as a program of Linux: peer HOST PORT FILE, which keeps the model after each round. */
#define _POSIX_C_SOURCE 200809L
#define MICRO_DATA

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

static int send_all(void *context, const uint8_t *data, size_t size) {
    int connection = *(int *)context;
    while (size) {
        ssize_t sent = send(connection, data, size, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        data += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static int receive_some(void *context, uint8_t *data, size_t size, uint32_t wait) {
    struct pollfd ready = {*(int *)context, POLLIN, 0};
    int found = poll(&ready, 1, (int)wait);
    if (found <= 0) return found;
    ssize_t got = recv(ready.fd, data, size, 0);
    return got > 0 ? (int)got : -1;
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t milliseconds(void *context) {
    (void)context;
    return nanoseconds(CLOCK_MONOTONIC) / 1000000;
}

static uint64_t incarnation(void *context) {
    (void)context;
    return nanoseconds(CLOCK_REALTIME);
}

static void draw(void *context, uint8_t *out, size_t size) {
    FILE *source = fopen("/dev/urandom", "rb");
    (void)context;
    if (source == NULL || fread(out, 1, size, source) != size) abort(); /* no keys without randomness */
    fclose(source);
}

static const char *kept;

/* One write: the number of rounds, and the parameters. */
static int store(void *context, uint32_t rounds, const float *model, size_t parameters) {
    uint8_t number[4];
    struct iovec parts[2] = {{number, sizeof number}, {(void *)model, sizeof *model * parameters}};
    int file = open(kept, O_WRONLY | O_CREAT, 0600);
    (void)context;
    for (int i = 0; i < 4; i++) number[i] = (uint8_t)(rounds >> 8 * i);
    if (file < 0) return -1;
    int fine = writev(file, parts, 2) == (ssize_t)(parts[0].iov_len + parts[1].iov_len);
    return close(file) == 0 && fine ? 0 : -1;
}

static void note(void *context, const char *sentence) {
    (void)context;
    fprintf(stderr, "%s\n", sentence);
}

static int connected(const char *host, const char *port) {
    struct addrinfo wanted, *found = NULL;
    int connection = -1, once = 1;
    struct timeval most = {15, 0}; /* else a network that swallows everything holds the peer in a call */
    memset(&wanted, 0, sizeof wanted);
    wanted.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &wanted, &found) != 0) return -1;
    for (struct addrinfo *each = found; each != NULL && connection < 0; each = each->ai_next) {
        connection = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (connection >= 0) setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        if (connection >= 0 && connect(connection, each->ai_addr, each->ai_addrlen) != 0) {
            close(connection);
            connection = -1;
        }
    }
    freeaddrinfo(found);
    if (connection >= 0) setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &once, sizeof once);
    return connection;
}

static int broker;
static char **address;

static int reconnect(void *context) {
    struct timespec moment = {0, 200 * 1000 * 1000};
    (void)context;
    close(broker);
    broker = connected(address[1], address[2]);
    if (broker < 0) nanosleep(&moment, NULL);
    return broker < 0 ? -1 : 0;
}

int main(int count, char **arguments) {
    static struct micro_peer peer;
    if (count != 4) {
        fprintf(stderr, "usage: peer HOST PORT FILE\n");
        return 2;
    }
    address = arguments;
    broker = connected(arguments[1], arguments[2]);
    if (broker < 0) {
        fprintf(stderr, "%s:%s cannot be reached; check the address of the broker\n", arguments[1], arguments[2]);
        return 1;
    }
    kept = arguments[3];
    struct micro_platform platform = {.io = {send_all, receive_some, &broker}, .user = getenv("P2PFL_BROKER_USER"),
                                      .password = getenv("P2PFL_BROKER_PASSWORD"), .milliseconds = milliseconds,
                                      .incarnation = incarnation, .random = draw, .store = store, .note = note,
                                      .reconnect = reconnect};
    int failed = micro_run(&peer, &CONFIG, &platform);
    if (failed) fprintf(stderr, "%s\n", peer.error);
    close(broker);
    return failed ? 1 : 0;
}
