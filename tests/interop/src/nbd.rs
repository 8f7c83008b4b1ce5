//! A small NBD client: fixed newstyle, one export, many requests in flight.
//!
//! It shares no code with the server that it speaks to. Source: the NetworkBlockDevice project's
//! `doc/proto.md`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Failure;

const GO: u32 = 7;
const INFO_EXPORT: u16 = 0;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const FUA: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(60);

/// A request. Offsets and lengths in bytes.
pub enum Request<'a> {
    Write { offset: u64, bytes: &'a [u8], fua: bool },
    Zeroes { offset: u64, len: u32 },
    Flush,
}

/// A connection in its transmission phase.
pub struct Client {
    stream: UnixStream,
    size: u64,
    cookies: u64,
}

impl Client {
    /// Connects and opens the default export.
    pub fn connect(socket: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self { stream, size: 0, cookies: 0 };
        client.handshake()?;
        Ok(client)
    }

    /// Bytes in the export.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn handshake(&mut self) -> Result<(), Failure> {
        let greeting: [u8; 18] = self.take()?;
        if &greeting[..16] != b"NBDMAGICIHAVEOPT" || greeting[17] & 1 == 0 {
            return Err("the server's greeting is not fixed newstyle".into());
        }
        let mut hello = Vec::from(1u32.to_be_bytes());
        hello.extend(b"IHAVEOPT");
        hello.extend(GO.to_be_bytes());
        // The empty name, and no information asked for beyond what is always sent.
        hello.extend(6u32.to_be_bytes());
        hello.extend([0; 6]);
        self.stream.write_all(&hello)?;
        loop {
            let magic = u64::from_be_bytes(self.take()?);
            let option = u32::from_be_bytes(self.take()?);
            let kind = u32::from_be_bytes(self.take()?);
            let len = u32::from_be_bytes(self.take()?);
            let mut data = vec![0; len as usize];
            self.stream.read_exact(&mut data)?;
            match (magic, option, kind) {
                (REPLY_MAGIC, GO, REPLY_ACK) => return Ok(()),
                (REPLY_MAGIC, GO, REPLY_INFO) if data[..2] == INFO_EXPORT.to_be_bytes() => {
                    self.size = u64::from_be_bytes(data[2..10].try_into()?);
                }
                (REPLY_MAGIC, GO, REPLY_INFO) => {}
                _ => return Err(format!("option reply {magic:x} {option} {kind:x}").into()),
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&mut self, kind: u16, flags: u16, offset: u64, len: u32) -> Result<u64, Failure> {
        self.cookies += 1;
        let mut header = Vec::from(REQUEST_MAGIC.to_be_bytes());
        header.extend(flags.to_be_bytes());
        header.extend(kind.to_be_bytes());
        header.extend(self.cookies.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(len.to_be_bytes());
        self.stream.write_all(&header)?;
        Ok(self.cookies)
    }

    /// The cookie of the next reply, whatever request it answers.
    fn reply(&mut self) -> Result<u64, Failure> {
        let magic = u32::from_be_bytes(self.take()?);
        let error = u32::from_be_bytes(self.take()?);
        let cookie = u64::from_be_bytes(self.take()?);
        match (magic, error) {
            (SIMPLE_REPLY_MAGIC, 0) => Ok(cookie),
            (SIMPLE_REPLY_MAGIC, error) => {
                Err(format!("request {cookie} of {}: errno {error}", self.cookies).into())
            }
            _ => Err(format!("a reply begins with {magic:x}").into()),
        }
    }

    /// Sends them in order, with at most `depth` unanswered, and waits for all.
    pub fn submit(&mut self, requests: &[Request<'_>], depth: usize) -> Result<(), Failure> {
        let mut unanswered = 0;
        for request in requests {
            if unanswered == depth {
                self.reply()?;
                unanswered -= 1;
            }
            match *request {
                Request::Write { offset, bytes, fua } => {
                    let flags = if fua { FUA } else { 0 };
                    self.send(1, flags, offset, bytes.len() as u32)?;
                    self.stream.write_all(bytes)?;
                }
                Request::Zeroes { offset, len } => drop(self.send(6, 0, offset, len)?),
                Request::Flush => drop(self.send(3, 0, 0, 0)?),
            }
            unanswered += 1;
        }
        for _ in 0..unanswered {
            self.reply()?;
        }
        Ok(())
    }

    /// Reads these ranges of bytes into their places in `into`, the export's whole contents.
    pub fn read(
        &mut self,
        ranges: &[Range<u64>],
        depth: usize,
        into: &mut [u8],
    ) -> Result<(), Failure> {
        let mut ahead = ranges.iter();
        let mut wanted = BTreeMap::new();
        loop {
            if wanted.len() < depth
                && let Some(range) = ahead.next()
            {
                let cookie = self.send(0, 0, range.start, (range.end - range.start) as u32)?;
                wanted.insert(cookie, range);
                continue;
            }
            if wanted.is_empty() {
                return Ok(());
            }
            let cookie = self.reply()?;
            let range = wanted.remove(&cookie).ok_or("a reply to no request")?;
            self.stream.read_exact(&mut into[range.start as usize..range.end as usize])?;
        }
    }

    /// Says goodbye.
    pub fn disconnect(mut self) -> Result<(), Failure> {
        self.send(2, 0, 0, 0)?;
        Ok(())
    }
}
