/* For programs that include <ws2tcpip.h>. */
#ifndef TRANSOM_FORWARD_WS2TCPIP_H
#define TRANSOM_FORWARD_WS2TCPIP_H
#include "transom_win32.h"

#endif
