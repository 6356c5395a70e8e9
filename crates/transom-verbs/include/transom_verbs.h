/*
 * transom_verbs.h - what Transom offers verbs programs beyond verbs.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TRANSOM_VERBS_H
#define TRANSOM_VERBS_H

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif
/*
 * Give the memory region or window of a key (lkey or rkey) a name, for messages about refusals and for
 * `transom show`: the first 31 bytes of a UTF-8 text. 0, or EINVAL if the key names nothing that is open.
 *
 * Transom's libibverbs.so.1 alone has this function (version node TRANSOM_1.0). A program that also runs
 * on other libraries finds it with dlsym(RTLD_DEFAULT, "transom_name"), or not.
 */
int transom_name(struct ibv_context *context, uint32_t key, const char *name);
#ifdef __cplusplus
}
#endif

#endif
