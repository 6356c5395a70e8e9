// The thirty-two easy-to-miss requirements of ND2 7.6, one case each: easy NN.
#include "easy_overlapped.h"
#include "easy_queues.h"
#include "easy_memory.h"
#include "easy_connections.h"
#include "easy_limits.h"

int main(int argc, char **argv)
{
    static void (*const cases[])() = {
        easy_01, easy_02, easy_03, easy_04, easy_05, easy_06, easy_07, easy_08, easy_09, easy_10,
        easy_11, easy_12, easy_13, easy_14, easy_15, easy_16, easy_17, easy_18,
        easy_19, easy_20, easy_21, easy_22, easy_23, easy_24, easy_25, easy_26, easy_27, easy_28,
        easy_29, easy_30, easy_31, easy_32};
    const int which = argc > 1 ? std::atoi(argv[1]) : 0;
    CHECK(which >= 1 && which <= (int)ARRAYSIZE(cases));
    cases[which - 1]();
    if (which != 26)
        CHECK_EQ(transom_nd_live_objects(), 0);
    return 0;
}
