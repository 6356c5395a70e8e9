/* For programs that include <objbase.h>. */
#ifndef TRANSOM_FORWARD_OBJBASE_H
#define TRANSOM_FORWARD_OBJBASE_H
#include "transom_win32.h"
#include "unknwn.h"
#endif
