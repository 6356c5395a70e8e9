/* For programs that include <synchapi.h>. */
#ifndef TRANSOM_FORWARD_SYNCHAPI_H
#define TRANSOM_FORWARD_SYNCHAPI_H
#include "transom_win32.h"

#endif
