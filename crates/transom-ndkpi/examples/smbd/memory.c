/* Memory of a connection: logical address mappings, fast registration, RDMA reads and writes. */
#include "smbd.h"

#include <stdlib.h>
#include <string.h>

#define ENTRIES 32 /* of one RDMA request: what the adapter allows */

/* ---- waiting for callbacks ---- */
void smbd_wait_init(SMBD_WAIT *wait) {
    KeInitializeEvent(&wait->event, SynchronizationEvent, FALSE);
    wait->object = NULL;
}
void smbd_wait_set(SMBD_WAIT *wait, NTSTATUS status, PVOID object) {
    wait->status = status;
    wait->object = object;
    KeSetEvent(&wait->event, IO_NO_INCREMENT, FALSE);
}
NTSTATUS smbd_wait_end(SMBD_WAIT *wait, NTSTATUS returned) {
    if (returned != STATUS_PENDING) return returned; /* inline: no callback comes */
    KeWaitForSingleObject(&wait->event, Executive, KernelMode, FALSE, NULL);
    return wait->status;
}
void smbd_on_request(PVOID context, NTSTATUS status) { smbd_wait_set(context, status, NULL); }
void smbd_on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object) { smbd_wait_set(context, status, object); }
void smbd_on_closed(PVOID context) { smbd_wait_set(context, STATUS_SUCCESS, NULL); }

/* ---- mappings ---- */
BOOLEAN smbd_map(SMBD *s, SMBD_MAPPING *m, void *buffer, ULONG length, BOOLEAN written) {
    const NDK_ADAPTER_DISPATCH *a = s->adapter->Dispatch;
    memset(m, 0, sizeof *m);
    m->mdl = IoAllocateMdl(buffer, length, FALSE, FALSE, NULL);
    if (!m->mdl) return FALSE;
    MmProbeAndLockPages(m->mdl, KernelMode, written ? IoModifyAccess : IoReadAccess);
    if (m->mdl->MdlFlags & MDL_PAGES_LOCKED) {
        SMBD_WAIT wait;
        ULONG size = 0;
        smbd_wait_init(&wait);
        NTSTATUS status = smbd_wait_end(&wait, a->NdkBuildLAM(s->adapter, m->mdl, length, smbd_on_request, &wait, NULL, &size, &m->offset));
        if (status == STATUS_BUFFER_TOO_SMALL && (m->lam = malloc(size)) != NULL) {
            status = smbd_wait_end(&wait, a->NdkBuildLAM(s->adapter, m->mdl, length, smbd_on_request, &wait, m->lam, &size, &m->offset));
            if (status == STATUS_SUCCESS) return TRUE;
        }
        free(m->lam);
        MmUnlockPages(m->mdl);
    }
    IoFreeMdl(m->mdl);
    memset(m, 0, sizeof *m);
    return FALSE;
}

void smbd_unmap(SMBD *s, SMBD_MAPPING *m) {
    if (!m->mdl) return;
    s->adapter->Dispatch->NdkReleaseLAM(s->adapter, m->lam);
    MmUnlockPages(m->mdl);
    IoFreeMdl(m->mdl);
    free(m->lam);
    memset(m, 0, sizeof *m);
}

ULONG smbd_entries(SMBD *s, const SMBD_MAPPING *m, ULONG at, ULONG length, NDK_SGE *entries) {
    ULONG count = 0;
    SIZE_T place = (SIZE_T)m->offset + at;
    while (length) {
        ULONG in_page = (ULONG)(place % PAGE_SIZE), bytes = PAGE_SIZE - in_page;
        if (bytes > length) bytes = length;
        NDK_SGE *entry = &entries[count++];
        entry->LogicalAddress.QuadPart = m->lam->AdapterPageArray[place / PAGE_SIZE].QuadPart + in_page;
        entry->Length = bytes;
        entry->MemoryRegionToken = s->token;
        place += bytes;
        length -= bytes;
    }
    return count;
}

/* ---- fast registration ---- */
BOOLEAN smbd_make_regions(SMBD *s) {
    for (int i = 0; i < SMBD_REGIONS; i++) {
        SMBD_REGION *r = &s->regions[i];
        SMBD_WAIT wait;
        smbd_wait_init(&wait);
        NTSTATUS returned = s->pd->Dispatch->NdkCreateMr(s->pd, TRUE, smbd_on_created, &wait, &r->mr);
        NTSTATUS status = smbd_wait_end(&wait, returned);
        if (status != STATUS_SUCCESS) return FALSE;
        if (returned == STATUS_PENDING) r->mr = wait.object;
        /* A page more than a megabyte has: a buffer begins anywhere. */
        status = r->mr->Dispatch->NdkInitializeFastRegisterMr(r->mr, SMBD_READ_WRITE / PAGE_SIZE + 1, TRUE, smbd_on_request, &wait);
        if (smbd_wait_end(&wait, status) != STATUS_SUCCESS) return FALSE;
    }
    return TRUE;
}

