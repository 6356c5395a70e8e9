/* For programs that include <guiddef.h>. */
#ifndef TRANSOM_FORWARD_GUIDDEF_H
#define TRANSOM_FORWARD_GUIDDEF_H
#include "transom_win32.h"

#endif
