/* For programs that include <strsafe.h>. */
#ifndef TRANSOM_FORWARD_STRSAFE_H
#define TRANSOM_FORWARD_STRSAFE_H
#include "transom_win32.h"

#endif
