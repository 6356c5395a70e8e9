/* For programs that include <initguid.h>. */
#ifndef TRANSOM_FORWARD_INITGUID_H
#define TRANSOM_FORWARD_INITGUID_H
#include "transom_win32.h"

#endif
