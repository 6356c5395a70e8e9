/*
 * Part of transom_win32.h: wide strings, wide output, wide main.
 *
 * Windows programs mix printf and wprintf on one stream, and mean a wide string by %s in a wide format.
 * A C library stream has one orientation for life and %s is narrow, so wide output is formatted here
 * and written as UTF-8 bytes.
 */
#ifndef TRANSOM_WIN32_TEXT_H
#define TRANSOM_WIN32_TEXT_H

#ifndef TRANSOM_WIN32_H
#error "include transom_win32.h"
#endif

namespace transom_win32 {
inline void append_utf8(std::string &out, unsigned long c)
{
    if (c < 0x80)
        out += static_cast<char>(c);
    else if (c < 0x800)
        (out += static_cast<char>(0xC0 | (c >> 6))) += static_cast<char>(0x80 | (c & 0x3F));
    else if (c < 0x10000)
        ((out += static_cast<char>(0xE0 | (c >> 12))) += static_cast<char>(0x80 | ((c >> 6) & 0x3F))) +=
            static_cast<char>(0x80 | (c & 0x3F));
    else
        (((out += static_cast<char>(0xF0 | ((c >> 18) & 7))) += static_cast<char>(0x80 | ((c >> 12) & 0x3F))) +=
         static_cast<char>(0x80 | ((c >> 6) & 0x3F))) += static_cast<char>(0x80 | (c & 0x3F));
}
inline std::string narrow(const wchar_t *wide)
{
    std::string out;
    for (; wide && *wide; ++wide)
        append_utf8(out, static_cast<unsigned long>(*wide));
    return out;
}
inline std::wstring widen(const char *text)
{
    std::wstring out;
    const unsigned char *p = reinterpret_cast<const unsigned char *>(text);
    while (p && *p) {
        unsigned long c = *p++;
        int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;
        c &= more == 3 ? 0x07 : more == 2 ? 0x0F : more == 1 ? 0x1F : 0xFF;
        for (; more > 0 && (*p & 0xC0) == 0x80; --more)
            c = (c << 6) | (*p++ & 0x3F);
        out += static_cast<wchar_t>(c);
    }
    return out;
}
/* A wide format in Microsoft's dialect, as the C library understands it. */
inline std::wstring format(const wchar_t *text)
{
    std::wstring out;
    while (*text) {
        out += *text;
        if (*text++ != L'%')
            continue;
        while (*text && std::wcschr(L"-+ #0123456789.*", *text))
            out += *text++;
        if (std::wcsncmp(text, L"I64", 3) == 0) {
            out += L"ll";
            text += 3;
        } else if (std::wcsncmp(text, L"I32", 3) == 0) {
            text += 3;
        } else if (*text == L'I') {
            out += L"z";
            ++text;
        } else if (*text == L'h' && (text[1] == L's' || text[1] == L'c')) {
            ++text;
            out += *text++;
        } else if (*text == L's' || *text == L'c') {
            out += L'l';
            out += *text++;
        } else if (*text == L'S' || *text == L'C') {
            out += *text++ == L'S' ? L's' : L'c';
        } else if (*text == L'%') {
            out += *text++;
        }
    }
    return out;
}
inline std::wstring vformat(const wchar_t *text, va_list arguments)
{
    const std::wstring pattern = format(text);
    for (size_t room = 256; room <= (size_t(1) << 24); room *= 4) {
        std::wstring out(room, L'\0');
        va_list copy;
        va_copy(copy, arguments);
        const int written = std::vswprintf(&out[0], room, pattern.c_str(), copy);
        va_end(copy);
        if (written >= 0) {
            out.resize(static_cast<size_t>(written));
            return out;
        }
    }
    return std::wstring();
}
inline int print(std::FILE *file, const wchar_t *text, ...)
{
    va_list arguments;
    va_start(arguments, text);
    const std::string bytes = narrow(vformat(text, arguments).c_str());
    va_end(arguments);
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    return static_cast<int>(bytes.size());
}
inline int print_to(wchar_t *out, size_t room, const wchar_t *text, ...)
{
    va_list arguments;
    va_start(arguments, text);
    const std::wstring wide = vformat(text, arguments);
    va_end(arguments);
    if (room == 0 || wide.size() >= room)
        return -1;
    std::wmemcpy(out, wide.c_str(), wide.size() + 1);
    return static_cast<int>(wide.size());
}
} // namespace transom_win32

