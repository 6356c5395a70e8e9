/* For programs that include <tchar.h>: the names that mean wide strings in a Unicode build. */
#ifndef TRANSOM_FORWARD_TCHAR_H
#define TRANSOM_FORWARD_TCHAR_H
#include "transom_win32.h"

#define _T(x) L##x
#define TEXT(x) L##x
#define _TEXT(x) L##x
#define _tmain wmain
#define _tcscmp wcscmp
#define _tcsncmp wcsncmp
#define _tcsicmp _wcsicmp
#define _tcsnicmp _wcsnicmp
#define _tcslen wcslen
#define _tcschr wcschr
#define _tcsrchr wcsrchr
#define _tcsstr wcsstr
#define _tcscpy wcscpy
#define _tcscpy_s wcscpy_s
#define _tcstol wcstol
#define _tcstoul wcstoul
#define _ttol _wtol
#define _ttoi _wtoi
#define _tfopen _wfopen
#define _tfreopen _wfreopen
#define _tprintf wprintf
#define _ftprintf fwprintf
#define _stprintf_s swprintf_s
#endif
