/* For programs that include <winnt.h>. */
#ifndef TRANSOM_FORWARD_WINNT_H
#define TRANSOM_FORWARD_WINNT_H
#include "transom_win32.h"

#endif
