/* A program that is linked with the libraries of mlx5 and EFA asks whether the device is one of theirs. Each says no
 * by itself, and changes nothing. */
#include "common.h"
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
int main(void) {
    struct end e;
    struct ibv_device **list = MADE(ibv_get_device_list(NULL));
    CHECK("V19", !mlx5dv_is_supported(list[0]), "the device is said to be of mlx5");
    open_end(&e, MADE(ibv_open_device(list[0])), ALL);
    struct mlx5dv_context of_mlx5 = {0};
    int said = mlx5dv_query_device(e.ctx, &of_mlx5);
    CHECK("V19", said == EOPNOTSUPP, "%d", said);
    struct efadv_device_attr of_efa;
    said = efadv_query_device(e.ctx, &of_efa, sizeof of_efa);
    CHECK("V19", said == EOPNOTSUPP, "%d", said);
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .send_cq = e.scq, .recv_cq = e.rcq, .cap = {1, 1, 1, 1, 0}, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = e.pd};
    NULLS("V19", mlx5dv_create_qp(e.ctx, &init, NULL), EOPNOTSUPP);
    struct efadv_qp_init_attr datagrams = {0};
    NULLS("V19", efadv_create_qp_ex(e.ctx, &init, &datagrams, sizeof datagrams), EOPNOTSUPP);
    struct mlx5dv_cq_init_attr queue = {0};
    struct ibv_cq_init_attr_ex entries = {.cqe = 4};
    NULLS("V19", mlx5dv_create_cq(e.ctx, &entries, &queue), EOPNOTSUPP);
    struct ibv_context *opened = mlx5dv_open_device(list[0], &(struct mlx5dv_context_attr){0});
    CHECK("V19", !opened, "the device is opened as one of mlx5");
    ibv_free_device_list(list);
    return finish();
}
