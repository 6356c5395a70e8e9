/* Each call that takes a path finds a file of the device's where TRANSOM_SYSFS says, and leaves other
 * files alone. Argument: the directory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILE_OF "/sys/class/infiniband/transom0/node_type"
#define DIRECTORY "/sys/class/infiniband/transom0"
#define LINK_OF "/sys/class/infiniband/transom0/link"
#define FOLDER "/devices/pci5452:00/5452:00:00.0"
#define CHARACTER "/dev/infiniband/uverbs0"

int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
int __xstat(int, const char *, struct stat *);
int __xstat64(int, const char *, struct stat64 *);
int __lxstat(int, const char *, struct stat *);
int __lxstat64(int, const char *, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);
char *__realpath_chk(const char *, char *, size_t);

static int failures;
#define CHECK(cond)                                                              \
    do {                                                                         \
        errno = 0;                                                               \
        if (!(cond)) {                                                           \
            failures++;                                                          \
            printf("FAIL line %d: %s (errno %d)\n", __LINE__, #cond, errno);     \
        }                                                                        \
    } while (0)
static int reads(int fd) {
    char text[16] = "";
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return count == 6 && !strcmp(text, "1: CA\n");
}
static int file_reads(FILE *file) {
    int fd = file ? dup(fileno(file)) : -1;
    if (file)
        fclose(file);
    return reads(fd);
}
static int is_device(const char *path) {
    return strstr(path, "/infiniband/transom0") != NULL;
}
static int seen(const char *path, const struct stat *about, int kind) {
    return about && (kind == FTW_D || kind == FTW_F) && is_device(path);
}
static int seen64(const char *path, const struct stat64 *about, int kind) {
    return about && (kind == FTW_D || kind == FTW_F) && is_device(path);
}
static int seen_at(const char *path, const struct stat *about, int kind, struct FTW *at) {
    return at && seen(path, about, kind);
}
static int seen_at64(const char *path, const struct stat64 *about, int kind, struct FTW *at) {
    return at && seen64(path, about, kind);
}
int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    char expected[PATH_MAX], found[PATH_MAX];
    snprintf(expected, sizeof expected, "%s" FOLDER "/infiniband/transom0/node_type", arguments[1]);
    struct stat s;
    struct stat64 l;
    struct statx x;
    CHECK(reads(open(FILE_OF, O_RDONLY)));
    CHECK(reads(open64(FILE_OF, O_RDONLY)));
    CHECK(reads(openat(AT_FDCWD, FILE_OF, O_RDONLY)));
    CHECK(reads(openat64(AT_FDCWD, FILE_OF, O_RDONLY)));
    CHECK(reads(__open_2(FILE_OF, O_RDONLY)));
    CHECK(reads(__open64_2(FILE_OF, O_RDONLY)));
    CHECK(reads(__openat_2(AT_FDCWD, FILE_OF, O_RDONLY)));
    CHECK(reads(__openat64_2(AT_FDCWD, FILE_OF, O_RDONLY)));
    CHECK(file_reads(fopen(FILE_OF, "r")));
    CHECK(file_reads(fopen64(FILE_OF, "r")));
    CHECK(stat(FILE_OF, &s) == 0 && s.st_size == 6);
    CHECK(stat64(FILE_OF, &l) == 0 && l.st_size == 6);
    CHECK(lstat(LINK_OF, &s) == 0 && S_ISLNK(s.st_mode));
    CHECK(lstat64(LINK_OF, &l) == 0 && S_ISLNK(l.st_mode));
    CHECK(fstatat(AT_FDCWD, FILE_OF, &s, 0) == 0 && s.st_size == 6);
    CHECK(fstatat64(AT_FDCWD, FILE_OF, &l, 0) == 0 && l.st_size == 6);
    CHECK(__xstat(1, FILE_OF, &s) == 0 && s.st_size == 6);
    CHECK(__xstat64(1, FILE_OF, &l) == 0 && l.st_size == 6);
    CHECK(__lxstat(1, LINK_OF, &s) == 0 && S_ISLNK(s.st_mode));
    CHECK(__lxstat64(1, LINK_OF, &l) == 0 && S_ISLNK(l.st_mode));
    CHECK(__fxstatat(1, AT_FDCWD, FILE_OF, &s, 0) == 0 && s.st_size == 6);
    CHECK(__fxstatat64(1, AT_FDCWD, FILE_OF, &l, 0) == 0 && l.st_size == 6);
    CHECK(statx(AT_FDCWD, FILE_OF, 0, STATX_SIZE, &x) == 0 && x.stx_size == 6);
    CHECK(access(FILE_OF, R_OK) == 0);
    CHECK(faccessat(AT_FDCWD, FILE_OF, R_OK, 0) == 0);
    DIR *directory = opendir(DIRECTORY);
    CHECK(directory != NULL);
    if (directory)
        closedir(directory);
    struct dirent **names;
    CHECK(scandir(DIRECTORY, &names, NULL, alphasort) == 5); /* two of them are . and .. */
    struct dirent64 **names64;
    CHECK(scandir64(DIRECTORY, &names64, NULL, alphasort64) == 5);
    CHECK(readlink(LINK_OF, found, sizeof found) == 9 && !strncmp(found, "node_type", 9));
    CHECK(readlinkat(AT_FDCWD, LINK_OF, found, sizeof found) == 9);
    CHECK(realpath(FILE_OF, found) == found && !strcmp(found, expected));
    CHECK(__realpath_chk(LINK_OF, found, sizeof found) == found && !strcmp(found, expected));
    char *canonical = canonicalize_file_name(LINK_OF);
    CHECK(canonical && !strcmp(canonical, expected));
    /* No attribute, of a file that is there (or none at all on this file system). */
    char name[64];
    CHECK(getxattr(FILE_OF, "user.none", found, 8) == -1 && errno != ENOENT);
    CHECK(lgetxattr(LINK_OF, "user.none", found, 8) == -1 && errno != ENOENT);
    CHECK(listxattr(FILE_OF, name, sizeof name) >= 0 || errno == EOPNOTSUPP || errno == ERANGE);
    CHECK(llistxattr(LINK_OF, name, sizeof name) >= 0 || errno == EOPNOTSUPP || errno == ERANGE);
    struct statfs f;
    struct statfs64 g;
    CHECK(statfs(FILE_OF, &f) == 0 && statfs64(FILE_OF, &g) == 0);
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(watch >= 0 && inotify_add_watch(watch, DIRECTORY, IN_CREATE) >= 0 && close(watch) == 0);
    glob_t paths;
    glob64_t paths64;
    CHECK(glob("/sys/class/infiniband/*/node_type", 0, NULL, &paths) == 0 && paths.gl_pathc == 1 &&
          reads(open(paths.gl_pathv[0], O_RDONLY)));
    CHECK(glob64(DIRECTORY "/n*", 0, NULL, &paths64) == 0 && paths64.gl_pathc == 1);
    CHECK(ftw(DIRECTORY, seen, 4) == 1 && ftw64(DIRECTORY, seen64, 4) == 1);
    CHECK(nftw(DIRECTORY, seen_at, 4, 0) == 1 && nftw64(DIRECTORY, seen_at64, 4, 0) == 1);
    /* The folder of the PCI device, above the device. */
    snprintf(expected, sizeof expected, "%s" FOLDER "/infiniband", arguments[1]);
    CHECK(realpath(DIRECTORY "/..", found) == found && !strcmp(found, expected));
    *strrchr(expected, '/') = 0;
    CHECK(realpath(DIRECTORY "/../..", found) == found && !strcmp(found, expected));
    CHECK(realpath(DIRECTORY "/device", found) == found && !strcmp(found, expected));
    CHECK(lstat("/sys" FOLDER, &s) == 0 && S_ISDIR(s.st_mode));
    CHECK(chdir(DIRECTORY "/../..") == 0 && getcwd(found, sizeof found) && !strcmp(found, expected));
    CHECK(chdir("/") == 0);
    /* UCX asks this of the device. */
    CHECK(stat(CHARACTER, &s) == 0 && S_ISCHR(s.st_mode) && access(CHARACTER, R_OK | W_OK) == 0);

    /* Files that are not there stay so, and other files are what they were. */
    CHECK(open(DIRECTORY "/none", O_RDONLY) == -1);
    /* Above the folder of the PCI devices the tree is the system's own. */
    struct stat own;
    CHECK(stat(DIRECTORY "/../../../..", &s) == 0 && stat("/sys/devices", &own) == 0 &&
          s.st_ino == own.st_ino);
    CHECK(stat("/sys/class/infiniband/../net/lo", &s) == 0 && stat("/sys/class/net/lo", &own) == 0 &&
          s.st_ino == own.st_ino);
    snprintf(found, sizeof found, "%s/new", arguments[1]);
    int fd = open(found, O_CREAT | O_EXCL | O_WRONLY, 0640);
    CHECK(fd >= 0 && fstat(fd, &s) == 0 && (s.st_mode & 0777) == 0640);
    CHECK(stat("/proc/self/status", &s) == 0 && stat(arguments[0], &s) == 0);

    /* A wrong address is an error; so is a path of the device's that goes on where there is no memory. */
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    char *fits = strcpy(pages + 4096 - sizeof FILE_OF, FILE_OF), *ends = pages + 4096 - 13;
    CHECK(reads(open(fits, O_RDONLY)) && access("", F_OK) == -1 && errno == ENOENT);
    memcpy(ends, "/sys/class/in", 13);
    const char *wrong[] = {NULL, (char *)8, (char *)~0ul, pages + 4096, ends};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(open(wrong[i], O_RDONLY) == -1 && errno == EFAULT);
        CHECK(stat(wrong[i], &s) == -1 && errno == EFAULT);
        CHECK(access(wrong[i], R_OK) == -1 && errno == EFAULT);
        CHECK(readlink(wrong[i], found, sizeof found) == -1 && errno == EFAULT);
        CHECK(fopen(wrong[i], "r") == NULL && errno == EFAULT);
    }
    unsetenv("TRANSOM_SYSFS");
    CHECK(access(FILE_OF, R_OK) == -1 && stat(CHARACTER, &s) == -1);
    printf("%d failures\n", failures);
    return failures != 0;
}
