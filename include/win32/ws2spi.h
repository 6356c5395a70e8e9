/* For programs that include <ws2spi.h>. */
#ifndef TRANSOM_FORWARD_WS2SPI_H
#define TRANSOM_FORWARD_WS2SPI_H
#include "transom_win32.h"

#endif
