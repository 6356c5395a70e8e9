/* For programs that include <minwindef.h>. */
#ifndef TRANSOM_FORWARD_MINWINDEF_H
#define TRANSOM_FORWARD_MINWINDEF_H
#include "transom_win32.h"

#endif
