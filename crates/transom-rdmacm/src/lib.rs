//! `librdmacm.so.1`: version nodes, a dependency on `libibverbs.so.1`, and no symbol.
//!
//! The loader checks a version in the library that a program names, and finds the symbol by name and
//! version anywhere. So one library has all code and one engine, whichever of the two is loaded first.
