/* For programs that include <process.h>. */
#ifndef TRANSOM_FORWARD_PROCESS_H
#define TRANSOM_FORWARD_PROCESS_H
#include "transom_win32.h"

#endif
