/* A connection of SMB Direct: negotiation, credits, fragments, keepalive (MS-SMBD 3.1). */
#include "smbd.h"

#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <malloc.h>
#define allocate_pages(bytes) _aligned_malloc((bytes), PAGE_SIZE)
#define free_pages _aligned_free
#else
#define allocate_pages(bytes) aligned_alloc(PAGE_SIZE, (bytes))
#define free_pages free
#endif

#define MS 10000LL /* units of KeQuerySystemTime in a millisecond */

/* Contexts of requests: receives and sends carry the number of their slot. */
#define RECEIVE(slot) ((PVOID)(ULONG_PTR)(0x10000 + (slot)))
#define SEND(slot) ((PVOID)(ULONG_PTR)(0x20000 + (slot)))
#define SLOT_OF(context) ((ULONG)(ULONG_PTR)(context) & 0xffff)

SMBD_OPTIONS smbd_defaults(void) {
    return (SMBD_OPTIONS){ .receive_credit_max = 255, .send_credit_target = 255, .max_send_size = 1364, .max_receive_size = 8192,
                           .max_fragmented_size = 1 << 20, .idle_ms = 120000, .answer_ms = 5000, .negotiate_ms = 5000 };
}

static LONGLONG now(void) {
    LARGE_INTEGER time;
    KeQuerySystemTime(&time);
    return time.QuadPart;
}

const char *smbd_end(SMBD *s, const char *why) {
    if (!s->ended) s->ended = why;
    return s->ended;
}

/* ---- callbacks: they may not block, and do no work ---- */
static void on_notified(PVOID context, NTSTATUS status) {
    (void)status; /* a queue that failed yields no completion: the connector says so */
    KeSetEvent(&((SMBD *)context)->work, IO_NO_INCREMENT, FALSE);
}
static void on_disconnected(PVOID context) {
    SMBD *s = context;
    __atomic_store_n(&s->gone, 1, __ATOMIC_RELEASE);
    KeSetEvent(&s->work, IO_NO_INCREMENT, FALSE);
}

/* ---- credits ---- */

/* Post receives for credits to grant (3.1.5.9). They are announced by the next Send. */
static void grant(SMBD *s) {
    /* With one credit on each side every grant would have to be answered by a grant. */
    ULONG target = s->receive_credit_target < 2 ? 2 : s->receive_credit_target;
    if (target > s->options.receive_credit_max) target = s->options.receive_credit_max;
    BOOLEAN must = s->receive_credits == 0 || (s->send_credits == 1 && s->out && !s->unannounced);
    /* A peer gets no more room while its messages wait for this side's program. */
    if (s->waiting_bytes > s->options.max_fragmented_size) return;
    while ((s->receive_credits < target || must) && s->free_receive_count) {
        NDK_SGE entries[8];
        ULONG slot = s->free_receives[s->free_receive_count - 1];
        ULONG count = smbd_entries(s, &s->receives_mapping, slot * s->slot, s->max_receive_size, entries);
        if (s->qp->Dispatch->NdkReceive(s->qp, RECEIVE(slot), entries, count) != STATUS_SUCCESS) return;
        s->free_receive_count--;
        s->posted++;
        s->receive_credits++;
        s->unannounced++;
        must = FALSE;
    }
}

/* Grant credits by themselves, if the peer has `low` of them or fewer and no Send of ours takes them
 * along. */
static void grant_alone(SMBD *s, ULONG low) {
    if (s->out || s->receive_credits > low) return;
    grant(s);
    s->send_immediate |= s->unannounced > 0;
}

/* ---- sending (3.1.5.1) ---- */
static ULONG take_send(SMBD *s, uint8_t **bytes) {
    ULONG slot = s->free_sends[--s->free_send_count];
    *bytes = s->sends + (SIZE_T)slot * s->send_slot;
    return slot;
}

static void post_send(SMBD *s, ULONG slot, ULONG length, UINT32 invalidate) {
    NDK_SGE entries[8];
    ULONG count = smbd_entries(s, &s->sends_mapping, slot * s->send_slot, length, entries);
    NTSTATUS status = invalidate ? s->qp->Dispatch->NdkSendAndInvalidate(s->qp, SEND(slot), entries, count, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, invalidate)
                                 : s->qp->Dispatch->NdkSend(s->qp, SEND(slot), entries, count, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT);
    if (status != STATUS_SUCCESS) smbd_end(s, "a Send was refused");
}

