//! Fields of bytes that others wrote: what lies beyond the end is zero.

/// The unit that is looked at, bytes.
pub(crate) const BLOCK: usize = 4096;

macro_rules! field {
    ($name:ident, $type:ty, $from:ident, $doc:literal) => {
        #[doc = $doc]
        pub(crate) fn $name(bytes: &[u8], at: usize) -> $type {
            let field = bytes.get(at..at + size_of::<$type>());
            field.map_or(0, |field| <$type>::$from(field.try_into().unwrap_or_default()))
        }
    };
}

field!(le16, u16, from_le_bytes, "A little-endian number of 16 bits.");
field!(le32, u32, from_le_bytes, "A little-endian number of 32 bits.");
field!(le64, u64, from_le_bytes, "A little-endian number of 64 bits.");
field!(be16, u16, from_be_bytes, "A big-endian number of 16 bits.");
field!(be32, u32, from_be_bytes, "A big-endian number of 32 bits.");
field!(be64, u64, from_be_bytes, "A big-endian number of 64 bits.");

/// Sixteen bytes, such as a UUID.
pub(crate) fn id(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes.get(at..at + 16).and_then(|field| field.try_into().ok()).unwrap_or_default()
}

/// Whether these bytes lie there.
pub(crate) fn has(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    bytes.get(at..at + magic.len()) == Some(magic)
}
