/* For programs that include <inaddr.h>. */
#ifndef TRANSOM_FORWARD_INADDR_H
#define TRANSOM_FORWARD_INADDR_H
#include "transom_win32.h"

#endif