static void start_sends(SMBD *s) {
    while (!s->ended && s->negotiated && s->free_send_count && s->send_credits && (s->out || s->send_immediate)) {
        grant(s);
        if (s->send_credits == 1 && !s->unannounced) return; /* the last credit is for a grant */
        uint8_t *bytes;
        ULONG slot = take_send(s, &bytes);
        SMBD_DATA d = { .credits_requested = (uint16_t)s->options.send_credit_target, .credits_granted = (uint16_t)s->unannounced };
        UINT32 invalidate = 0;
        if (s->ask) {
            d.flags = SMBD_RESPONSE_REQUESTED;
            s->ask = FALSE;
            s->asked = TRUE;
        }
        if (s->out) {
            ULONG left = s->out_length - s->out_sent, most = s->max_send_size - SMBD_DATA_HEADER;
            d.length = left < most ? left : most;
            d.remaining = left - d.length;
            memcpy(bytes + SMBD_DATA_HEADER, s->out + s->out_sent, d.length);
            s->out_sent += d.length;
            if (!d.remaining) {
                invalidate = s->out_invalidate;
                s->out = NULL;
            }
        } else if (!d.flags) {
            s->grants_alone++;
        }
        s->unannounced = 0;
        s->send_immediate = FALSE;
        s->send_credits--;
        s->sent++;
        post_send(s, slot, (ULONG)smbd_put_data(bytes, &d), invalidate);
    }
}

const char *smbd_send(SMBD *s, const void *bytes, ULONG length, UINT32 invalidate) {
    if (s->ended) return s->ended;
    if (length == 0 || length > s->max_fragmented_send) return "a message of a size that was not negotiated";
    s->out = bytes;
    s->out_length = length;
    s->out_sent = 0;
    s->out_invalidate = invalidate;
    start_sends(s);
    while (s->out && !s->ended) smbd_progress(s);
    return s->ended;
}

/* ---- receiving ---- */
static void on_request(SMBD *s, const uint8_t *bytes, ULONG size) {
    SMBD_REQUEST *r = &s->request;
    const char *why = smbd_get_request(bytes, size, r);
    if (why) {
        smbd_end(s, why);
        return;
    }
    SMBD_RESPONSE answer = { .min_version = SMBD_VERSION, .max_version = SMBD_VERSION };
    uint8_t *out;
    if (r->min_version > SMBD_VERSION || r->max_version < SMBD_VERSION) {
        answer.status = SMBD_NOT_SUPPORTED;
        ULONG slot = take_send(s, &out);
        smbd_put_response(out, &answer);
        post_send(s, slot, SMBD_RESPONSE_SIZE, 0);
        while (s->free_send_count < SMBD_SEND_SLOTS && smbd_progress(s)) {}
        smbd_end(s, "a negotiate request for other versions");
        return;
    }
    ULONG ours = s->options.max_receive_size;
    ULONG theirs = r->preferred_send_size < ours ? r->preferred_send_size : ours;
    s->max_receive_size = theirs < SMBD_SMALLEST_RECEIVE ? SMBD_SMALLEST_RECEIVE : theirs;
    s->max_send_size = s->options.max_send_size < r->max_receive_size ? s->options.max_send_size : r->max_receive_size;
    s->max_fragmented_send = r->max_fragmented_size;
    s->receive_credit_target = r->credits_requested;
    s->max_read_write = SMBD_READ_WRITE;
    grant(s);
    answer.negotiated_version = SMBD_VERSION;
    answer.credits_requested = (uint16_t)s->options.send_credit_target;
    answer.credits_granted = (uint16_t)s->unannounced;
    answer.max_read_write_size = SMBD_READ_WRITE;
    answer.preferred_send_size = s->max_send_size;
    answer.max_receive_size = s->max_receive_size;
    answer.max_fragmented_size = s->options.max_fragmented_size;
    ULONG slot = take_send(s, &out);
    smbd_put_response(out, &answer);
    s->unannounced = 0;
    s->negotiated = TRUE;
    post_send(s, slot, SMBD_RESPONSE_SIZE, 0);
}

