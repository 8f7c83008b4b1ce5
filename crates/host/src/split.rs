//! What halves of an array that were used without each other have written since: their write-intent bitmaps tell, since
//! bits are not cleared while a member is missing.

use lapstrake_array::start::BITMAP_BYTES_MAX;
use lapstrake_device::Member;
use lapstrake_metadata::Superblock;
use lapstrake_metadata::bitmap::{self, Bits};

/// What a member's bitmap says, as a clause; None where it has none that can be read.
pub(crate) fn written(member: &Member, sb: &Superblock) -> Option<String> {
    let at = sb.bitmap_sector()?.bytes();
    let read = |length: u64| {
        let mut bytes = vec![0; length as usize];
        member.read_at(at, &mut bytes).ok().map(|()| bytes)
    };
    let bitmap = bitmap::Superblock::parse(&read(bitmap::Superblock::SIZE as u64)?).ok()?;
    let length = Some(bitmap.image_bytes()).filter(|length| *length <= BITMAP_BYTES_MAX)?;
    let bits = Bits::from_image(&bitmap, &read(length)?).ok()?;
    let (dirty, all, kib) = (bits.count_set(), bits.count(), bitmap.chunk().bytes() / 1024);
    Some(format!("; by its bitmap, {dirty} of {all} chunks of {kib} KiB were written since"))
}
