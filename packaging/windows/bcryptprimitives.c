// Rust's standard library imports ProcessPrng from bcryptprimitives.dll, which Wine 8.0 lacks. Windows 10
// and later have it: this stand-in is for Wine only, and never shipped.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); // RtlGenRandom

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T count)
{
    return SystemFunction036(bytes, (ULONG)count);
}
