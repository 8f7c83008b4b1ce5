//! A driver whose arrays are memory and whose I/O is done at once.

use std::sync::{Arc, Mutex};

use lapstrake_export::nbd::{
    Command, Connection, Event, Exports, Extent, Limits, Outcome, Request, Segment, Want,
};

/// Unit in which the store notes what is allocated, in bytes.
const BLOCK: u64 = 4096;

/// One export's bytes, and which of its blocks were written.
pub struct Store {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
    pub flushes: u64,
}

impl Store {
    pub fn new(size: u64) -> Self {
        let blocks = size.div_ceil(BLOCK) as usize;
        Store { bytes: vec![0; size as usize], allocated: vec![false; blocks], flushes: 0 }
    }

    fn range(request: &Request) -> std::ops::Range<usize> {
        request.offset as usize..request.offset as usize + request.len as usize
    }

    fn allocate(&mut self, request: &Request, allocated: bool) {
        let end = request.offset + u64::from(request.len);
        // A block only in part emptied stays allocated.
        let blocks = if allocated {
            request.offset / BLOCK..end.div_ceil(BLOCK)
        } else {
            request.offset.div_ceil(BLOCK)..end / BLOCK
        };
        for block in blocks {
            self.allocated[block as usize] = allocated;
        }
    }

    /// Extents from the request's offset to its end.
    fn extents(&self, request: &Request) -> Vec<Extent> {
        let mut extents = Vec::new();
        let end = request.offset + u64::from(request.len);
        let mut at = request.offset;
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            let hole = !self.allocated[(at / BLOCK) as usize];
            extents.push(Extent { len: next - at, hole, zero: hole });
            at = next;
        }
        extents
    }
}

/// One connection with its buffers. Everything that happened is in `log`.
pub struct Driver {
    pub conn: Connection,
    pub stores: Arc<Vec<Mutex<Store>>>,
    pub log: Vec<Event>,
    table: Vec<Vec<u8>>,
}

impl Driver {
    pub fn new(exports: Arc<Exports>, limits: Limits) -> Self {
        let stores =
            exports.list().iter().map(|e| Mutex::new(Store::new(e.size.bytes()))).collect();
        Driver::over(exports, Arc::new(stores), limits)
    }

    pub fn over(exports: Arc<Exports>, stores: Arc<Vec<Mutex<Store>>>, limits: Limits) -> Self {
        Driver {
            conn: Connection::new(exports, limits),
            stores,
            log: Vec::new(),
            table: vec![Vec::new(); limits.requests.into()],
        }
    }

    /// Step 1 of the driver's loop, carrying out each request on the spot.
    pub fn parse(&mut self, input: &mut &[u8]) {
        loop {
            if let Some(event) = self.conn.receive(input) {
                self.log.push(event);
                match event {
                    Event::Payload(request) => {
                        self.table[request.id.index()] = vec![0; request.len as usize];
                    }
                    Event::Request(request) => self.carry_out(request),
                    Event::Open { .. }
                    | Event::StartTls
                    | Event::Disconnect
                    | Event::Violation(_) => {}
                }
                continue;
            }
            match self.conn.want() {
                Want::Payload { remaining, .. } if !input.is_empty() => {
                    let count = input.len().min(remaining as usize);
                    let payload = input.split_off(..count).expect("count is within the input");
                    self.payload_buffer()[..count].copy_from_slice(payload);
                    self.payload_arrived(count);
                }
                _ => return,
            }
        }
    }

    /// The part of a write's buffer that is still to be filled.
    pub fn payload_buffer(&mut self) -> &mut [u8] {
        let Want::Payload { id, filled, remaining } = self.conn.want() else {
            return &mut [];
        };
        let rest = &mut self.table[id.index()][filled as usize..];
        assert_eq!(rest.len(), remaining as usize);
        rest
    }

    pub fn payload_arrived(&mut self, count: usize) {
        if let Some(request) = self.conn.payload(count as u32) {
            self.log.push(Event::Request(request));
            self.carry_out(request);
        }
    }

    fn carry_out(&mut self, request: Request) {
        let export = self.conn.export().expect("requests come after the handshake");
        let mut store = self.stores[export].lock().expect("no thread died");
        let range = Store::range(&request);
        let buffer = &mut self.table[request.id.index()];
        match request.command {
            Command::Read => *buffer = store.bytes[range].to_vec(),
            Command::Write => {
                store.bytes[range].copy_from_slice(buffer);
                store.allocate(&request, true);
            }
            Command::Flush => store.flushes += 1,
            Command::Trim => {
                store.bytes[range].fill(0);
                store.allocate(&request, false);
            }
            Command::WriteZeroes { no_hole } => {
                store.bytes[range].fill(0);
                store.allocate(&request, no_hole);
            }
            Command::Cache => {}
            Command::BlockStatus { .. } => {
                let extents = store.extents(&request);
                return self.conn.reply(request.id, Outcome::Extents(&extents));
            }
        }
        self.conn.reply(request.id, Outcome::Done);
    }

    /// Step 3, handing up to `count` segments to `send`, which says how many bytes it took.
    pub fn send(
        &mut self,
        count: usize,
        send: impl FnOnce(&[std::io::IoSlice<'_>]) -> std::io::Result<usize>,
    ) -> std::io::Result<()> {
        let table = &self.table;
        let slices: Vec<_> = self
            .conn
            .segments()
            .take(count)
            .map(|segment| match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Buffer { id, start, len } => {
                    &table[id.index()][start as usize..][..len as usize]
                }
            })
            .map(std::io::IoSlice::new)
            .collect();
        let sent = send(&slices)?;
        drop(slices);
        self.conn.sent(sent, |id| self.table[id.index()] = Vec::new());
        Ok(())
    }

    /// Sends all there is into a vector.
    pub fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        self.send(usize::MAX, |slices| {
            slices.iter().for_each(|slice| output.extend_from_slice(slice));
            Ok(output.len())
        })
        .expect("memory takes all");
        output
    }

    /// Feeds the pieces one after the other, sending all output in between; returns it.
    pub fn converse<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut output = self.output();
        for mut piece in pieces {
            loop {
                self.parse(&mut piece);
                if !self.conn.has_output() {
                    break;
                }
                output.extend(self.output());
            }
            let closed = matches!(self.conn.want(), Want::Close);
            assert!(piece.is_empty() || closed, "input is left although nothing is in flight");
        }
        output
    }
}
