/* For programs that include <processthreadsapi.h>. */
#ifndef TRANSOM_FORWARD_PROCESSTHREADSAPI_H
#define TRANSOM_FORWARD_PROCESSTHREADSAPI_H
#include "transom_win32.h"

#endif
