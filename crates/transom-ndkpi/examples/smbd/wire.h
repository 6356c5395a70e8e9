/* SMB Direct's messages as bytes (MS-SMBD 2.2): written, and read with every check that a receiver owes
 * itself. Nothing here knows a connection. All integers are little-endian on the wire. */
#ifndef SMBD_WIRE_H
#define SMBD_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define SMBD_VERSION 0x0100
#define SMBD_REQUEST_SIZE 20
#define SMBD_RESPONSE_SIZE 32
#define SMBD_DATA_SMALLEST 20   /* a message without data may end here */
#define SMBD_DATA_HEADER 24     /* where data begins, at the earliest */
#define SMBD_DESCRIPTOR_SIZE 16
#define SMBD_RESPONSE_REQUESTED 0x0001
#define SMBD_SMALLEST_RECEIVE 128
#define SMBD_SMALLEST_FRAGMENTED 131072
#define SMBD_NOT_SUPPORTED 0xC00000BBu

typedef struct {
    uint16_t min_version, max_version, credits_requested;
    uint32_t preferred_send_size, max_receive_size, max_fragmented_size;
} SMBD_REQUEST;

typedef struct {
    uint16_t min_version, max_version, negotiated_version, credits_requested, credits_granted;
    uint32_t status, max_read_write_size, preferred_send_size, max_receive_size, max_fragmented_size;
} SMBD_RESPONSE;

typedef struct {
    uint16_t credits_requested, credits_granted, flags;
    uint32_t remaining;     /* bytes of the message that follow in others */
    uint32_t offset, length; /* of this one's data */
} SMBD_DATA;

/* A buffer of the sender's that the receiver may read or write by RDMA (2.2.3.1). */
typedef struct {
    uint64_t offset;
    uint32_t token, length;
} SMBD_DESCRIPTOR;

void smbd_put_request(uint8_t *bytes, const SMBD_REQUEST *request);
void smbd_put_response(uint8_t *bytes, const SMBD_RESPONSE *response);
/* Writes the header with its padding; data goes to `bytes + SMBD_DATA_HEADER`. Returns the bytes of the
 * message. */
size_t smbd_put_data(uint8_t *bytes, const SMBD_DATA *data);
void smbd_put_descriptor(uint8_t *bytes, const SMBD_DESCRIPTOR *descriptor);

/* Each returns NULL, or what is wrong with the message. A request for other versions only is not
 * wrong: it has an answer. */
const char *smbd_get_request(const uint8_t *bytes, size_t size, SMBD_REQUEST *request);
const char *smbd_get_response(const uint8_t *bytes, size_t size, SMBD_RESPONSE *response);
const char *smbd_get_data(const uint8_t *bytes, size_t size, uint32_t max_fragmented, SMBD_DATA *data);
void smbd_get_descriptor(const uint8_t *bytes, SMBD_DESCRIPTOR *descriptor);

void smbd_put16(uint8_t *at, uint16_t value);
void smbd_put32(uint8_t *at, uint32_t value);
void smbd_put64(uint8_t *at, uint64_t value);
uint16_t smbd_get16(const uint8_t *at);
uint32_t smbd_get32(const uint8_t *at);
uint64_t smbd_get64(const uint8_t *at);

#endif
