//! DiskSim's files of any bytes are an error, or a profile that survives being written and, if it describes a disk,
//! finds each of its blocks. Input: model, seek curve, disk specs and perhaps a file that they name, with a zero byte
//! between them.

#![no_main]

use lapstrake_model::profile::Profile;
use lapstrake_model::diskspecs::{self, Text};
use lapstrake_model::DiskModel;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut texts = text.splitn(4, '\0');
    let (Some(model), Some(seek), Some(specs)) = (texts.next(), texts.next(), texts.next()) else {
        return;
    };
    let source = Text::from(texts.next().unwrap_or_default());
    let with_sources = |text: &str| {
        let text = Text::from(text);
        text.named().iter().fold(text, |text, name| text.with(name, source.clone()))
    };
    let (model, specs) = (with_sources(model), with_sources(specs));
    let _ = diskspecs::seek_file_name(&model);
    let seek = (!seek.is_empty()).then_some(seek);
    let Ok(profile) = diskspecs::import(&model, seek, &specs) else { return };
    // A profile is written if it is a disk, and only such a one is read.
    let Ok(DiskModel::Hard(disk)) = profile.build() else { return };
    if let Ok(text) = profile.to_toml() {
        let again = Profile::from_toml(&text).expect("own text");
        assert_eq!(again.to_toml().expect("read from a text"), text);
    }
    let layout = &disk.mechanism.layout;
    for lba in [0, layout.blocks() / 2, layout.blocks() - 1] {
        let extent = layout.extent(lba);
        assert!(extent.blocks > 0 && extent.track.cylinder < layout.cylinders(), "{extent:?}");
    }
    for distance in [0, 1, layout.cylinders()] {
        let _ = disk.mechanism.seek.time(distance);
    }
});
