//! Any bytes from an NBD client, cut in any way: no panic, bounds kept, and the cuts change nothing.
//!
//! Input: one byte for how far the session is when the fuzz begins, one for the length of the
//! pieces, the rest is what the client sends.

#![no_main]

use std::sync::Arc;

use lapstrake_export::nbd::wire::{self, opt};
use lapstrake_export::nbd::{
    Command, Connection, Errno, Event, ExportInfo, Exports, Extent, Limits, Outcome, Request,
    Security, Segment, Want,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { requests: 5, bytes: 64 << 10 };

fuzz_target!(|data: &[u8]| {
    let [start, piece, client @ ..] = data else { return };
    let exports = exports();
    let script = [prelude(*start), client.to_vec()].concat();
    let whole = converse(&exports, &script, script.len().max(1));
    let cut = converse(&exports, &script, usize::from(*piece) + 1);
    assert_eq!(whole, cut);
});

fn exports() -> Arc<Exports> {
    let mut ro = ExportInfo::new("r", 1 << 20);
    ro.read_only = true;
    ro.description = "d".into();
    Arc::new(Exports::new([ExportInfo::new("w", 1 << 30), ro]).expect("sound exports"))
}

/// What comes before the fuzz: nothing, client flags, or a session on the first export.
fn prelude(start: u8) -> Vec<u8> {
    let mut script = Vec::new();
    let mut option = |option: u32, data: &[u8]| {
        script.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        script.extend_from_slice(&option.to_be_bytes());
        script.extend_from_slice(&(data.len() as u32).to_be_bytes());
        script.extend_from_slice(data);
    };
    let context = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
    match start % 4 {
        0 => return Vec::new(),
        1 => {}
        2 => option(opt::GO, &[0; 6]),
        _ => {
            option(opt::STRUCTURED_REPLY, &[]);
            option(opt::SET_META_CONTEXT, context);
            option(opt::GO, &[0; 6]);
        }
    }
    [&3u32.to_be_bytes()[..], &script].concat()
}

/// Events without their ids, and the output with only the lengths of buffers.
fn converse(exports: &Arc<Exports>, script: &[u8], piece: usize) -> (Vec<Event>, Vec<u8>) {
    let mut conn = Connection::new(Arc::clone(exports), LIMITS).with_security(Security::Offered);
    let (mut log, mut output) = (Vec::new(), Vec::new());
    for mut input in script.chunks(piece) {
        loop {
            parse(&mut conn, &mut input, &mut log);
            assert!(conn.in_flight() <= LIMITS.requests.into());
            assert!(conn.bytes_in_flight() <= 32 << 20);
            if !conn.has_output() {
                break;
            }
            send(&mut conn, &mut output);
        }
    }
    log.extend(conn.handle_eof());
    send(&mut conn, &mut output);
    assert_eq!(conn.want(), Want::Close);
    (log, output)
}

fn parse(conn: &mut Connection, input: &mut &[u8], log: &mut Vec<Event>) {
    loop {
        let event = match (conn.receive(input), conn.want()) {
            (Some(event), _) => event,
            (None, Want::Payload { remaining, .. }) if !input.is_empty() => {
                let count = input.len().min(remaining as usize);
                *input = &input[count..];
                match conn.payload(count as u32) {
                    Some(request) => Event::Request(request),
                    None => continue,
                }
            }
            _ => return,
        };
        log.push(anonymous(event));
        if let Event::Request(request) = event {
            answer(conn, &request);
        }
    }
}

/// An outcome that depends on the request alone.
fn answer(conn: &mut Connection, request: &Request) {
    let extent = |len, hole| Extent { len, hole, zero: hole };
    let extents = [extent(request.offset % 4096, true), extent(512, false), extent(1 << 40, true)];
    let outcome = match request.command {
        _ if request.offset % 1024 == 512 => Outcome::Error(Errno::Io),
        Command::BlockStatus { .. } => Outcome::Extents(&extents),
        _ => Outcome::Done,
    };
    conn.reply(request.id, outcome);
}

fn anonymous(event: Event) -> Event {
    let id = lapstrake_export::nbd::RequestId::from_bits(0);
    match event {
        Event::Request(request) => Event::Request(Request { id, ..request }),
        Event::Payload(request) => Event::Payload(Request { id, ..request }),
        other => other,
    }
}

fn send(conn: &mut Connection, output: &mut Vec<u8>) {
    let mut count = 0;
    for segment in conn.segments() {
        match segment {
            Segment::Bytes(bytes) => {
                assert!(!bytes.is_empty());
                output.extend_from_slice(bytes);
                count += bytes.len();
            }
            Segment::Buffer { start, len, .. } => {
                assert!(start == 0 && len > 0);
                output.extend_from_slice(&len.to_be_bytes());
                count += len as usize;
            }
        }
    }
    conn.sent(count, |_| ());
}
