//! As much of x86-64 as counting needs: which instructions lock a cache line or fence, and which
//! read the time-stamp counter.

/// The kinds of instruction that the stepper tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A plain instruction.
    Plain,
    /// An instruction with a lock prefix, an exchange with memory, or a full fence.
    Locked,
    /// A system call.
    Call,
    /// `rdtsc`, or `rdtscp`, with its length in bytes.
    Clock(u64),
    /// A breakpoint: the subject marks the end of what is counted.
    Mark,
}

/// Most bytes that [`kind`] looks at.
pub(crate) const LONGEST: usize = 16;

/// The kind of the instruction that `code` begins with.
pub(crate) fn kind(code: [u8; LONGEST]) -> Kind {
    let mut locked = false;
    let mut rest = code.as_slice();
    // Legacy prefixes in any order, then REX.
    while let [prefix, tail @ ..] = rest {
        match prefix {
            0xf0 => locked = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3 => {}
            _ => break,
        }
        rest = tail;
    }
    match rest {
        [0xcc, ..] => Kind::Mark,
        [0x0f, 0x05, ..] => Kind::Call,
        [0x0f, 0x31, ..] => Kind::Clock(2),
        [0x0f, 0x01, 0xf9, ..] => Kind::Clock(3),
        // mfence
        [0x0f, 0xae, 0xf0, ..] => Kind::Locked,
        // An exchange with memory locks without a prefix.
        [0x86 | 0x87, operands, ..] if *operands < 0xc0 => Kind::Locked,
        _ if locked => Kind::Locked,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, LONGEST, kind};

    fn of(code: &[u8]) -> Kind {
        let mut bytes = [0x90; LONGEST];
        for (to, from) in bytes.iter_mut().zip(code) {
            *to = *from;
        }
        kind(bytes)
    }

    #[test]
    fn a_lock_prefix_an_exchange_with_memory_and_a_full_fence_are_locked() {
        assert_eq!(of(&[0xf0, 0x48, 0x0f, 0xb1, 0x0b]), Kind::Locked); // lock cmpxchg [rbx], rcx
        assert_eq!(of(&[0x66, 0xf0, 0x83, 0x0c, 0x24, 0x00]), Kind::Locked); // lock or word [rsp], 0
        assert_eq!(of(&[0x48, 0x87, 0x07]), Kind::Locked); // xchg [rdi], rax
        assert_eq!(of(&[0x86, 0x07]), Kind::Locked); // xchg [rdi], al
        assert_eq!(of(&[0x0f, 0xae, 0xf0]), Kind::Locked); // mfence
    }

    #[test]
    fn an_exchange_of_registers_and_weaker_fences_are_plain() {
        assert_eq!(of(&[0x48, 0x87, 0xc3]), Kind::Plain); // xchg rbx, rax
        assert_eq!(of(&[0x0f, 0xae, 0xe8]), Kind::Plain); // lfence
        assert_eq!(of(&[0x0f, 0xae, 0xf8]), Kind::Plain); // sfence
        assert_eq!(of(&[0x48, 0x89, 0xc3]), Kind::Plain); // mov rbx, rax
    }

    #[test]
    fn calls_clocks_and_marks_are_recognised() {
        assert_eq!(of(&[0x0f, 0x05]), Kind::Call); // syscall
        assert_eq!(of(&[0x0f, 0x31]), Kind::Clock(2)); // rdtsc
        assert_eq!(of(&[0x0f, 0x01, 0xf9]), Kind::Clock(3)); // rdtscp
        assert_eq!(of(&[0x0f, 0x01, 0xd0]), Kind::Plain); // xgetbv
        assert_eq!(of(&[0xcc]), Kind::Mark);
    }
}
