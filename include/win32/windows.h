/* For programs that include <windows.h>. */
#ifndef TRANSOM_FORWARD_WINDOWS_H
#define TRANSOM_FORWARD_WINDOWS_H
#include "transom_win32.h"

#endif
