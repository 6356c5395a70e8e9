// llama.cpp's RPC backend: the server computes on its processor; the client gives it two tensors of 4 MiB, has them
// added, and compares what it gets. Words: server | client, ADDRESS:PORT.
#include <cstdio>
#include <cstring>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-rpc.h"
#include "ggml.h"

int main(int, char ** words) {
    if (!strcmp(words[1], "server")) {
        ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        ggml_backend_rpc_start_server(words[2], nullptr, 1, 1, &device);
        return 1;
    }
    const int64_t count = 1 << 20;
    ggml_backend_t backend = ggml_backend_rpc_init(words[2], 0);
    if (!backend) return 2;
    ggml_context * context = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor * a = ggml_new_tensor_1d(context, GGML_TYPE_F32, count);
    ggml_tensor * b = ggml_new_tensor_1d(context, GGML_TYPE_F32, count);
    ggml_tensor * sum = ggml_add(context, a, b);
    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, sum);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
    if (!buffer) return 3;
    std::vector<float> one(count), other(count), found(count);
    for (int round = 0; round < 10; round++) {
        for (int64_t i = 0; i < count; i++) {
            one[i] = float(i + round);
            other[i] = float(3 * (i % 1000));
        }
        ggml_backend_tensor_set(a, one.data(), 0, count * sizeof(float));
        ggml_backend_tensor_set(b, other.data(), 0, count * sizeof(float));
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) return 4;
        ggml_backend_tensor_get(sum, found.data(), 0, count * sizeof(float));
        for (int64_t i = 0; i < count; i++)
            if (found[i] != one[i] + other[i]) return 5;
    }
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    puts("10 rounds");
}
