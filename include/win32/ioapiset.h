/* For programs that include <ioapiset.h>. */
#ifndef TRANSOM_FORWARD_IOAPISET_H
#define TRANSOM_FORWARD_IOAPISET_H
#include "transom_win32.h"

#endif
