/* libiscsi over iSER: 8 MiB are written in pieces of 64 KiB, read back and compared. Word: the address. */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512, PIECE = 65536, ALL = 8 << 20 };

int main(int count, char **words)
{
    struct iscsi_context *iscsi = iscsi_create_context("iqn.2001-04.com.example:client");
    struct iscsi_url *url = count > 1 ? iscsi_parse_full_url(iscsi, words[1]) : NULL;
    if (!url || iscsi_init_transport(iscsi, ISER_TRANSPORT)) {
        fprintf(stderr, "%s\n", iscsi_get_error(iscsi));
        return 1;
    }
    iscsi_set_targetname(iscsi, url->target);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    if (iscsi_full_connect_sync(iscsi, url->portal, url->lun)) {
        fprintf(stderr, "%s\n", iscsi_get_error(iscsi));
        return 2;
    }
    unsigned char *given = malloc(ALL);
    for (int at = 0; at < ALL; at++)
        given[at] = (unsigned char)((at * 2654435761u) >> 24);
    for (int at = 0; at < ALL; at += PIECE) {
        struct scsi_task *task =
            iscsi_write10_sync(iscsi, url->lun, at / BLOCK, given + at, PIECE, BLOCK, 0, 0, 0, 0, 0);
        if (!task || task->status != SCSI_STATUS_GOOD) {
            fprintf(stderr, "write: %s\n", iscsi_get_error(iscsi));
            return 3;
        }
        scsi_free_scsi_task(task);
    }
    for (int at = 0; at < ALL; at += PIECE) {
        struct scsi_task *task = iscsi_read10_sync(iscsi, url->lun, at / BLOCK, PIECE, BLOCK, 0, 0, 0, 0, 0);
        if (!task || task->status != SCSI_STATUS_GOOD || task->datain.size != PIECE) {
            fprintf(stderr, "read: %s\n", iscsi_get_error(iscsi));
            return 4;
        }
        if (memcmp(task->datain.data, given + at, PIECE)) {
            fprintf(stderr, "other bytes at %d\n", at);
            return 5;
        }
        scsi_free_scsi_task(task);
    }
    iscsi_logout_sync(iscsi);
    iscsi_destroy_context(iscsi);
    puts("8 MiB");
    return 0;
}
