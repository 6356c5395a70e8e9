//! Enums whose variants have numbers on a wire.

/// Makes an enum whose variants have consecutive numbers, and `ALL`, the list of them in that order. Both come of one
/// text, so that the list lacks no variant.
#[macro_export]
macro_rules! listed_enum {
    ($(#[$outer:meta])* $visible:vis enum $name:ident { $($(#[$inner:meta])* $variant:ident = $number:literal,)+ }) => {
        $(#[$outer])*
        #[repr(u8)]
        $visible enum $name { $($(#[$inner])* $variant = $number,)+ }

        impl $name {
            /// Every one, in the order of their numbers.
            pub const ALL: [$name; [$($number,)+].len()] = [$($name::$variant,)+];
        }

        // Numbers are consecutive, so that the list can be asked by them.
        const _: () = {
            let mut at = 1;
            while at < $name::ALL.len() {
                assert!($name::ALL[at] as usize == $name::ALL[at - 1] as usize + 1);
                at += 1;
            }
        };
    };
}
