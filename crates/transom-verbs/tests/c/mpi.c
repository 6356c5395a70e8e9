/* A program of MPI: every size in both directions at once, and a reduction. Each byte is compared. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int n = 1; n <= 1 << 22; n *= 8) {
        char *out = malloc(n), *in = malloc(n);
        for (int round = 0; round < 10; round++) {
            memset(out, rank * 16 + round, n);
            MPI_Sendrecv(out, n, MPI_CHAR, to, 1, in, n, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            for (int i = 0; i < n; i++)
                wrong += in[i] != (char)(from * 16 + round);
        }
        free(out);
        free(in);
    }
    int mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != size * (size + 1) / 2;
    if (wrong)
        printf("rank %d of %d: %d bytes are wrong, sum %d\n", rank, size, wrong, sum);
    MPI_Finalize();
    return wrong != 0;
}
