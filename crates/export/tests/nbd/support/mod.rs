//! What the NBD tests share: a client's words as bytes, a server's words taken apart, and a driver
//! over memory that follows the loop of `lapstrake_export::nbd` to the letter.

pub mod memory;
pub mod server;

use std::sync::Arc;

use lapstrake_export::nbd::wire::{self, RequestHeader};
use lapstrake_export::nbd::{ExportInfo, Exports, Limits};

pub use memory::Driver;

/// Size of the exports `md0` and `ro`.
pub const SIZE: u64 = 64 << 20;

/// `md0` (the default), `ro` (read-only, rotational, described), `big-blocks` (4 KiB, 1 MiB).
pub fn exports() -> Arc<Exports> {
    let md0 = ExportInfo::new("md0", SIZE);
    let mut ro = ExportInfo::new("ro", SIZE);
    ro.read_only = true;
    ro.rotational = true;
    ro.description = "an array with no pen".into();
    let mut big = ExportInfo::new("big-blocks", 4 << 20);
    (big.min_block, big.preferred_block, big.max_payload) = (4096, 65536, 1 << 20);
    Arc::new(Exports::new([md0, ro, big]).expect("the list is sound"))
}

/// A driver over these exports.
pub fn driver() -> Driver {
    Driver::new(exports(), Limits::default())
}

/// A client's words.
#[derive(Clone, Debug, Default)]
pub struct Script(pub Vec<u8>);

impl Script {
    /// Begins with client flags: fixed newstyle, no zeroes.
    pub fn new() -> Self {
        Script(3u32.to_be_bytes().to_vec())
    }

    /// The shortest way to transmission on an export.
    pub fn open(name: &str) -> Self {
        Script::new().go(name, &[wire::info::BLOCK_SIZE])
    }

    /// With structured replies and `base:allocation`.
    pub fn open_structured(name: &str) -> Self {
        Script::new()
            .option(wire::opt::STRUCTURED_REPLY, &[])
            .contexts(wire::opt::SET_META_CONTEXT, name, &["base:allocation"])
            .go(name, &[wire::info::BLOCK_SIZE])
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn option(self, option: u32, data: &[u8]) -> Self {
        self.option_header(option, data.len() as u32).raw(data)
    }

    pub fn option_header(self, option: u32, len: u32) -> Self {
        self.raw(&wire::OPTION_MAGIC.to_be_bytes())
            .raw(&option.to_be_bytes())
            .raw(&len.to_be_bytes())
    }

    pub fn go(self, name: &str, infos: &[u16]) -> Self {
        self.option(wire::opt::GO, &describe(name, infos))
    }

    pub fn info(self, name: &str, infos: &[u16]) -> Self {
        self.option(wire::opt::INFO, &describe(name, infos))
    }

    pub fn contexts(self, option: u32, name: &str, queries: &[&str]) -> Self {
        let mut data = string(name);
        data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend_from_slice(&string(query));
        }
        self.option(option, &data)
    }

    pub fn request(self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Self {
        self.raw(&RequestHeader { flags, kind, cookie, offset, len }.encode())
    }

    pub fn write(self, flags: u16, cookie: u64, offset: u64, data: &[u8]) -> Self {
        self.request(wire::cmd::WRITE, flags, cookie, offset, data.len() as u32).raw(data)
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn describe(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    for info in infos {
        data.extend_from_slice(&info.to_be_bytes());
    }
    data
}

/// A reply to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// Takes the greeting and `count` option replies off a server's output.
pub fn option_replies(output: &mut &[u8], count: usize) -> Vec<OptionReply> {
    let greeting = take(output, wire::GREETING_LEN);
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
    let mut replies = Vec::new();
    while replies.len() < count {
        assert_eq!(take(output, 8), wire::OPTION_REPLY_MAGIC.to_be_bytes());
        let (option, kind, len) = (word(output), word(output), word(output));
        replies.push(OptionReply { option, kind, data: take(output, len as usize).to_vec() });
    }
    replies
}

/// The option replies of a whole output, which must hold nothing else.
pub fn all_option_replies(mut output: &[u8]) -> Vec<OptionReply> {
    let count = output.windows(8).filter(|w| *w == wire::OPTION_REPLY_MAGIC.to_be_bytes()).count();
    let replies = option_replies(&mut output, count);
    assert!(output.is_empty(), "{} bytes after the last option reply", output.len());
    replies
}

/// A reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Without the data of a read, which only the asker can tell apart.
    Simple {
        errno: u32,
        cookie: u64,
    },
    Chunk {
        flags: u16,
        kind: u16,
        cookie: u64,
        payload: Vec<u8>,
    },
}

/// Takes one reply off a server's output.
pub fn reply(output: &mut &[u8]) -> Reply {
    match word(output) {
        wire::SIMPLE_REPLY_MAGIC => Reply::Simple { errno: word(output), cookie: long(output) },
        wire::STRUCTURED_REPLY_MAGIC => {
            let flags_kind = word(output);
            let (cookie, len) = (long(output), word(output));
            let payload = take(output, len as usize).to_vec();
            Reply::Chunk {
                flags: (flags_kind >> 16) as u16,
                kind: flags_kind as u16,
                cookie,
                payload,
            }
        }
        magic => panic!("reply magic {magic:#x}"),
    }
}

pub fn take<'a>(output: &mut &'a [u8], len: usize) -> &'a [u8] {
    output.split_off(..len).expect("the server's output is long enough")
}

pub fn word(output: &mut &[u8]) -> u32 {
    u32::from_be_bytes(take(output, 4).try_into().unwrap())
}

pub fn long(output: &mut &[u8]) -> u64 {
    u64::from_be_bytes(take(output, 8).try_into().unwrap())
}
