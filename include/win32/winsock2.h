/* For programs that include <winsock2.h>. */
#ifndef TRANSOM_FORWARD_WINSOCK2_H
#define TRANSOM_FORWARD_WINSOCK2_H
#include "transom_win32.h"

#endif
