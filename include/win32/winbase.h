/* For programs that include <winbase.h>. */
#ifndef TRANSOM_FORWARD_WINBASE_H
#define TRANSOM_FORWARD_WINBASE_H
#include "transom_win32.h"

#endif
