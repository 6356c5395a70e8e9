/* Shared by the parts of the program: numbers from a seed, and lines about what a call did. */
#ifndef DIFFER_COMMON_H
#define DIFFER_COMMON_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>

enum { DEPTH = 16, PIECES = 3, INLINE = 32 };

/* Each thread makes sequences of its own. */
extern __thread int step;
extern __thread FILE *out;
extern struct ibv_context *context;
extern union ibv_gid gid;
extern int gid_index;

uint32_t any(uint32_t below);
int one_in(uint32_t n);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *name(int error);         /* of an error number, whatever its sign */
const char *made(const void *object); /* of errno, if there is no object */
const char *kind_of(const struct ibv_wc *wc);
uint64_t milliseconds(void);
uint64_t sum_of(const void *bytes, size_t length);
void fill(void *bytes, size_t length);

/* Events of the device about objects, by the context of the object: a queue pair, a shared receive queue or a
 * completion queue. */
struct news {
    unsigned counts[IBV_EVENT_WQ_FATAL + 1];
};
void hear(void);
void say_news(struct news *news, const char *of);

/* A sequence of each kind. */
void connected(enum ibv_qp_type type);
void datagrams(void);
void connections(void);

#define DESTROY(what, call, object)                                     \
    if (object) {                                                       \
        int destroyed = call(object);                                   \
        say("destroy " what ": %s", name(destroyed));       \
        if (!destroyed) object = NULL;                                  \
    }

#endif
