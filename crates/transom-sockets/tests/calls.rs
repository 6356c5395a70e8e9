//! Every call of the C library by which bytes of a descriptor move, threads wait for one, or descriptors get
//! another number: the library takes it, or there is a reason why it need not.
#![allow(unsafe_code, clippy::unwrap_used, clippy::panic)] // tests

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use object::Endianness;
use object::elf::{FileHeader64, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::FileHeader as _;
use transom_sockets as _;

/// Parts of names of calls that may do so: no exported call with one of them is left out below.
const PARTS: &str = "read write send recv splice tee file_range poll select dup fcntl ioctl close fork clone exec \
     spawn system popen aio lio print put gets getc getw getline getdelim scanf flush socket \
     accept connect listen shutdown sockopt sockatmark fdopen freopen fileno syscall daemon \
     login_tty pty pidfd _fd msg mmap svc rcmd";

/// Calls that the library has, those of `-D_FORTIFY_SOURCE`, of 64-bit files and second names included.
const TAKEN: &str = "socket listen accept accept4 connect __connect shutdown close __close close_range closefrom \
     dup dup2 __dup2 dup3 fcntl fcntl64 __fcntl ioctl setsockopt getsockopt sockatmark pidfd_getfd \
     read __read __read_chk readv preadv2 preadv64v2 recv __recv_chk recvfrom __recvfrom_chk \
     recvmsg recvmmsg eventfd_read write __write writev pwritev2 pwritev64v2 send __send sendto \
     sendmsg sendmmsg eventfd_write dprintf __dprintf_chk vdprintf __vdprintf_chk \
     backtrace_symbols_fd __backtrace_symbols_fd sendfile sendfile64 splice aio_read aio_read64 \
     aio_write aio_write64 lio_listio lio_listio64 poll __poll __poll_chk ppoll __ppoll_chk select \
     __select pselect epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 \
     fdopen _IO_fdopen fclose _IO_fclose freopen freopen64 fileno fileno_unlocked syscall \
     execve execveat execv execvp execvpe fexecve execl execlp execle posix_spawn posix_spawnp \
     pidfd_spawn pidfd_spawnp system popen _IO_popen daemon login_tty forkpty getpeername \
     pthread_cancel";

/// Why the library need not have the others. A star stands for any end of a name, or any beginning.
const OTHERS: &[(&str, &str)] = &[
    (
        "works on a stream: one that `fdopen` makes of a switched connection uses this library's \
         calls, and a connection of which a stream was made before stays with TCP",
        "fprintf __fprintf_chk vfprintf __vfprintf_chk printf __printf_chk vprintf __vprintf_chk \
         wprintf __wprintf_chk vwprintf __vwprintf_chk fwprintf __fwprintf_chk vfwprintf \
         __vfwprintf_chk put* fput* fget* get* _IO_* fread* fwrite* fflush* fcloseall pclose scanf \
         fscanf vscanf vfscanf wscanf fwscanf vwscanf vfwscanf __isoc99_* __isoc23_* __vfscanf \
         ungetc ungetwc __fget* __fread* __gets_chk __getdelim _flushlbf __printf_fp printf_size* \
         fmtmsg svc*",
    ),
    (
        "touches memory only",
        "__getcwd_chk __getwd_chk sprintf snprintf asprintf vsprintf vsnprintf vasprintf swprintf \
         vswprintf sscanf vsscanf swscanf vswscanf __sprintf_chk __snprintf_chk __vsprintf_chk \
         __vsnprintf* __asprintf* __vasprintf_chk __swprintf_chk __vswprintf_chk __vsscanf \
         obstack_* __obstack_* register_printf_* parse_printf_format *isprint* iswprint* \
         __iswprint_l str* __str* wcs* duplocale __duplocale re_exec regexec __fdelt_* \
         __cmsg_nxthdr sig* sget* pthread_* __pthread_* _pthread_* __register_atfork __cxa_* \
         iconv_close dlclose posix_spawn_* posix_spawnattr_* aio_cancel* aio_error* aio_return* \
         aio_suspend* aio_fsync* aio_init xdr_* clnt_* __rpc_* sched_* __sched_* clock_* mmap* \
         __mmap sem_* process_vm_* verrx msg* memmem putenv",
    ),
    (
        "has a place in a file, which a socket has not: ESPIPE",
        "pread pread64 __pread* preadv preadv64 pwrite pwrite64 __pwrite64 pwritev pwritev64",
    ),
    (
        "is for files, folders or pipes: the kernel takes no socket",
        "tee vmsplice copy_file_range sync_file_range readahead readdir* readlink* __readlink* \
         closedir fdopendir fts*",
    ),
    (
        "has descriptors of its own",
        "res_send res_nsend __res_* rexec* rcmd* catclose catgets closelog mq_* openpty socketpair \
         pidfd_open pidfd_send_signal pidfd_getpid",
    ),
    ("is for terminals", "tc*"),
    ("does nothing on Linux", "bdflush putmsg putpmsg"),
    (
        "makes a process: the first call of the library in it notices (`process::generation`)",
        "fork vfork __vfork clone __clone __fork",
    ),
];

fn is_like(name: &str, pattern: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(begin), None) => name.starts_with(begin),
        (None, Some(end)) => name.ends_with(end),
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (None, None) => name == pattern,
    }
}

