/* For programs that include <crtdbg.h>. */
#ifndef TRANSOM_FORWARD_CRTDBG_H
#define TRANSOM_FORWARD_CRTDBG_H
#include "transom_win32.h"

#endif
