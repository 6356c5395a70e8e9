//! Pages of this process, and lists of them.

use super::*;

pub use transom_testing::Pages;

/// Pages as the interface describes them.
pub trait Describe {
    fn page(&self, index: usize) -> *mut c_void;
    /// An MDL for all of it, where it lies.
    fn mdl(&self) -> List;
    fn sge(&self, token: u32, offset: usize, length: u32) -> Sge;
}

impl Describe for Pages {
    fn page(&self, index: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.address() as usize + index * PAGE)
    }
    fn mdl(&self) -> List {
        List::new(self.address(), self.len()).built()
    }
    fn sge(&self, token: u32, offset: usize, length: u32) -> Sge {
        Sge { address: self.address() + offset as u64, length, token }
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