static void on_response(SMBD *s, const uint8_t *bytes, ULONG size) {
    SMBD_RESPONSE *r = &s->response;
    const char *why = smbd_get_response(bytes, size, r);
    if (!why && r->preferred_send_size > s->options.max_receive_size) why = "a negotiate response with Sends larger than our receives";
    if (why) {
        smbd_end(s, why);
        return;
    }
    s->max_receive_size = r->preferred_send_size < SMBD_SMALLEST_RECEIVE ? SMBD_SMALLEST_RECEIVE : r->preferred_send_size;
    s->max_send_size = s->options.max_send_size < r->max_receive_size ? s->options.max_send_size : r->max_receive_size;
    s->max_fragmented_send = r->max_fragmented_size;
    s->max_read_write = r->max_read_write_size < SMBD_READ_WRITE ? r->max_read_write_size : SMBD_READ_WRITE;
    s->receive_credit_target = r->credits_requested;
    s->send_credits = r->credits_granted;
    s->negotiated = TRUE;
    s->send_immediate = TRUE; /* the peer has no credit yet */
}

/* Put the data of one message to the others (3.1.5.8). */
static const char *reassemble(SMBD *s, const uint8_t *data, const SMBD_DATA *d) {
    if (!s->partial) {
        ULONG total = d->length + d->remaining;
        s->partial = malloc(sizeof *s->partial + total);
        if (!s->partial) return "no memory for a message";
        s->partial->next = NULL;
        s->partial->length = total;
        s->partial_have = 0;
    } else if (s->partial->length - s->partial_have != d->length + d->remaining) {
        return "a fragment that does not continue its message";
    }
    memcpy(s->partial->bytes + s->partial_have, data, d->length);
    s->partial_have += d->length;
    if (!d->remaining) {
        if (s->last) s->last->next = s->partial;
        else s->first = s->partial;
        s->last = s->partial;
        s->waiting_bytes += s->partial->length;
        s->partial = NULL;
    }
    return NULL;
}

static void on_data(SMBD *s, const uint8_t *bytes, ULONG size) {
    SMBD_DATA d;
    const char *why = smbd_get_data(bytes, size, s->options.max_fragmented_size, &d);
    if (!why && d.length) why = reassemble(s, bytes + d.offset, &d);
    if (why) {
        smbd_end(s, why);
        return;
    }
    s->receive_credits--;
    s->receive_credit_target = d.credits_requested;
    /* The queue bounds what may be under way: the rest of a larger grant has no use. */
    s->send_credits += d.credits_granted;
    if (s->send_credits > 0xffff) s->send_credits = 0xffff;
    if (d.flags & SMBD_RESPONSE_REQUESTED) s->send_immediate = TRUE;
    /* A grant by itself: when the peer is about to run out, and in answer to a grant only when it has. */
    ULONG target = s->receive_credit_target < s->options.receive_credit_max ? s->receive_credit_target : s->options.receive_credit_max;
    grant_alone(s, d.length == 0 ? 0 : target / 2 > 1 ? target / 2 : 1);
}

static void on_received(SMBD *s, const NDK_RESULT_EX *result) {
    ULONG slot = SLOT_OF(result->RequestContext);
    s->posted--;
    s->free_receives[s->free_receive_count++] = slot;
    if (s->ended) return;
    if (result->Status != STATUS_SUCCESS) {
        smbd_end(s, result->Status == STATUS_BUFFER_OVERFLOW ? "a Send larger than was negotiated" : "the connection ended");
        return;
    }
    s->heard = now();
    s->ask = s->asked = FALSE;
    s->received++;
    for (int i = 0; result->Type == NdkOperationTypeReceiveAndInvalidate && i < SMBD_REGIONS; i++) {
        SMBD_REGION *r = &s->regions[i];
        if (r->descriptor.length && r->descriptor.token == (UINT32)result->TypeSpecificCompletionOutput) r->invalidated = TRUE;
    }
    /* The slot is posted again by `grant` only, behind the last look at its bytes. */
    const uint8_t *bytes = s->receives + (SIZE_T)slot * s->slot;
    if (s->negotiated) on_data(s, bytes, result->BytesTransferred);
    else if (s->active) on_response(s, bytes, result->BytesTransferred);
    else on_request(s, bytes, result->BytesTransferred);
}

