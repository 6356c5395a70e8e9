/* For programs that include <mswsock.h>. */
#ifndef TRANSOM_FORWARD_MSWSOCK_H
#define TRANSOM_FORWARD_MSWSOCK_H
#include "transom_win32.h"

#endif
