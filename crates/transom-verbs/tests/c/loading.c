/* The libraries as programs find them that load them by name: loading.c FIRST NAMES..., where NAMES are
 * those that every private version node has. Nothing of them is linked here. */
#include "common.h"
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
static const char *const NODES[] = {"15", "16", "17", "18", "19", "20", "21", "22",
                                    "25", "33", "34", "57", "59", "64", "65"};
static void *private(void *library, const char *name, const char *node) {
    char version[40];
    snprintf(version, sizeof version, "IBVERBS_PRIVATE_%s", node);
    void *found = dlvsym(library, name, version);
    CHECK("V16", found, "%s@%s", name, version);
    return found;
}
/* Vendor libraries call these before main, and ours has nothing to register. */
static void vendors(void *verbs, char **names, struct ibv_context *context) {
    int known = 0;
    for (unsigned n = 0; n < sizeof NODES / sizeof NODES[0]; n++) {
        char registers[40];
        snprintf(registers, sizeof registers, "verbs_register_driver_%s", NODES[n]);
        void (*of_driver)(const void *) = private(verbs, registers, NODES[n]);
        of_driver((void *)8);
        void (*of_name)(const char *, void *) = private(verbs, "ibv_register_driver", NODES[n]);
        of_name((char *)8, (void *)16);
        char *disassociates = private(verbs, "verbs_allow_disassociate_destroy", NODES[n]);
        CHECK("V18", *disassociates == 0, "%d", *disassociates);
        int (*attributes)(void *, unsigned, void *) =
            private(verbs, "__ioctl_final_num_attrs", NODES[n]);
        CHECK("V18", attributes(NULL, 3, NULL) == 0, "attributes are left");
        int (*type)(struct ibv_context *, uint8_t, unsigned, int *) =
            private(verbs, "ibv_query_gid_type", NODES[n]);
        int is = -1;
        CHECK("V18", type(context, 1, 0, &is) == 0 && is == 0, "type %d", is);
        CHECK("V18", type(context, 1, 3, &is) == 0 && is == 1, "type %d", is);
        CHECK("V18", type(context, 1, 31, &is) == 0 && is == 0, "type %d of an empty index", is);
        is = -1;
        errno = 0;
        CHECK("V18", type(context, 1, 32, &is) == -1 && errno == EINVAL && is == -1, "type %d", is);
        for (char **name = names; *name; name++) {
            if (!strncmp(*name, "verbs_register_driver_", 22) || !strcmp(*name, "ibv_register_driver") ||
                !strcmp(*name, "verbs_allow_disassociate_destroy") ||
                !strcmp(*name, "__ioctl_final_num_attrs") || !strcmp(*name, "ibv_query_gid_type"))
                continue;
            void *found = private(verbs, *name, NODES[n]);
            errno = 0;
            if (!strcmp(*name, "verbs_set_ops") || !strcmp(*name, "verbs_init_cq") ||
                !strcmp(*name, "verbs_uninit_context") || !strcmp(*name, "__verbs_log")) {
                ((void (*)(void *, void *))found)(NULL, NULL);
            } else if (!strcmp(*name, "_verbs_init_and_alloc_context") ||
                       !strcmp(*name, "verbs_open_device")) {
                CHECK("V18", ((void *(*)(void *))found)(NULL) == NULL && errno == EOPNOTSUPP, "%s", *name);
            } else if (!strcmp(*name, "ibv_wr_opcode_str")) {
                CHECK("V18", !strcmp(((const char *(*)(int))found)(0), "unknown"), "%s", *name);
            } else {
                int refused = ((int (*)(void *))found)(NULL);
                CHECK("V18", refused == EOPNOTSUPP && errno == EOPNOTSUPP, "%s: %d", *name, refused);
            }
            known++;
        }
    }
    CHECK("V18", known == 15 * 91, "%d calls", known);
}
int main(int count, char **words) {
    if (count < 2)
        return 2;
    void *first = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    CHECK("V3", first, "%s", dlerror());
    if (!first)
        return finish();
    bool is_verbs = strstr(words[1], "verbs");
    void *second = dlopen(is_verbs ? "librdmacm.so.1" : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK("V3", second, "%s", dlerror());
    if (!second)
        return finish();
    void *verbs = is_verbs ? first : second, *cm = is_verbs ? second : first;
    /* A function of each, through both handles. */
    static const char *const BOTH[][2] = {{"ibv_alloc_pd", "IBVERBS_1.1"},
                                          {"ibv_alloc_pd", "IBVERBS_1.0"},
                                          {"rdma_getaddrinfo", "RDMACM_1.0"},
                                          {"rdma_establish", "RDMACM_1.2"}};
    for (unsigned n = 0; n < 4; n++) {
        void *found = dlvsym(cm, BOTH[n][0], BOTH[n][1]);
        CHECK("V3", found && found == dlvsym(verbs, BOTH[n][0], BOTH[n][1]), "%s", BOTH[n][0]);
        CHECK("V3", dlsym(cm, BOTH[n][0]) == dlsym(verbs, BOTH[n][0]), "%s", BOTH[n][0]);
    }
    CHECK("V11", dlsym(verbs, "ibv_alloc_pd") == dlvsym(verbs, "ibv_alloc_pd", "IBVERBS_1.1"),
          "another default version");
    /* A single engine: the contexts of rdma_cm are of the device that the list has, which is one. */
    struct ibv_device **(*list_of)(int *) = dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");
    struct ibv_context *(*open_it)(struct ibv_device *) = dlvsym(verbs, "ibv_open_device", "IBVERBS_1.1");
    int (*close_it)(struct ibv_context *) = dlvsym(verbs, "ibv_close_device", "IBVERBS_1.1");
    struct ibv_context **(*devices_of)(int *) = dlvsym(cm, "rdma_get_devices", "RDMACM_1.0");
    int n = 0, m = 0;
    struct ibv_device **list = MADE(list_of(&n));
    struct ibv_context **devices = MADE(devices_of(&m));
    CHECK("V3", n == 1 && m == 1 && devices[0]->device == list[0], "%d and %d devices", n, m);
    struct ibv_context *context = MADE(open_it(list[0]));
    vendors(verbs, words + 2, context);
    struct ibv_device **again = MADE(list_of(&n));
    CHECK("V6", n == 1 && again[0] == list[0] && !again[1], "%d devices", n);
    CHECK("V6", !strcmp(list[0]->name, "transom0"), "%s", list[0]->name);
    SUCCEEDS(close_it(context));
    return finish();
}