/// The path of the object that has an address.
fn object_of(at: *const libc::c_void) -> CString {
    // SAFETY: zeros are a value of the structure, and the name in it is the loader's.
    unsafe {
        let mut about: libc::Dl_info = std::mem::zeroed();
        assert!(libc::dladdr(at, &raw mut about) != 0);
        CStr::from_ptr(about.dli_fname).to_owned()
    }
}

/// Functions that the installed C library exports for programs: none of its private ones.
fn exported() -> BTreeSet<String> {
    let path = object_of(libc::gnu_get_libc_version as *const libc::c_void);
    let bytes = std::fs::read(path.to_str().unwrap()).unwrap();
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let symbols = sections.symbols(endian, &*bytes, object::elf::SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap().unwrap();
    let mut names = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let function = [STT_FUNC, STT_GNU_IFUNC].contains(&symbol.st_type());
        let version = versions.version(versions.version_index(endian, index)).unwrap();
        let private = version.is_none_or(|version| version.name() == b"GLIBC_PRIVATE");
        if function && !private && symbol.st_shndx.get(endian) != 0 {
            names.insert(
                String::from_utf8(symbols.symbol_name(endian, symbol).unwrap().to_vec()).unwrap(),
            );
        }
    }
    names
}

/// WSD W27.
#[test]
fn w27_every_call_that_moves_bytes_is_the_librarys_or_has_a_reason() {
    let library = std::env::current_exe().unwrap().with_file_name("libtransom_sockets.so");
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string; the library does nothing to this process when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{} cannot be loaded", library.display());
    let is_ours = |call: &str| {
        let name = CString::new(call).unwrap();
        // SAFETY: the handle is that of a library which stays loaded; the name is a C string.
        let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
        !at.is_null() && object_of(at).to_bytes().ends_with(b"libtransom_sockets.so")
    };
    let taken: BTreeSet<&str> = TAKEN.split(' ').collect();
    let exported = exported();
    assert!(exported.contains("recvmsg") && exported.len() > 1500, "{} names", exported.len());
    let reason = |name: &str| {
        OTHERS.iter().find(|(_, names)| names.split(' ').any(|pattern| is_like(name, pattern)))
    };
    let mut wrong = Vec::new();
    for name in exported.iter().filter(|name| PARTS.split(' ').any(|part| name.contains(part))) {
        match (taken.contains(name.as_str()), is_ours(name)) {
            (true, false) => wrong.push(format!("{name} is not the library's")),
            (false, true) => wrong.push(format!("{name} is the library's, and not in the list")),
            (false, false) if reason(name).is_none() => wrong.push(format!("{name} has no reason")),
            _ => {}
        }
    }
    wrong.extend(
        taken.iter().filter(|name| !is_ours(name)).map(|name| format!("{name} is missing")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
