/* For programs that include <windef.h>. */
#ifndef TRANSOM_FORWARD_WINDEF_H
#define TRANSOM_FORWARD_WINDEF_H
#include "transom_win32.h"

#endif
