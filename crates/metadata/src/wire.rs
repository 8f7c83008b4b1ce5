//! Fixed on-disk structs: one table of offsets, names and types gives the struct, its decoder
//! and its encoder.
//!
//! Invariants, checked when the crate is compiled: the fields of a table follow each other
//! without hole or overlap, and their sizes add up to the size of the struct. Byte order is
//! always an argument, since 0.90 superblocks are in the order of the machine that wrote them.

/// The order of the bytes of an integer on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first; always so in 1.x superblocks, bitmaps and bad-block logs.
    Little,
    /// Most significant byte first; 0.90 superblocks from big-endian machines.
    Big,
}

/// A value with a fixed size on disk. `get` and `put` want exactly `SIZE` bytes.
pub(crate) trait Field: Sized {
    const SIZE: usize;
    fn get(bytes: &[u8], order: ByteOrder) -> Self;
    fn put(&self, bytes: &mut [u8], order: ByteOrder);
}

macro_rules! integer_field {
    ($($ty:ty),*) => {$(
        impl Field for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn get(bytes: &[u8], order: ByteOrder) -> Self {
                let mut raw = [0; size_of::<$ty>()];
                raw.copy_from_slice(bytes);
                match order {
                    ByteOrder::Little => <$ty>::from_le_bytes(raw),
                    ByteOrder::Big => <$ty>::from_be_bytes(raw),
                }
            }
            fn put(&self, bytes: &mut [u8], order: ByteOrder) {
                bytes.copy_from_slice(&match order {
                    ByteOrder::Little => self.to_le_bytes(),
                    ByteOrder::Big => self.to_be_bytes(),
                });
            }
        }
    )*};
}
integer_field!(u8, u16, u32, i32, u64);

impl<T: Field, const N: usize> Field for [T; N] {
    const SIZE: usize = N * T::SIZE;
    fn get(bytes: &[u8], order: ByteOrder) -> Self {
        core::array::from_fn(|i| T::get(&bytes[i * T::SIZE..(i + 1) * T::SIZE], order))
    }
    fn put(&self, bytes: &mut [u8], order: ByteOrder) {
        for (value, place) in self.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.put(place, order);
        }
    }
}

/// Declares an on-disk struct by its offset table:
/// `OFFSET name: type` for every field, in order, then `= SIZE`.
///
/// The struct also implements [`Field`], so that it can be a field itself. Fields after
/// `beside` are not part of the table: the caller gives them when decoding.
macro_rules! on_disk {
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$fmeta:meta])* $off:literal $field:ident : $ty:ty,)*
            = $size:literal
        }
        $(beside { $($(#[$bmeta:meta])* $beside:ident : $bty:ty,)* })?
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            $($($(#[$bmeta])* pub $beside: $bty,)*)?
        }

        const _: () = {
            let mut at = 0;
            $(
                assert!(at == $off, concat!(stringify!($field), " is not where the table says"));
                at += <$ty as $crate::wire::Field>::SIZE;
            )*
            assert!(at == $size, "the table does not fill the struct");
        };

        impl $name {
            /// Bytes that the fixed part takes on disk.
            pub const SIZE: usize = $size;

            fn decode(
                bytes: &[u8; $size],
                order: $crate::wire::ByteOrder
                $($(, $beside: $bty)*)?
            ) -> Self {
                use $crate::wire::Field;
                Self {
                    $($field: <$ty>::get(&bytes[$off..$off + <$ty>::SIZE], order),)*
                    $($($beside,)*)?
                }
            }

            fn encode_into(&self, bytes: &mut [u8; $size], order: $crate::wire::ByteOrder) {
                use $crate::wire::Field;
                $(self.$field.put(&mut bytes[$off..$off + <$ty>::SIZE], order);)*
            }
        }
    };
}
pub(crate) use on_disk;
