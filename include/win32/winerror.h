/* For programs that include <winerror.h>. */
#ifndef TRANSOM_FORWARD_WINERROR_H
#define TRANSOM_FORWARD_WINERROR_H
#include "transom_win32.h"

#endif