static void on_sent(SMBD *s, const NDK_RESULT_EX *result) {
    if (result->RequestContext == s) { /* an RDMA request or an Invalidate */
        s->rdma--;
        s->rdma_failed |= result->Status != STATUS_SUCCESS && result->Status != STATUS_CANCELLED;
        if (result->Status != STATUS_SUCCESS) smbd_end(s, "the connection ended");
        return;
    }
    if (result->Status != STATUS_SUCCESS) smbd_end(s, "the connection ended");
    if (result->RequestContext) s->free_sends[s->free_send_count++] = SLOT_OF(result->RequestContext);
}

static ULONG drain(SMBD *s, NDK_CQ *cq, void (*on)(SMBD *, const NDK_RESULT_EX *)) {
    NDK_RESULT_EX results[16];
    ULONG found = 0, more;
    while ((more = cq->Dispatch->NdkGetCqResultsEx(cq, results, 16)) != 0) {
        for (ULONG i = 0; i < more; i++) on(s, &results[i]);
        found += more;
    }
    return found;
}

/* ---- progress, and the two timers ---- */
BOOLEAN smbd_progress(SMBD *s) {
    for (;;) {
        /* Read before the queues: what completed before the disconnect is in them by then. */
        BOOLEAN gone = __atomic_load_n(&s->gone, __ATOMIC_ACQUIRE) != 0;
        ULONG found = drain(s, s->receive_cq, on_received);
        found += drain(s, s->send_cq, on_sent);
        start_sends(s);
        if (s->ended) return FALSE;
        if (found) return TRUE;
        if (gone) return smbd_end(s, "the peer disconnected"), FALSE;
        LONGLONG silent = now() - s->heard;
        LONGLONG limit = s->options.negotiate_ms * MS;
        if (s->negotiated) limit = (s->options.idle_ms + (s->asked || s->ask ? s->options.answer_ms : 0)) * MS;
        if (silent >= limit) {
            if (!s->negotiated) return smbd_end(s, "no negotiation in time"), FALSE;
            if (s->asked || s->ask) return smbd_end(s, "no answer to a keepalive"), FALSE;
            s->ask = s->send_immediate = TRUE;
            continue;
        }
        s->receive_cq->Dispatch->NdkArmCq(s->receive_cq, NDK_CQ_NOTIFY_ANY);
        s->send_cq->Dispatch->NdkArmCq(s->send_cq, NDK_CQ_NOTIFY_ANY);
        /* Entries that came before the arm satisfy it, unless a callback has told of them already. */
        LARGE_INTEGER timeout = { .QuadPart = silent - limit };
        KeWaitForSingleObject(&s->work, Executive, KernelMode, FALSE, &timeout);
    }
}

const char *smbd_receive(SMBD *s, SMBD_MESSAGE **message) {
    while (!s->first)
        if (!smbd_progress(s) && !s->first) return s->ended;
    *message = s->first;
    s->first = s->first->next;
    if (!s->first) s->last = NULL;
    s->waiting_bytes -= (*message)->length;
    grant_alone(s, 0); /* of what had to wait for this */
    start_sends(s);
    return NULL;
}

/* ---- bring-up and teardown (NDKPI's sample has this order) ---- */
static BOOLEAN made(SMBD_WAIT *wait, NTSTATUS returned, void *object) {
    NTSTATUS status = smbd_wait_end(wait, returned);
    if (returned == STATUS_PENDING && status == STATUS_SUCCESS) *(PVOID *)object = wait->object;
    return status == STATUS_SUCCESS;
}

