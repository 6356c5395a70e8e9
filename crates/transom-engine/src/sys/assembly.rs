//! Directives of the assembler that differ between the systems' object files.

/// The beginning of a section of machine code with this name.
#[cfg(not(windows))]
macro_rules! text_section {
    ($name:literal) => {
        concat!(".pushsection .text.", $name, ",\"ax\",@progbits")
    };
}
#[cfg(windows)]
macro_rules! text_section {
    ($name:literal) => {
        concat!(".pushsection .text$", $name, ",\"xr\"")
    };
}

/// A symbol that is not exported. No DLL exports one that it does not list.
#[cfg(not(windows))]
macro_rules! hidden {
    ($name:literal) => {
        concat!(".hidden ", $name)
    };
}
#[cfg(windows)]
macro_rules! hidden {
    ($name:literal) => {
        ""
    };
}
