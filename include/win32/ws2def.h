/* For programs that include <ws2def.h>. */
#ifndef TRANSOM_FORWARD_WS2DEF_H
#define TRANSOM_FORWARD_WS2DEF_H
#include "transom_win32.h"

#endif
