//! Pages that vanish, for tests.

use std::cell::Cell;
use std::ffi::c_void;
use std::os::windows::io::AsRawHandle;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, FILE_MAP_WRITE, MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE,
    MEM_RESERVE, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_NOACCESS, PAGE_READONLY,
    PAGE_READWRITE, UnmapViewOfFile, VirtualAlloc, VirtualFree, VirtualProtect,
};

/// A page, to these tests, is the least that can be mapped and unmapped by itself.
pub(super) const PAGE: usize = 64 * 1024;

/// Two pages, of which the second one is taken away in some manner.
pub(super) struct Pages {
    base: *mut u8,
    /// A view of a file.
    view: bool,
    /// The second page has been released, and may be another thread's now.
    released: Cell<bool>,
}

/// A name, and how two pages come about of which the second one has gone.
type Way = (&'static str, fn() -> Pages);

/// The ways in which a page vanishes: two pages of which the second one has gone.
pub(super) const WAYS: &[Way] = &[
    ("released", || {
        let pages = Pages::new();
        pages.unmap_second();
        pages
    }),
    ("protected", || {
        let pages = Pages::new();
        pages.protect_second(false);
        pages
    }),
    ("decommitted", || {
        let pages = Pages::new();
        // SAFETY: the second page is ours and no reference to it exists.
        let done = unsafe { VirtualFree(pages.second(), PAGE, MEM_DECOMMIT) };
        assert_ne!(done, 0);
        pages
    }),
    ("file cut short", Pages::of_short_file),
];

fn allocate(at: *const c_void, length: usize) -> *mut c_void {
    // SAFETY: fresh memory, where nothing is.
    unsafe { VirtualAlloc(at, length, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) }
}

impl Pages {
    /// Two allocations side by side, because memory is released as it was allocated.
    pub(super) fn new() -> Pages {
        for _ in 0..1000 {
            let both = allocate(null(), 2 * PAGE);
            assert!(!both.is_null());
            // SAFETY: allocated just now.
            unsafe { VirtualFree(both, 0, MEM_RELEASE) };
            let (first, second) =
                (allocate(both, PAGE), allocate(both.wrapping_byte_add(PAGE), PAGE));
            if first == both && second == both.wrapping_byte_add(PAGE) {
                return Pages { base: both.cast(), view: false, released: Cell::new(false) };
            }
            // Another thread was quicker.
            for one in [first, second].into_iter().filter(|one| !one.is_null()) {
                // SAFETY: allocated just now.
                unsafe { VirtualFree(one, 0, MEM_RELEASE) };
            }
        }
        panic!("no two pages side by side");
    }

    /// A view of a file that another program cuts short. Windows lets no program do that to a mapped file,
    /// except on another machine, whose disk this one uses; Wine cannot keep Linux's programs from it.
    fn of_short_file() -> Pages {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("transom-cut-{}-{next}", std::process::id());
        let path = format!(r"\\?\unix\tmp\{name}");
        let made = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let Ok(file) = made else {
            eprintln!("not shown: a mapped file that is cut short, because this is not Wine");
            let pages = Pages::new();
            pages.unmap_second();
            return pages;
        };
        file.set_len(2 * PAGE as u64).unwrap();
        // SAFETY: a fresh view, which outlives the handle of its section.
        let base = unsafe {
            let section =
                CreateFileMappingW(file.as_raw_handle(), null(), PAGE_READWRITE, 0, 0, null());
            assert!(!section.is_null());
            let view = MapViewOfFile(section, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, 0).Value;
            CloseHandle(section);
            assert!(!view.is_null());
            view
        };
        let mut cut = std::process::Command::new(r"\\?\unix\usr\bin\truncate");
        // Wine starts a program of Linux's, and has no handle of it to wait for.
        let _ = cut.args(["-s", &PAGE.to_string(), &format!("/tmp/{name}")]).status();
        while file.metadata().unwrap().len() != PAGE as u64 {
            std::thread::yield_now();
        }
        std::fs::remove_file(path).unwrap();
        Pages { base: base.cast(), view: true, released: Cell::new(true) }
    }

    fn second(&self) -> *mut c_void {
        self.base.wrapping_add(PAGE).cast()
    }

    pub(super) fn at(&self, offset: usize) -> u64 {
        self.base as u64 + offset as u64
    }

    pub(super) fn unmap_second(&self) {
        // SAFETY: the second page is an allocation of ours, and no reference to it exists.
        let done = unsafe { VirtualFree(self.second(), 0, MEM_RELEASE) };
        assert_ne!(done, 0);
        self.released.set(true);
    }

    /// Take the right to write from the second page, and that to read unless it stays `readable`.
    pub(super) fn protect_second(&self, readable: bool) {
        let (to, mut before) = (if readable { PAGE_READONLY } else { PAGE_NOACCESS }, 0);
        // SAFETY: as above.
        let done = unsafe { VirtualProtect(self.second(), PAGE, to, &raw mut before) };
        assert_ne!(done, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if !self.released.get() {
            self.unmap_second();
        }
        // SAFETY: ours, and no reference to it exists.
        unsafe {
            if self.view {
                UnmapViewOfFile(MEMORY_MAPPED_VIEW_ADDRESS { Value: self.base.cast() });
            } else {
                VirtualFree(self.base.cast(), 0, MEM_RELEASE);
            }
        }
    }
}
