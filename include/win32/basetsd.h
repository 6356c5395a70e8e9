/* For programs that include <basetsd.h>. */
#ifndef TRANSOM_FORWARD_BASETSD_H
#define TRANSOM_FORWARD_BASETSD_H
#include "transom_win32.h"

#endif