void smbd_close_regions(SMBD *s) {
    for (int i = 0; i < SMBD_REGIONS; i++) {
        SMBD_REGION *r = &s->regions[i];
        if (r->mr) {
            SMBD_WAIT wait;
            smbd_wait_init(&wait);
            smbd_wait_end(&wait, r->mr->Dispatch->NdkCloseMr(&r->mr->Header, smbd_on_closed, &wait));
        }
        smbd_unmap(s, &r->mapping);
    }
}

SMBD_REGION *smbd_register(SMBD *s, void *buffer, ULONG length, BOOLEAN peer_writes) {
    SMBD_REGION *r = s->regions;
    while (r < s->regions + SMBD_REGIONS && r->descriptor.length) r++;
    if (s->ended || length == 0 || length > SMBD_READ_WRITE || r == s->regions + SMBD_REGIONS) return NULL;
    if (!smbd_map(s, &r->mapping, buffer, length, peer_writes)) return NULL;
    ULONG rights = peer_writes ? NDK_OP_FLAG_ALLOW_REMOTE_WRITE : NDK_OP_FLAG_ALLOW_REMOTE_READ;
    const NDK_LOGICAL_ADDRESS_MAPPING *lam = r->mapping.lam;
    /* The Send that tells the peer comes behind it in the same queue. */
    NTSTATUS status = s->qp->Dispatch->NdkFastRegister(s->qp, NULL, r->mr, lam->AdapterPageCount, lam->AdapterPageArray, r->mapping.offset, length, buffer, rights | NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER);
    if (status != STATUS_SUCCESS) {
        smbd_unmap(s, &r->mapping);
        return NULL;
    }
    r->invalidated = FALSE;
    r->descriptor.offset = (uintptr_t)buffer;
    r->descriptor.token = r->mr->Dispatch->NdkGetRemoteTokenFromMr(r->mr);
    r->descriptor.length = length;
    return r;
}

/* Wait until the RDMA requests and invalidations under way are `most` or fewer. */
static const char *drained(SMBD *s, ULONG most) {
    while (s->rdma > most)
        if (!smbd_progress(s)) break;
    return s->ended;
}

const char *smbd_unregister(SMBD *s, SMBD_REGION *r) {
    const char *why = NULL;
    if (!r->invalidated && !s->ended) {
        if (s->qp->Dispatch->NdkInvalidate(s->qp, s, &r->mr->Header, 0) == STATUS_SUCCESS) {
            s->rdma++;
            why = drained(s, 0);
        } else {
            why = smbd_end(s, "an Invalidate was refused");
        }
    }
    if (why) return why; /* the region's close invalidates it: smbd_close unmaps it behind that */
    smbd_unmap(s, &r->mapping);
    r->descriptor.length = 0;
    return NULL;
}

const char *smbd_rdma(SMBD *s, BOOLEAN write, void *buffer, ULONG length, const SMBD_DESCRIPTOR *theirs) {
    const NDK_QP_DISPATCH *q = s->qp->Dispatch;
    SMBD_MAPPING mapping;
    const char *why = NULL;
    if (length > theirs->length || theirs->offset > UINT64_MAX - length) return smbd_end(s, "a descriptor shorter than its request");
    if (s->ended) return s->ended;
    if (!smbd_map(s, &mapping, buffer, length, !write)) return smbd_end(s, "memory of this side is not there");
    for (ULONG at = 0; at < length && !why;) {
        NDK_SGE entries[ENTRIES];
        /* As many whole pages as one request takes, less what the first one lacks. */
        ULONG most = ENTRIES * PAGE_SIZE - (mapping.offset + at) % PAGE_SIZE;
        ULONG bytes = length - at < most ? length - at : most;
        ULONG count = smbd_entries(s, &mapping, at, bytes, entries);
        uint64_t there = theirs->offset + at;
        NTSTATUS status = write ? q->NdkWrite(s->qp, s, entries, count, there, theirs->token, 0)
                                : q->NdkRead(s->qp, s, entries, count, there, theirs->token, 0);
        if (status != STATUS_SUCCESS) {
            why = smbd_end(s, "an RDMA request was refused");
            break;
        }
        s->rdma++;
        at += bytes;
        why = drained(s, 7);
    }
    if (!why) why = drained(s, 0);
    /* Requests may be under way still, and reach the buffer: not behind the connector's close. */
    if (why) why = smbd_abort(s);
    smbd_unmap(s, &mapping);
    return why;
}
