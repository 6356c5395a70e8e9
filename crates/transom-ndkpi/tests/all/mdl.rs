//! Memory descriptor lists: the layout of the original, filled in and taken apart (NDK 4.3).

use std::ffi::c_void;

use crate::common::*;
use transom_ndkpi::mdl::*;

fn at(address: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(address)
}

/// The page frame numbers that a list of so many pages has.
fn pfns(list: &List, count: usize) -> Vec<usize> {
    let array = MmGetMdlPfnArray(list.0);
    (0..count).map(|index| unsafe { array.add(index).read() }).collect()
}

/// NDK 4.3: a header of 48 bytes and one number for each page that the bytes touch.
#[test]
fn a_list_is_as_large_as_the_pages_it_spans() {
    for (address, length, pages) in [
        (0x5000, 0, 0),
        (0x5000, 1, 1),
        (0x5000, PAGE, 1),
        (0x5000, PAGE + 1, 2),
        (0x5fff, 1, 1),
        (0x5fff, 2, 2),
        (0x5123, 2 * PAGE, 3),
    ] {
        assert_eq!(MmSizeOfMdl(at(address), length), 48 + 8 * pages, "{length} at {address:#x}");
    }
}

#[test]
fn the_accessors_name_the_first_byte_and_the_count() {
    let list = List::new(0x7123, 5000);
    let mdl = unsafe { &*list.0 };
    assert_eq!((mdl.start_va, mdl.byte_offset, mdl.byte_count), (at(0x7000), 0x123, 5000));
    assert_eq!(MmGetMdlVirtualAddress(mdl), at(0x7123));
    assert_eq!((MmGetMdlByteCount(mdl), MmGetMdlByteOffset(mdl)), (5000, 0x123));
    assert_eq!((mdl.size, mdl.flags), (48 + 16, MDL_ALLOCATED));
    assert!(mdl.next.is_null());
    assert_eq!(MmGetMdlPfnArray(list.0).addr(), list.0.addr() + 48);
}

#[test]
fn a_list_of_a_buffer_names_its_own_pages() {
    let list = List::new(0x7123, 2 * PAGE).built();
    assert_eq!(pfns(&list, 3), [7, 8, 9]);
    let flags = unsafe { (*list.0).flags };
    assert_eq!(flags, MDL_ALLOCATED | MDL_SOURCE_IS_NONPAGED_POOL);
}

/// As many aligned pages as the list spans, or nothing is changed.
#[test]
fn pages_from_anywhere_are_as_many_as_it_spans() {
    let list = List::new(0x7123, 2 * PAGE);
    let build = |pages: &[usize]| {
        let pages: Vec<_> = pages.iter().map(|&page| at(page)).collect();
        unsafe { TransomBuildMdlForPages(list.0, pages.as_ptr(), pages.len()) }
    };
    for wrong in
        [&[0x1000, 0x2000][..], &[0x1000, 0x2000, 0x3000, 0x4000], &[0x1000, 0x2001, 0x3000]]
    {
        assert_eq!(build(wrong), 0);
        assert_eq!(unsafe { (*list.0).flags }, MDL_ALLOCATED, "not built");
    }
    assert_eq!(unsafe { TransomBuildMdlForPages(list.0, std::ptr::null(), 3) }, 0);
    assert_eq!(unsafe { TransomBuildMdlForPages(std::ptr::null_mut(), [at(0)].as_ptr(), 1) }, 0);
    assert_eq!(build(&[0x9000, 0x4000, 0x5000]), 1);
    assert_eq!(pfns(&list, 3), [9, 4, 5]);
    assert_eq!(unsafe { (*list.0).flags }, MDL_ALLOCATED | MDL_PAGES_LOCKED);
}

/// A part of another list: from an address of its, for so many bytes or (0) to its end, and never
/// behind that.
#[test]
fn a_partial_list_has_the_pages_of_its_source() {
    let pages = [0x9000, 0x4000, 0x5000].map(at);
    let source = List::new(0x7123, 2 * PAGE).over(&pages);
    for (from, asked, length, expected) in [
        (0x7123, 100, 100, &[9][..]),
        (0x7fff, 2, 2, &[9, 4]),
        (0x8000, 1, 1, &[4]),
        (0x8010, 0, 0x1113, &[4, 5]),
        (0x7123, 0, 0x2000, &[9, 4, 5]),
        (0x9000, 0x5000, 0x123, &[5]),
    ] {
        let part = List::new(0x7123, 2 * PAGE);
        let room = unsafe { (*part.0).process };
        unsafe { IoBuildPartialMdl(source.0, part.0, at(from), asked) };
        let mdl = unsafe { &*part.0 };
        assert_eq!(mdl.process, room, "IoFreeMdl frees all of it");
        assert_eq!(MmGetMdlVirtualAddress(mdl), at(from));
        assert_eq!(MmGetMdlByteCount(mdl), length, "{asked} from {from:#x}");
        assert_eq!(pfns(&part, expected.len()), expected, "{asked} from {from:#x}");
        assert_eq!(mdl.flags, MDL_PARTIAL | MDL_ALLOCATED, "and can be freed");
    }
    for outside in [0x7122, 0x9124] {
        let part = List::new(0x7123, 2 * PAGE);
        unsafe { IoBuildPartialMdl(source.0, part.0, at(outside), 1) };
        assert_eq!(unsafe { (*part.0).flags }, MDL_ALLOCATED, "nothing is built");
    }
}

/// A list in memory of the consumer's is not freed, and a partial one as a whole.
#[test]
fn lists_are_freed_by_their_allocator() {
    let mut room = [0_u64; 8];
    let mdl: *mut Mdl = room.as_mut_ptr().cast();
    unsafe {
        MmInitializeMdl(mdl, at(0x7123), 100);
        IoFreeMdl(mdl);
        IoFreeMdl(std::ptr::null_mut());
        assert_eq!(((*mdl).flags, (*mdl).byte_count), (0, 100));
        MmInitializeMdl(std::ptr::null_mut(), at(0x7123), 100);
    }
}

/// A header whose offset lies outside its page describes nothing.
#[test]
fn a_spoilt_header_is_not_registered() {
    in_every_mode(|mode| {
        let adapter = open(mode);
        let pd = pd(adapter);
        let (mr, pages) = (mr(pd), Pages::new(2));
        for spoil in [
            (|mdl| mdl.byte_offset = PAGE as u32) as fn(&mut Mdl),
            |mdl| mdl.flags = MDL_ALLOCATED, // not built
        ] {
            let list = pages.mdl();
            spoil(unsafe { &mut *list.0 });
            assert_eq!(register(mr, list.0, 8, 0).1, transom_ndkpi::Status::INVALID_PARAMETER);
        }
        close_all(&[mr, pd]);
        close_adapter(adapter);
    });
}
