//! Copies to memory that another process reads next.
//!
//! Many bytes are stored past the cache: an ordinary store fetches its line first, from the processor that has read
//! the line before, and leaves a copy behind that the reader fetches in turn.

/// The fewest bytes that gain by such a copy. With fewer the reader waits longer for its memory than both processors
/// wait for lines of each other's cache, where these are near; far ones would gain from 512 bytes on.
pub const LEAST: usize = 4096;

// rdi = destination, rsi = source, rdx = count, at least 64. Returns what was not copied: rcx of the part under way,
// and r8 behind it. First come the bytes in front of a whole line, then lines, then the rest. A fault in a line resumes
// at the rest, which repeats the line byte by byte up to the byte that faults; another one resumes at the end.
std::arch::global_asm!(
    ".pushsection .text.transom_share,\"ax\",@progbits",
    ".hidden __transom_share_0_1",
    ".globl __transom_share_0_1",
    ".hidden __transom_share_0_1_lines",
    ".globl __transom_share_0_1_lines",
    ".hidden __transom_share_0_1_rest",
    ".globl __transom_share_0_1_rest",
    ".hidden __transom_share_0_1_end",
    ".globl __transom_share_0_1_end",
    ".p2align 5",
    "__transom_share_0_1:",
    "mov rcx, rdi",
    "neg rcx",
    "and rcx, 63",
    "mov r8, rdx",
    "sub r8, rcx",
    "rep movsb",
    "mov rcx, r8",
    "xor r8d, r8d",
    "__transom_share_0_1_lines:",
    "cmp rcx, 64",
    "jb __transom_share_0_1_rest",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movntps [rdi], xmm0",
    "movntps [rdi + 16], xmm1",
    "movntps [rdi + 32], xmm2",
    "movntps [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rcx, 64",
    "jmp __transom_share_0_1_lines",
    "__transom_share_0_1_rest:",
    "rep movsb",
    "__transom_share_0_1_end:",
    "lea rax, [rcx + r8]",
    "ret",
    ".popsection",
);

unsafe extern "sysv64" {
    fn __transom_share_0_1(to: *mut u8, from: *const u8, count: usize) -> usize;
    static __transom_share_0_1_lines: u8;
    static __transom_share_0_1_rest: u8;
    static __transom_share_0_1_end: u8;
}

/// Copy `count` bytes, at least [`LEAST`], past the cache; how many were copied. All of these are there before any
/// later store of this thread.
///
/// # Safety
/// Both addresses may be read and written for `count` bytes, or fault; then [`resume`] is among the routines of
/// [`signals::recheck`](crate::signals::recheck). No reference to what is written exists.
#[must_use]
pub unsafe fn copy(from: *const u8, to: *mut u8, count: usize) -> usize {
    // SAFETY: the caller's; a fault at either side ends the copy.
    let left = unsafe { __transom_share_0_1(to, from, count) };
    // Stores past the cache are ordered by this alone, whether or not the copy has faulted.
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_mm_sfence() };
    count - left
}

/// Where a fault at instruction `at` is to be resumed, if it is of a [`copy`].
#[must_use]
pub fn resume(at: usize) -> Option<usize> {
    let begin = (__transom_share_0_1 as *const ()).addr();
    let [lines, rest, end] = [
        &raw const __transom_share_0_1_lines,
        &raw const __transom_share_0_1_rest,
        &raw const __transom_share_0_1_end,
    ]
    .map(|label| label.addr());
    if (lines..rest).contains(&at) { Some(rest) } else { (begin..end).contains(&at).then_some(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn bytes_come_whole_to_every_alignment_and_none_beside() {
        let source: Vec<u8> = (0..5000_u32).map(|i| (i % 251) as u8 + 1).collect();
        let mut room = vec![0; 5200];
        for at in 0..64 {
            for length in [LEAST, LEAST + 1, LEAST + 63, LEAST + 64, LEAST + 65, 5000] {
                room.fill(0);
                // SAFETY: both have as many bytes.
                let copied = unsafe { copy(source.as_ptr(), room[at..].as_mut_ptr(), length) };
                assert_eq!(copied, length);
                assert_eq!(room[at..at + length], source[..length], "{at} {length}");
                let beside = room[..at].iter().chain(&room[at + length..]);
                assert!(beside.copied().all(|byte| byte == 0), "{at} {length}");
            }
        }
    }

    /// Wherever the source or the destination ends: in front of the first line, in a line, or behind the last one.
    #[test]
    fn a_fault_ends_the_copy_at_its_byte() {
        crate::signals::recheck(0, &[resume]);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory of this test's own, the third page of which is taken away.
        let pages = unsafe {
            let pages = libc::mmap(std::ptr::null_mut(), 3 * PAGE, protection, flags, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::munmap(pages.wrapping_byte_add(2 * PAGE), PAGE), 0);
            std::slice::from_raw_parts_mut(pages.cast::<u8>(), 2 * PAGE)
        };
        let mut other = vec![0; 3 * PAGE];
        for there in (1..200).chain([PAGE, PAGE + 77]) {
            for at in [0, 1, 63] {
                pages.fill(0xA5);
                other.fill(0);
                let (from, to) = (pages[2 * PAGE - there..].as_ptr(), other[at..].as_mut_ptr());
                // SAFETY: what is not there faults.
                assert_eq!(unsafe { copy(from, to, there + LEAST) }, there, "{at}");
                assert_eq!(
                    other.iter().filter(|byte| **byte == 0xA5).count(),
                    there,
                    "{there} {at}"
                );
                other.fill(0x5A);
                let (from, to) = (other[at..].as_ptr(), pages[2 * PAGE - there..].as_mut_ptr());
                // SAFETY: as above.
                assert_eq!(unsafe { copy(from, to, there + LEAST) }, there, "{at}");
                assert!(pages[2 * PAGE - there..].iter().all(|byte| *byte == 0x5A), "{there} {at}");
            }
        }
    }

    /// Services block every signal in their threads.
    #[test]
    fn a_thread_that_blocks_every_signal_survives_its_fault() {
        let thread = std::thread::spawn(|| {
            // SAFETY: plain calls on a set of this function; there is no memory at address 8.
            unsafe {
                let mut all = std::mem::zeroed::<libc::sigset_t>();
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                crate::signals::prepare(|| 0, &[resume]);
                copy(std::ptr::without_provenance(8), [0; LEAST].as_mut_ptr(), LEAST)
            }
        });
        assert_eq!(thread.join().unwrap(), 0);
    }
}
