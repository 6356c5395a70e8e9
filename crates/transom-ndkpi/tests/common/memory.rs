//! Pages of this process, and lists of them.

use super::*;

/// Page-aligned memory of this process.
pub struct Pages {
    pub at: *mut u8,
    pub count: usize,
}

unsafe impl Send for Pages {}
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(count: usize) -> Pages {
        let layout = std::alloc::Layout::from_size_align(count * PAGE, PAGE).unwrap();
        Pages { at: unsafe { std::alloc::alloc_zeroed(layout) }, count }
    }
    pub fn page(&self, index: usize) -> *mut c_void {
        unsafe { self.at.add(index * PAGE) }.cast()
    }
    pub fn len(&self) -> usize {
        self.count * PAGE
    }
    pub fn bytes(&self) -> Vec<u8> {
        (0..self.len()).map(|i| unsafe { self.at.add(i).read_volatile() }).collect()
    }
    pub fn fill(&self, f: impl Fn(usize) -> u8) {
        (0..self.len()).for_each(|i| unsafe { self.at.add(i).write_volatile(f(i)) });
    }
    /// An MDL for all of it, where it lies.
    pub fn mdl(&self) -> List {
        List::new(self.at.expose_provenance() as u64, self.len()).built()
    }
    pub fn sge(&self, token: u32, offset: usize, length: u32) -> Sge {
        Sge { address: self.at.expose_provenance() as u64 + offset as u64, length, token }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.len(), PAGE).unwrap();
        unsafe { std::alloc::dealloc(self.at, layout) };
    }
}

/// An MDL that frees itself.
pub struct List(pub *mut Mdl);

impl List {
    pub fn new(address: u64, length: usize) -> List {
        let address = std::ptr::with_exposed_provenance_mut(address as usize);
        let mdl = unsafe { IoAllocateMdl(address, length as u32, 0, 0, std::ptr::null_mut()) };
        assert!(!mdl.is_null());
        List(mdl)
    }
    pub fn built(self) -> List {
        unsafe { MmBuildMdlForNonPagedPool(self.0) };
        self
    }
    pub fn over(self, pages: &[*mut c_void]) -> List {
        assert_eq!(unsafe { TransomBuildMdlForPages(self.0, pages.as_ptr(), pages.len()) }, 1);
        self
    }
    pub fn then(self, next: &List) -> List {
        unsafe { (*self.0).next = next.0 };
        self
    }
}

impl Drop for List {
    fn drop(&mut self) {
        unsafe { IoFreeMdl(self.0) };
    }
}
