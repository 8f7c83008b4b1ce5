//! What a device of the kernel is known by when its server has died.

/// What is served, in 64 bits: of which array, and which part of it (FNV-1a).
pub fn identity(uuid: [u8; 16], volume: Option<&str>, partition: Option<u32>) -> u64 {
    let part = match (volume, partition) {
        (Some(volume), _) => format!("volume {volume}"),
        (None, Some(number)) => format!("partition {number}"),
        (None, None) => String::new(),
    };
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    uuid.iter().chain(part.as_bytes()).fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_arrays_are_told_apart() {
        let all = [
            identity([1; 16], None, None),
            identity([2; 16], None, None),
            identity([1; 16], None, Some(1)),
            identity([1; 16], None, Some(2)),
            identity([1; 16], Some("vg/lv"), None),
        ];
        // The driver's word has room for 42 bits of it.
        let mut kept = all.map(|word| word >> 22).to_vec();
        kept.sort_unstable();
        kept.dedup();
        assert_eq!(kept.len(), all.len());
        assert_eq!(all[0], identity([1; 16], None, None), "and are the same at each start");
    }
}
