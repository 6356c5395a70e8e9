/* For programs that include <combaseapi.h>. */
#ifndef TRANSOM_FORWARD_COMBASEAPI_H
#define TRANSOM_FORWARD_COMBASEAPI_H
#include "transom_win32.h"
#include "unknwn.h"
#endif