static ULONG whole_pages(ULONG bytes) { return (bytes + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE; }

static const char *make(SMBD *s, NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, BOOLEAN active) {
    SMBD_WAIT wait;
    NDK_ADAPTER_INFO info;
    ULONG size = sizeof info;
    memset(s, 0, sizeof *s);
    s->options = *options;
    s->adapter = adapter;
    s->active = active;
    smbd_wait_init(&wait);
    KeInitializeEvent(&s->work, SynchronizationEvent, FALSE);
    const NDK_ADAPTER_DISPATCH *a = adapter->Dispatch;
    if (a->NdkQueryAdapterInfo(adapter, &info, &size) != STATUS_SUCCESS) return smbd_end(s, "the adapter does not describe itself");
    /* The privileged token names the sinks of our reads. */
    if (!(info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED)) return smbd_end(s, "the adapter needs registered read sinks");
    ULONG receives = options->receive_credit_max + 1; /* and one for the negotiation */
    ULONG initiator = SMBD_SEND_SLOTS + 8 + 2 * SMBD_REGIONS;
    if (receives < 2 || receives > SMBD_MAX_CREDITS + 1 || options->send_credit_target < 1 || options->send_credit_target > 0xffff
        || options->max_send_size < SMBD_SMALLEST_RECEIVE || options->max_receive_size < SMBD_SMALLEST_RECEIVE || options->max_send_size > 8192
        || options->max_receive_size > 8192 || options->max_fragmented_size < SMBD_SMALLEST_FRAGMENTED)
        return smbd_end(s, "an option that MS-SMBD does not allow");
    if (!made(&wait, a->NdkCreatePd(adapter, smbd_on_created, &wait, &s->pd), &s->pd)) return smbd_end(s, "no protection domain");
    s->pd->Dispatch->NdkGetPrivilegedMemoryRegionToken(s->pd, &s->token);
    if (!smbd_make_regions(s)) return smbd_end(s, "no regions");
    if (!made(&wait, a->NdkCreateCq(adapter, receives, on_notified, s, NULL, smbd_on_created, &wait, &s->receive_cq), &s->receive_cq)
        || !made(&wait, a->NdkCreateCq(adapter, initiator, on_notified, s, NULL, smbd_on_created, &wait, &s->send_cq), &s->send_cq))
        return smbd_end(s, "no completion queues");
    if (info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED)
        s->send_cq->Dispatch->NdkControlCqInterruptModeration(s->send_cq, 20, 0xffffffff);
    NTSTATUS returned = s->pd->Dispatch->NdkCreateQp(s->pd, s->receive_cq, s->send_cq, s, receives, initiator, 3, 32, 0, smbd_on_created, &wait, &s->qp);
    if (!made(&wait, returned, &s->qp)) return smbd_end(s, "no queue pair");
    s->slot = whole_pages(options->max_receive_size);
    s->send_slot = whole_pages(options->max_send_size);
    s->receives = allocate_pages((SIZE_T)receives * s->slot);
    s->sends = allocate_pages((SIZE_T)SMBD_SEND_SLOTS * s->send_slot);
    if (!s->receives || !s->sends || !smbd_map(s, &s->receives_mapping, s->receives, receives * s->slot, TRUE)
        || !smbd_map(s, &s->sends_mapping, s->sends, SMBD_SEND_SLOTS * s->send_slot, FALSE))
        return smbd_end(s, "no memory");
    for (ULONG i = 0; i < receives; i++) s->free_receives[s->free_receive_count++] = i;
    for (ULONG i = 0; i < SMBD_SEND_SLOTS; i++) s->free_sends[s->free_send_count++] = i;
    s->max_send_size = options->max_send_size;
    s->max_receive_size = options->max_receive_size;
    s->heard = now();
    /* The receive of the negotiation, before the peer can send. It is no credit. */
    s->receive_credit_target = 1;
    NDK_SGE entries[8];
    ULONG slot = s->free_receives[--s->free_receive_count];
    ULONG count = smbd_entries(s, &s->receives_mapping, slot * s->slot, s->max_receive_size, entries);
    if (s->qp->Dispatch->NdkReceive(s->qp, RECEIVE(slot), entries, count) != STATUS_SUCCESS) return smbd_end(s, "a Receive was refused");
    s->posted++;
    return NULL;
}

static const char *negotiated(SMBD *s) {
    while (!s->negotiated)
        if (!smbd_progress(s)) break;
    return s->ended;
}

const char *smbd_connect(SMBD *s, NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, PCSOCKADDR from, PCSOCKADDR to, ULONG length) {
    SMBD_WAIT wait;
    if (make(s, adapter, options, TRUE)) return s->ended;
    smbd_wait_init(&wait);
    if (!made(&wait, adapter->Dispatch->NdkCreateConnector(adapter, smbd_on_created, &wait, &s->connector), &s->connector)) return smbd_end(s, "no connector");
    const NDK_CONNECTOR_DISPATCH *c = s->connector->Dispatch;
    NTSTATUS status = c->NdkConnect(s->connector, s->qp, from, length, to, length, 16, 0, NULL, 0, smbd_on_request, &wait);
    if (smbd_wait_end(&wait, status) != STATUS_SUCCESS) return smbd_end(s, "no connection to the peer");
    status = c->NdkCompleteConnect(s->connector, on_disconnected, s, smbd_on_request, &wait);
    if (smbd_wait_end(&wait, status) != STATUS_SUCCESS) return smbd_end(s, "no connection to the peer");
    /* The active side sends first, as iWARP wants it. */
    uint8_t *bytes;
    ULONG slot = take_send(s, &bytes);
    SMBD_REQUEST request = { .min_version = SMBD_VERSION, .max_version = SMBD_VERSION, .credits_requested = (uint16_t)options->send_credit_target,
                             .preferred_send_size = options->max_send_size, .max_receive_size = options->max_receive_size,
                             .max_fragmented_size = options->max_fragmented_size };
    smbd_put_request(bytes, &request);
    s->heard = now();
    post_send(s, slot, SMBD_REQUEST_SIZE, 0);
    return negotiated(s);
}

const char *smbd_accept(SMBD *s, NDK_ADAPTER *adapter, const SMBD_OPTIONS *options, NDK_CONNECTOR *incoming) {
    SMBD_WAIT wait;
    const char *why = make(s, adapter, options, FALSE);
    s->connector = incoming;
    if (why) return why;
    smbd_wait_init(&wait);
    NTSTATUS status = incoming->Dispatch->NdkAccept(incoming, s->qp, 0, 16, NULL, 0, on_disconnected, s, smbd_on_request, &wait);
    if (smbd_wait_end(&wait, status) != STATUS_SUCCESS) return smbd_end(s, "no connection to the peer");
    s->heard = now();
    return negotiated(s);
}

#define CLOSE(object, function)                                                                                   \
    do {                                                                                                          \
        SMBD_WAIT wait;                                                                                           \
        smbd_wait_init(&wait);                                                                                    \
        if (object) smbd_wait_end(&wait, (object)->Dispatch->function(&(object)->Header, smbd_on_closed, &wait)); \
    } while (0)

const char *smbd_abort(SMBD *s) {
    smbd_end(s, "closed");
    if (s->qp) s->qp->Dispatch->NdkFlush(s->qp);
    CLOSE(s->connector, NdkCloseConnector);
    s->connector = NULL;
    /* Every request comes back, cancelled if nothing else. */
    while (s->posted || s->rdma) {
        drain(s, s->receive_cq, on_received);
        drain(s, s->send_cq, on_sent);
    }
    /* The cause, whichever of the completions was seen first. */
    if (s->rdma_failed) s->ended = "an RDMA request failed";
    return s->ended;
}

void smbd_close(SMBD *s) {
    smbd_abort(s);
    CLOSE(s->qp, NdkCloseQp);
    CLOSE(s->receive_cq, NdkCloseCq);
    CLOSE(s->send_cq, NdkCloseCq);
    smbd_close_regions(s);
    smbd_unmap(s, &s->receives_mapping);
    smbd_unmap(s, &s->sends_mapping);
    CLOSE(s->pd, NdkClosePd);
    free_pages(s->receives);
    free_pages(s->sends);
    free(s->partial);
    while (s->first) {
        SMBD_MESSAGE *message = s->first;
        s->first = message->next;
        free(message);
    }
    memset(s, 0, sizeof *s);
}
