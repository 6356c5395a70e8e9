#include "wire.h"

#include <string.h>

void smbd_put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}
void smbd_put32(uint8_t *at, uint32_t value) {
    smbd_put16(at, (uint16_t)value);
    smbd_put16(at + 2, (uint16_t)(value >> 16));
}
void smbd_put64(uint8_t *at, uint64_t value) {
    smbd_put32(at, (uint32_t)value);
    smbd_put32(at + 4, (uint32_t)(value >> 32));
}
uint16_t smbd_get16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
uint32_t smbd_get32(const uint8_t *at) { return smbd_get16(at) | (uint32_t)smbd_get16(at + 2) << 16; }
uint64_t smbd_get64(const uint8_t *at) { return smbd_get32(at) | (uint64_t)smbd_get32(at + 4) << 32; }

void smbd_put_request(uint8_t *bytes, const SMBD_REQUEST *r) {
    memset(bytes, 0, SMBD_REQUEST_SIZE);
    smbd_put16(bytes, r->min_version);
    smbd_put16(bytes + 2, r->max_version);
    smbd_put16(bytes + 6, r->credits_requested);
    smbd_put32(bytes + 8, r->preferred_send_size);
    smbd_put32(bytes + 12, r->max_receive_size);
    smbd_put32(bytes + 16, r->max_fragmented_size);
}

const char *smbd_get_request(const uint8_t *bytes, size_t size, SMBD_REQUEST *r) {
    if (size < SMBD_REQUEST_SIZE) return "a negotiate request of fewer than 20 bytes";
    r->min_version = smbd_get16(bytes);
    r->max_version = smbd_get16(bytes + 2);
    r->credits_requested = smbd_get16(bytes + 6);
    r->preferred_send_size = smbd_get32(bytes + 8);
    r->max_receive_size = smbd_get32(bytes + 12);
    r->max_fragmented_size = smbd_get32(bytes + 16);
    if (r->min_version > r->max_version) return "a negotiate request for no version";
    if (r->credits_requested == 0) return "a negotiate request for no credits";
    if (r->max_receive_size < SMBD_SMALLEST_RECEIVE) return "a negotiate request with receives below 128 bytes";
    if (r->max_fragmented_size < SMBD_SMALLEST_FRAGMENTED) return "a negotiate request with messages below 128 KiB";
    return NULL;
}

void smbd_put_response(uint8_t *bytes, const SMBD_RESPONSE *r) {
    memset(bytes, 0, SMBD_RESPONSE_SIZE);
    smbd_put16(bytes, r->min_version);
    smbd_put16(bytes + 2, r->max_version);
    smbd_put16(bytes + 4, r->negotiated_version);
    smbd_put16(bytes + 8, r->credits_requested);
    smbd_put16(bytes + 10, r->credits_granted);
    smbd_put32(bytes + 12, r->status);
    smbd_put32(bytes + 16, r->max_read_write_size);
    smbd_put32(bytes + 20, r->preferred_send_size);
    smbd_put32(bytes + 24, r->max_receive_size);
    smbd_put32(bytes + 28, r->max_fragmented_size);
}

const char *smbd_get_response(const uint8_t *bytes, size_t size, SMBD_RESPONSE *r) {
    if (size < SMBD_RESPONSE_SIZE) return "a negotiate response of fewer than 32 bytes";
    r->min_version = smbd_get16(bytes);
    r->max_version = smbd_get16(bytes + 2);
    r->negotiated_version = smbd_get16(bytes + 4);
    r->credits_requested = smbd_get16(bytes + 8);
    r->credits_granted = smbd_get16(bytes + 10);
    r->status = smbd_get32(bytes + 12);
    r->max_read_write_size = smbd_get32(bytes + 16);
    r->preferred_send_size = smbd_get32(bytes + 20);
    r->max_receive_size = smbd_get32(bytes + 24);
    r->max_fragmented_size = smbd_get32(bytes + 28);
    if (r->status != 0) return "a negotiate response that refuses";
    if (r->negotiated_version != SMBD_VERSION) return "a negotiate response for another version";
    if (r->credits_requested == 0) return "a negotiate response that requests no credits";
    if (r->credits_granted == 0) return "a negotiate response that grants no credits";
    if (r->max_receive_size < SMBD_SMALLEST_RECEIVE) return "a negotiate response with receives below 128 bytes";
    if (r->max_fragmented_size < SMBD_SMALLEST_FRAGMENTED) return "a negotiate response with messages below 128 KiB";
    return NULL;
}

size_t smbd_put_data(uint8_t *bytes, const SMBD_DATA *d) {
    memset(bytes, 0, SMBD_DATA_HEADER);
    smbd_put16(bytes, d->credits_requested);
    smbd_put16(bytes + 2, d->credits_granted);
    smbd_put16(bytes + 4, d->flags);
    smbd_put32(bytes + 8, d->remaining);
    smbd_put32(bytes + 12, d->length ? SMBD_DATA_HEADER : 0);
    smbd_put32(bytes + 16, d->length);
    return d->length ? (size_t)SMBD_DATA_HEADER + d->length : SMBD_DATA_SMALLEST;
}

const char *smbd_get_data(const uint8_t *bytes, size_t size, uint32_t max_fragmented, SMBD_DATA *d) {
    if (size < SMBD_DATA_SMALLEST) return "a data transfer of fewer than 20 bytes";
    d->credits_requested = smbd_get16(bytes);
    d->credits_granted = smbd_get16(bytes + 2);
    d->flags = smbd_get16(bytes + 4);
    d->remaining = smbd_get32(bytes + 8);
    d->offset = smbd_get32(bytes + 12);
    d->length = smbd_get32(bytes + 16);
    if (d->credits_requested == 0) return "a data transfer that requests no credits";
    if (d->offset % 8 != 0) return "data at an offset that is no multiple of 8";
    /* In 64 bits: no sum of two of these runs over. */
    if ((uint64_t)d->offset + d->length > size) return "data beyond the end of its message";
    if ((uint64_t)d->length + d->remaining > max_fragmented) return "a message larger than was negotiated";
    /* MS-SMBD leaves the next two open. A sender has no reason for either. */
    if (d->length && d->offset < SMBD_DATA_HEADER) return "data inside the header";
    if (!d->length && d->remaining) return "a fragment without data";
    return NULL;
}

void smbd_put_descriptor(uint8_t *bytes, const SMBD_DESCRIPTOR *d) {
    smbd_put64(bytes, d->offset);
    smbd_put32(bytes + 8, d->token);
    smbd_put32(bytes + 12, d->length);
}
void smbd_get_descriptor(const uint8_t *bytes, SMBD_DESCRIPTOR *d) {
    d->offset = smbd_get64(bytes);
    d->token = smbd_get32(bytes + 8);
    d->length = smbd_get32(bytes + 12);
}
