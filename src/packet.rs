//! IP packets as bytes: views, checksums, splitting of super-packets, coalescing into them.
//!
//! Pure: bytes in, bytes out. Nothing here allocates per packet, and nothing copies a payload: [`split`] writes each
//! segment's header in front of its payload where it lies, [`coalesce`] returns ranges.

pub mod checksum;
pub mod coalesce;
pub mod ip;
pub mod split;
pub mod vnet;