#define wprintf(...) transom_win32::print(stdout, __VA_ARGS__)
#define fwprintf(file, ...) transom_win32::print(file, __VA_ARGS__)
#define swprintf_s(out, room, ...) transom_win32::print_to(out, room, __VA_ARGS__)
#define _snwprintf(out, room, ...) transom_win32::print_to(out, room, __VA_ARGS__)

inline int _wcsicmp(const wchar_t *a, const wchar_t *b) { return ::wcscasecmp(a, b); }
inline int _wcsnicmp(const wchar_t *a, const wchar_t *b, size_t n) { return ::wcsncasecmp(a, b, n); }
inline long _wtol(const wchar_t *text) { return std::wcstol(text, nullptr, 10); }
inline int _wtoi(const wchar_t *text) { return static_cast<int>(_wtol(text)); }
inline std::FILE *_wfopen(const wchar_t *path, const wchar_t *mode)
{
    return std::fopen(transom_win32::narrow(path).c_str(), transom_win32::narrow(mode).c_str());
}
inline std::FILE *_wfreopen(const wchar_t *path, const wchar_t *mode, std::FILE *file)
{
    return std::freopen(transom_win32::narrow(path).c_str(), transom_win32::narrow(mode).c_str(), file);
}
inline int _fcloseall() { return ::fcloseall(); }
inline int wcscpy_s(wchar_t *out, size_t room, const wchar_t *text)
{
    const size_t length = std::wcslen(text);
    if (length >= room)
        return ERANGE;
    std::wmemcpy(out, text, length + 1);
    return 0;
}
template <size_t N> inline int wcscpy_s(wchar_t (&out)[N], const wchar_t *text) { return wcscpy_s(out, N, text); }
inline int strcpy_s(char *out, size_t room, const char *text)
{
    const size_t length = std::strlen(text);
    if (length >= room)
        return ERANGE;
    std::memcpy(out, text, length + 1);
    return 0;
}
template <size_t N> inline int strcpy_s(char (&out)[N], const char *text) { return strcpy_s(out, N, text); }
inline int memcpy_s(void *out, size_t room, const void *from, size_t size)
{
    if (size > room)
        return ERANGE;
    std::memcpy(out, from, size);
    return 0;
}
#define sprintf_s snprintf
#define lstrcmpiW _wcsicmp
#define lstrlenW wcslen

/*
 * A program that starts at wmain. Both names become macros that take the parameter list and define main
 * in front of it.
 */
namespace transom_win32 {
template <class Arguments> struct Start {
    static int run(int argc, char **argv, int (*start)(int, Arguments))
    {
        std::wstring *text = new std::wstring[static_cast<size_t>(argc)];
        wchar_t **wide = new wchar_t *[static_cast<size_t>(argc) + 1];
        for (int i = 0; i < argc; ++i)
            wide[i] = &(text[i] = widen(argv[i]))[0];
        wide[argc] = nullptr;
        const int result = start(argc, const_cast<Arguments>(wide));
        delete[] wide;
        delete[] text;
        return result;
    }
};
inline int start(int argc, char **argv, int (*wide_main)(int, wchar_t **))
{
    return Start<wchar_t **>::run(argc, argv, wide_main);
}
inline int start(int argc, char **argv, int (*wide_main)(int, const wchar_t **))
{
    return Start<const wchar_t **>::run(argc, argv, reinterpret_cast<int (*)(int, const wchar_t **)>(wide_main));
}
inline int start(int, char **, int (*wide_main)()) { return wide_main(); }
} // namespace transom_win32
#define wmain(...)                                                                                     \
    transom_win32_wide_main(__VA_ARGS__);                                                              \
    int main(int argc, char **argv) { return transom_win32::start(argc, argv, &transom_win32_wide_main); } \
    int transom_win32_wide_main(__VA_ARGS__)

#endif
