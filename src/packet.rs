//! IP packets as bytes: views, checksums, splitting of super-packets, coalescing into them. Pure.
