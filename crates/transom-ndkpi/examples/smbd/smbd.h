/* SMB Direct (MS-SMBD) on NDKPI: one connection, driven by the thread that calls. Messages of any size up
 * to what was negotiated are cut into Sends and put together again, under credits; buffers are read and
 * written by RDMA through descriptors.
 *
 * Every function that may fail returns NULL, or why the connection has ended: a sentence. */
#ifndef SMBD_H
#define SMBD_H

#include "ndkkernel.h"
#include "wire.h"

#define SMBD_MAX_CREDITS 255
#define SMBD_SEND_SLOTS 16
#define SMBD_REGIONS 8
#define SMBD_READ_WRITE (1u << 20) /* bytes of one descriptor */

/* The parameters of MS-SMBD 3.1.1, with the values that Windows begins with. */
typedef struct {
    ULONG receive_credit_max, send_credit_target; /* 255 */
    ULONG max_send_size, max_receive_size;        /* 1364, 8192 */
    ULONG max_fragmented_size;                    /* 1 MiB */
    ULONG idle_ms;                                /* 120,000: silence before the peer is asked */
    ULONG answer_ms;                              /* 5,000: silence after that which ends the connection */
    ULONG negotiate_ms;                           /* 5,000 */
} SMBD_OPTIONS;
SMBD_OPTIONS smbd_defaults(void);

/* Memory that the adapter reaches by logical addresses and the privileged token. */
typedef struct {
    MDL *mdl;
    NDK_LOGICAL_ADDRESS_MAPPING *lam;
    ULONG offset; /* of the first byte in its first page */
} SMBD_MAPPING;

/* A region for fast registration, and what is registered in it. */
typedef struct {
    NDK_MR *mr;
    SMBD_MAPPING mapping;
    SMBD_DESCRIPTOR descriptor; /* length 0: free */
    BOOLEAN invalidated;        /* by the peer */
} SMBD_REGION;

typedef struct SMBD_MESSAGE {
    struct SMBD_MESSAGE *next;
    ULONG length;
    uint8_t bytes[];
} SMBD_MESSAGE;

typedef struct {
    SMBD_OPTIONS options;
    NDK_ADAPTER *adapter;
    NDK_PD *pd;
    NDK_CQ *receive_cq, *send_cq;
    NDK_QP *qp;
    NDK_CONNECTOR *connector;
    UINT32 token; /* privileged */
    KEVENT work;  /* completions, or the end: set by callbacks */
    LONG gone;    /* the peer has disconnected: written by a callback */
    const char *ended;

    /* receives: one slot each, posted or free */
    uint8_t *receives;
    SMBD_MAPPING receives_mapping;
    ULONG free_receives[SMBD_MAX_CREDITS + 1], free_receive_count, posted;
    ULONG slot; /* bytes of a slot: whole pages */
    /* sends */
    uint8_t *sends;
    SMBD_MAPPING sends_mapping;
    ULONG free_sends[SMBD_SEND_SLOTS], free_send_count, send_slot;

    /* what was negotiated */
    ULONG max_send_size, max_receive_size, max_fragmented_send, max_read_write;
    BOOLEAN active, negotiated, answered; /* answered: the request has come */
    SMBD_REQUEST request;
    SMBD_RESPONSE response;

    /* credits (3.1.1): receives that the peer may use, Sends that it lets us begin */
    ULONG receive_credits, receive_credit_target, send_credits;
    ULONG unannounced; /* of the receive credits: the peer has not been told yet */
    BOOLEAN send_immediate;
    /* keepalive */
    LONGLONG heard;
    BOOLEAN ask, asked;

    /* the message that goes out */
    const uint8_t *out;
    ULONG out_length, out_sent;
    UINT32 out_invalidate;
    /* messages that come in */
    SMBD_MESSAGE *partial, *first, *last;
    ULONG partial_have, waiting_bytes;

    ULONG rdma; /* RDMA requests and invalidations that are under way */
    BOOLEAN rdma_failed;
    SMBD_REGION regions[SMBD_REGIONS];

    /* what has happened, for reports */
    ULONG sent, received, grants_alone;
} SMBD;

/* A connection to `to`, negotiated. `smbd_close` follows in any case. */
const char *smbd_connect(SMBD *s, NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, PCSOCKADDR from, PCSOCKADDR to, ULONG length);
/* Accepts an incoming connector, which belongs to the connection from here on. */
const char *smbd_accept(SMBD *s, NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, NDK_CONNECTOR *incoming);
/* Ends the connection and gives everything back. */
void smbd_close(SMBD *s);

/* Returns when every byte is on its way. `invalidate`: a token of the peer's that the last Send
 * invalidates there, 0 for none. */
const char *smbd_send(SMBD *s, const void *bytes, ULONG length, UINT32 invalidate);
/* The next whole message, to be freed with free(). Waits for ever; keepalive ends a dead connection. */
const char *smbd_receive(SMBD *s, SMBD_MESSAGE **message);

/* Open a buffer to the peer for RDMA writes (or reads), with the next Send. NULL: no region is free, or
 * the memory is not there. */
SMBD_REGION *smbd_register(SMBD *s, void *buffer, ULONG length, BOOLEAN peer_writes);
/* Take it back: nothing reaches the buffer any more when this returns. */
const char *smbd_unregister(SMBD *s, SMBD_REGION *region);
/* Move bytes between `buffer` and the peer's buffer, to its end. */
const char *smbd_rdma(SMBD *s, BOOLEAN write, void *buffer, ULONG length, const SMBD_DESCRIPTOR *theirs);

/* ---- between the two files ---- */
typedef struct { KEVENT event; NTSTATUS status; PVOID object; } SMBD_WAIT;
void smbd_wait_init(SMBD_WAIT *wait);
void smbd_wait_set(SMBD_WAIT *wait, NTSTATUS status, PVOID object);
NTSTATUS smbd_wait_end(SMBD_WAIT *wait, NTSTATUS returned);
void smbd_on_request(PVOID context, NTSTATUS status);
void smbd_on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object);
void smbd_on_closed(PVOID context);

BOOLEAN smbd_map(SMBD *s, SMBD_MAPPING *mapping, void *buffer, ULONG length, BOOLEAN written);
void smbd_unmap(SMBD *s, SMBD_MAPPING *mapping);
/* The entries for bytes of a mapping; how many. */
ULONG smbd_entries(SMBD *s, const SMBD_MAPPING *mapping, ULONG at, ULONG length, NDK_SGE *entries);
BOOLEAN smbd_make_regions(SMBD *s);
void smbd_close_regions(SMBD *s);
/* Make progress, or wait until there is some. FALSE: the connection has ended. */
BOOLEAN smbd_progress(SMBD *s);
/* The first reason counts. Returns that. */
const char *smbd_end(SMBD *s, const char *why);
/* End the connection now: every request has completed, and touches no memory, when this returns. */
const char *smbd_abort(SMBD *s);

#endif
