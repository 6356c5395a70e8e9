/* For programs that include <specstrings.h>. */
#ifndef TRANSOM_FORWARD_SPECSTRINGS_H
#define TRANSOM_FORWARD_SPECSTRINGS_H
#include "transom_win32.h"

#endif
