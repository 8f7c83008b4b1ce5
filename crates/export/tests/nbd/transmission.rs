//! Promise: every request is carried out, refused with the right error, or the connection is cut
//! off; replies may come in any order and be sent in any pieces; limits hold.

use crate::support::{Driver, Reply, SIZE, Script, driver, exports, option_replies, reply, take};
use lapstrake_export::nbd::wire::{chunk, cmd, cmd_flag};
use lapstrake_export::nbd::{
    Command, Connection, Errno, Event, Extent, Limits, Outcome, Request, Segment, Violation, Want,
};

const PERM: u32 = Errno::Perm as u32;
const INVAL: u32 = Errno::Inval as u32;
const NOSPC: u32 = Errno::NoSpc as u32;
const OVERFLOW: u32 = Errno::Overflow as u32;
const NOTSUP: u32 = Errno::NotSup as u32;
const SHUTDOWN: u32 = Errno::Shutdown as u32;

fn simple(errno: u32, cookie: u64) -> Reply {
    Reply::Simple { errno, cookie }
}

fn done(kind: u16, cookie: u64, payload: &[&[u8]]) -> Reply {
    Reply::Chunk { flags: chunk::FLAG_DONE, kind, cookie, payload: payload.concat() }
}

/// A driver in transmission, its handshake's output sent.
fn opened(script: &Script) -> Driver {
    let mut driver = driver();
    let output = driver.converse([&script.0[..]]);
    option_replies(&mut &output[..], 3);
    driver
}

/// The replies to `requests`, which have no data behind simple headers.
fn ask(driver: &mut Driver, requests: Script) -> Vec<Reply> {
    let output = driver.converse([&requests.0[..]]);
    let mut rest = &output[..];
    std::iter::from_fn(|| (!rest.is_empty()).then(|| reply(&mut rest))).collect()
}

/// The error of the one reply to a request with cookie 9: simple ones only without structured
/// replies, an error chunk with a text otherwise.
fn error(driver: &mut Driver, structured: bool, request: Script) -> u32 {
    match &ask(driver, request)[..] {
        [Reply::Simple { errno, cookie: 9 }] if !structured || *errno == 0 => *errno,
        [Reply::Chunk { flags: chunk::FLAG_DONE, kind: chunk::ERROR, cookie: 9, payload }] => {
            let (errno, text) = payload.split_at(4);
            let (len, text) = text.split_at(2);
            assert_eq!(usize::from(u16::from_be_bytes(len.try_into().unwrap())), text.len());
            assert!(!text.is_empty());
            u32::from_be_bytes(errno.try_into().unwrap())
        }
        other => panic!("{other:?}"),
    }
}

fn none() -> Script {
    Script::default()
}

#[test]
fn what_is_written_is_read_with_simple_replies() {
    let mut driver = opened(&Script::open("md0"));
    let data: Vec<u8> = (0..8192u32).map(|i| (i / 7) as u8).collect();
    let script = none().write(cmd_flag::FUA, 1, 4096, &data).request(cmd::READ, 0, 2, 4608, 1024);
    let output = driver.converse([&script.0[..]]);
    let mut rest = &output[..];
    assert_eq!(reply(&mut rest), simple(0, 1));
    assert_eq!(reply(&mut rest), simple(0, 2));
    assert_eq!(take(&mut rest, 1024), &data[512..1536]);
    assert!(rest.is_empty());
}

#[test]
fn what_is_written_is_read_with_structured_replies() {
    let mut driver = opened(&Script::open_structured("md0"));
    let data = [0x5a; 1024];
    let script = none().write(0, 1, 512, &data).request(cmd::READ, 0, 2, 512, 1024).request(
        cmd::READ,
        cmd_flag::DF,
        3,
        512,
        512,
    );
    let offset = 512u64.to_be_bytes();
    let expected = [
        simple(0, 1),
        done(chunk::OFFSET_DATA, 2, &[&offset, &data]),
        done(chunk::OFFSET_DATA, 3, &[&offset, &data[..512]]),
    ];
    assert_eq!(ask(&mut driver, script), expected);
}

#[test]
fn every_fault_gets_its_errno() {
    let far = SIZE - 512;
    let table: &[(&str, &str, Script, u32)] = &[
        ("unaligned offset", "md0", none().request(cmd::READ, 0, 9, 1, 512), INVAL),
        ("unaligned length", "md0", none().write(0, 9, 0, &[1; 100]), INVAL),
        ("read past end", "md0", none().request(cmd::READ, 0, 9, far, 1024), INVAL),
        ("read off the scale", "md0", none().request(cmd::READ, 0, 9, u64::MAX, 512), INVAL),
        ("write past end", "md0", none().write(0, 9, far, &[1; 1024]), NOSPC),
        ("zero past end", "md0", none().request(cmd::WRITE_ZEROES, 0, 9, far, 1024), NOSPC),
        ("trim past end", "md0", none().request(cmd::TRIM, 0, 9, far, 1024), INVAL),
        ("cache past end", "md0", none().request(cmd::CACHE, 0, 9, far, 1024), INVAL),
        ("write read-only", "ro", none().write(0, 9, 0, &[1; 512]), PERM),
        ("trim read-only", "ro", none().request(cmd::TRIM, 0, 9, 0, 512), PERM),
        ("zero read-only", "ro", none().request(cmd::WRITE_ZEROES, 0, 9, 0, 512), PERM),
        ("flush read-only", "ro", none().request(cmd::FLUSH, 0, 9, 0, 0), 0),
        ("flush a range", "md0", none().request(cmd::FLUSH, 0, 9, 0, 512), INVAL),
        ("small for big blocks", "big-blocks", none().write(0, 9, 512, &[1; 4096]), INVAL),
        ("write too long", "big-blocks", none().write(0, 9, 0, &vec![1; (1 << 20) + 4096]), INVAL),
        ("resize", "md0", none().request(8, 0, 9, 0, 512), INVAL),
        ("unknown command", "md0", none().request(0xbeef, 0, 9, 0, 512), INVAL),
        ("unknown flag", "md0", none().request(cmd::READ, 1 << 9, 9, 0, 512), INVAL),
        ("write with a wrong flag", "md0", none().write(cmd_flag::DF, 9, 0, &[1; 512]), INVAL),
        (
            "fast zero",
            "md0",
            none().request(cmd::WRITE_ZEROES, cmd_flag::FAST_ZERO, 9, 0, 512),
            NOTSUP,
        ),
        ("zero", "md0", none().request(cmd::WRITE_ZEROES, cmd_flag::NO_HOLE, 9, 0, 512), 0),
        ("zero all", "md0", none().request(cmd::WRITE_ZEROES, 0, 9, 0, SIZE as u32), 0),
        ("trim", "md0", none().request(cmd::TRIM, cmd_flag::FUA, 9, 0, 512), 0),
        ("cache", "md0", none().request(cmd::CACHE, 0, 9, 0, 512), 0),
        ("write nothing", "md0", none().write(0, 9, 0, &[]), 0),
        ("trim nothing", "md0", none().request(cmd::TRIM, 0, 9, 0, 0), 0),
    ];
    for (name, export, script, errno) in table {
        let mut plain = opened(&Script::open(export));
        assert_eq!(error(&mut plain, false, script.clone()), *errno, "{name}");
        let mut structured = driver();
        structured.converse([&Script::open_structured(export).0[..]]);
        assert_eq!(error(&mut structured, true, script.clone()), *errno, "{name}");
        // What follows a refusal is understood.
        for driver in [&mut plain, &mut structured] {
            let flush = none().request(cmd::FLUSH, 0, 5, 0, 0);
            assert_eq!(ask(driver, flush), [simple(0, 5)], "{name}");
        }
    }
}

#[test]
fn errors_that_depend_on_negotiation() {
    let long = || none().request(cmd::READ, 0, 9, 0, (32 << 20) + 512);
    let status = || none().request(cmd::BLOCK_STATUS, 0, 9, 0, 512);
    let df = || none().request(cmd::READ, cmd_flag::DF, 9, 0, 512);
    let mut plain = opened(&Script::open("md0"));
    for request in [long(), status(), df()] {
        assert_eq!(error(&mut plain, false, request), INVAL);
    }
    let mut structured = opened(&Script::open_structured("md0"));
    assert_eq!(error(&mut structured, true, long()), OVERFLOW);
    // The context was selected for another export.
    let script = Script::open_structured("ro").0;
    let go = script.windows(2).rposition(|w| w == b"ro").unwrap();
    let mut other = driver();
    other.converse([&script[..go - 20], &none().go("md0", &[]).0]);
    assert_eq!(other.conn.export(), Some(0));
    assert_eq!(error(&mut other, true, status()), INVAL);
}

#[test]
fn nothing_is_read_without_a_word_to_the_driver() {
    let script = none().request(cmd::READ, 0, 1, 0, 0);
    let mut plain = opened(&Script::open("md0"));
    assert_eq!(ask(&mut plain, script.clone()), [simple(0, 1)]);
    let mut structured = opened(&Script::open_structured("md0"));
    assert_eq!(ask(&mut structured, script), [done(chunk::NONE, 1, &[])]);
    assert!(!structured.log.iter().any(|event| matches!(event, Event::Request(_))));
}

#[test]
fn block_status_tells_what_is_allocated() {
    let mut driver = opened(&Script::open_structured("md0"));
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
    let script = none()
        .write(0, 1, 8192, &[1; 4096])
        .request(cmd::BLOCK_STATUS, 0, 2, 0, 32768)
        .request(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, 3, 512, 1024)
        .request(cmd::BLOCK_STATUS, cmd_flag::REQ_ONE, 4, 8192, 8192);
    let expected = [
        simple(0, 1),
        done(chunk::BLOCK_STATUS, 2, &[&words(&[1, 8192, 3, 4096, 0, 20480, 3])]),
        done(chunk::BLOCK_STATUS, 3, &[&words(&[1, 1024, 3])]),
        done(chunk::BLOCK_STATUS, 4, &[&words(&[1, 4096, 0])]),
    ];
    assert_eq!(ask(&mut driver, script), expected);
}

#[test]
fn what_breaks_the_framing_is_cut_off() {
    let max = 32 << 20;
    let table = [
        (none().raw(&[0xff; 28]), Violation::RequestMagic { found: u32::MAX }),
        (
            none().raw(b"\x12\x56\x09\x53").raw(&[0; 24]),
            Violation::RequestMagic { found: 0x1256_0953 },
        ),
        (
            none().request(cmd::WRITE, 0, 1, 0, u32::MAX),
            Violation::PayloadTooLong { found: u32::MAX, max },
        ),
        (
            none().request(cmd::WRITE, 0, 1, 0, max + 1),
            Violation::PayloadTooLong { found: max + 1, max },
        ),
    ];
    for (script, violation) in table {
        let mut driver = opened(&Script::open("md0"));
        assert!(driver.converse([&script.0[..]]).is_empty());
        assert_eq!(driver.log.last(), Some(&Event::Violation(violation)));
        assert_eq!(driver.conn.want(), Want::Close);
    }
}

#[test]
fn a_violation_takes_no_reply_from_good_requests() {
    let mut driver = opened(&Script::open("md0"));
    driver.parse(&mut &none().request(cmd::READ, 0, 1, 0, 512).raw(&[0; 28]).0[..]);
    assert!(matches!(driver.log.last(), Some(Event::Violation(_))));
    assert_eq!(driver.conn.want(), Want::Nothing);
    driver.parse(&mut &none().request(cmd::READ, 0, 2, 0, 512).0[..]);
    assert_eq!(driver.output().len(), 528);
    assert_eq!(driver.conn.want(), Want::Close);
}

/// Opens a bare connection; the test itself is the driver.
fn bare(limits: Limits, structured: bool) -> Connection {
    let mut conn = Connection::new(exports(), limits);
    let script = if structured { Script::open_structured("md0") } else { Script::open("md0") };
    let mut input = &script.0[..];
    while conn.export().is_none() {
        drain(&mut conn);
        conn.receive(&mut input);
    }
    drain(&mut conn);
    conn
}

/// Sends everything; returns the released ids' indices and the count of bytes.
fn drain(conn: &mut Connection) -> (Vec<usize>, usize) {
    let count: usize = conn.segments().map(|segment| segment_len(&segment)).sum();
    let mut released = Vec::new();
    conn.sent(count, |id| released.push(id.index()));
    (released, count)
}

fn segment_len(segment: &Segment<'_>) -> usize {
    match segment {
        Segment::Bytes(bytes) => bytes.len(),
        Segment::Buffer { len, .. } => *len as usize,
    }
}

fn next_request(conn: &mut Connection, input: &mut &[u8]) -> Request {
    match conn.receive(input) {
        Some(Event::Request(request) | Event::Payload(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn replies_go_out_in_the_order_of_the_outcomes() {
    let mut conn = bare(Limits::default(), false);
    let script = (1..=3).fold(none(), |s, n| s.request(cmd::READ, 0, n, n * 512, 512));
    let mut input = &script.0[..];
    let requests: Vec<_> = (0..3).map(|_| next_request(&mut conn, &mut input)).collect();
    assert_eq!(requests[1].offset, 1024);
    conn.reply(requests[2].id, Outcome::Done);
    conn.reply(requests[0].id, Outcome::Error(Errno::Io));
    conn.reply(requests[1].id, Outcome::Done);
    let segments: Vec<_> = conn.segments().collect();
    let buffer = |n: usize| Segment::Buffer { id: requests[n].id, start: 0, len: 512 };
    assert_eq!(segments.len(), 5);
    assert_eq!((segments[1], segments[4]), (buffer(2), buffer(1)));
    // A send that ends within a buffer goes on from there.
    let mut released = Vec::new();
    conn.sent(16 + 100, |id| released.push(id));
    assert_eq!(
        conn.segments().next(),
        Some(Segment::Buffer { id: requests[2].id, start: 100, len: 412 })
    );
    conn.sent(412 + 16, |id| released.push(id));
    assert_eq!(released, [requests[2].id, requests[0].id]);
    assert_eq!((conn.in_flight(), conn.bytes_in_flight()), (1, 512));
}

#[test]
fn a_client_that_takes_no_replies_is_not_read() {
    let limits = Limits { requests: 4, bytes: 1 << 20 };
    let mut conn = bare(limits, false);
    let script = (0..9).fold(none(), |s, n| s.request(cmd::READ, 0, n, 0, 512));
    let mut input = &script.0[..];
    let first: Vec<_> = (0..4).map(|_| next_request(&mut conn, &mut input)).collect();
    assert_eq!(conn.receive(&mut input), None);
    assert_eq!(conn.want(), Want::Nothing);
    assert!(!conn.is_mid_message(), "it is we who wait");
    // Replies alone make no room: they must be sent.
    for request in &first {
        conn.reply(request.id, Outcome::Done);
    }
    assert_eq!(conn.receive(&mut input), None);
    assert_eq!(conn.want(), Want::Nothing);
    assert_eq!(drain(&mut conn), (vec![0, 1, 2, 3], 4 * (16 + 512)));
    for _ in 0..4 {
        let request = next_request(&mut conn, &mut input);
        assert!(!first.iter().any(|old| old.id == request.id), "ids are not reused at once");
    }
    assert_eq!(conn.receive(&mut input), None);
}

#[test]
fn refused_requests_count_too() {
    let mut conn = bare(Limits { requests: 2, bytes: 1 << 20 }, true);
    let script = (0..9).fold(none(), |s, n| s.request(0x7777, 0, n, 0, 512));
    let mut input = &script.0[..];
    for left in [7, 5, 3, 1] {
        assert_eq!(conn.receive(&mut input), None);
        assert_eq!(conn.in_flight(), 2);
        // One more header is gathered and held back.
        assert_eq!(input.len(), (left - 1) * 28);
        assert_eq!(drain(&mut conn).0, [0usize; 0], "the driver never knew of them");
    }
}

#[test]
fn bytes_in_flight_are_bounded() {
    let mut conn = bare(Limits { requests: 99, bytes: 10_000 }, false);
    let script = none()
        .request(cmd::READ, 0, 1, 0, 8192)
        .request(cmd::TRIM, 0, 2, 0, 1 << 20)
        .request(cmd::READ, 0, 3, 0, 4096)
        .request(cmd::FLUSH, 0, 4, 0, 0);
    let mut input = &script.0[..];
    let read = next_request(&mut conn, &mut input);
    assert_eq!(next_request(&mut conn, &mut input).command, Command::Trim);
    assert_eq!(conn.receive(&mut input), None);
    assert_eq!(conn.want(), Want::Nothing);
    conn.reply(read.id, Outcome::Done);
    drain(&mut conn);
    assert_eq!(conn.bytes_in_flight(), 0);
    assert_eq!(next_request(&mut conn, &mut input).len, 4096);
    assert_eq!(next_request(&mut conn, &mut input).command, Command::Flush);
}

#[test]
fn a_payload_goes_straight_to_its_buffer() {
    let mut conn = bare(Limits::default(), false);
    let script = none().request(cmd::WRITE, cmd_flag::FUA, 1, 512, 4096);
    let write = next_request(&mut conn, &mut &script.0[..]);
    assert_eq!((write.command, write.fua, write.len), (Command::Write, true, 4096));
    // The connection does not touch the payload.
    let mut payload = &[1u8; 4096][..];
    assert_eq!(conn.receive(&mut payload), None);
    assert_eq!(payload.len(), 4096);
    assert_eq!(conn.want(), Want::Payload { id: write.id, filled: 0, remaining: 4096 });
    assert_eq!(conn.payload(4000), None);
    assert_eq!(conn.want(), Want::Payload { id: write.id, filled: 4000, remaining: 96 });
    assert!(conn.is_mid_message());
    assert_eq!(conn.payload(96), Some(write));
    assert_eq!(conn.want(), Want::Bytes);
}

#[test]
fn a_write_may_be_failed_for_want_of_memory() {
    let mut conn = bare(Limits::default(), false);
    let script = none().write(0, 1, 0, &[1; 1024]).request(cmd::FLUSH, 0, 2, 0, 0);
    let mut input = &script.0[..];
    let write = next_request(&mut conn, &mut input);
    input = &input[100..];
    assert_eq!(conn.payload(100), None);
    conn.reply(write.id, Outcome::Error(Errno::NoMem));
    assert!(!conn.has_output(), "the client is still sending");
    assert_eq!(conn.want(), Want::Bytes);
    assert_eq!(next_request(&mut conn, &mut input).command, Command::Flush);
    let Some(Segment::Bytes(mut bytes)) = conn.segments().next() else { panic!() };
    assert_eq!(reply(&mut bytes), simple(Errno::NoMem as u32, 1));
    assert_eq!(drain(&mut conn).0, [write.id.index()]);
}

#[test]
fn a_disconnect_waits_for_what_is_in_flight() {
    let mut conn = bare(Limits::default(), false);
    let script = none().request(cmd::READ, 0, 1, 0, 512).request(cmd::DISC, 0, 0, 0, 0);
    let mut input = &script.0[..];
    let read = next_request(&mut conn, &mut input);
    assert_eq!(conn.receive(&mut input), Some(Event::Disconnect));
    assert_eq!(conn.want(), Want::Nothing);
    assert_eq!(conn.receive(&mut &[1u8; 99][..]), None);
    conn.reply(read.id, Outcome::Done);
    assert_eq!(conn.want(), Want::Nothing);
    assert_eq!(drain(&mut conn).1, 528);
    assert_eq!(conn.want(), Want::Close);
}

#[test]
fn the_end_of_input_is_told_from_a_break() {
    let whole = none().write(0, 1, 0, &[1; 512]).write(0, 2, SIZE, &[1; 512]).0;
    for cut in 0..=whole.len() {
        let mut driver = opened(&Script::open("md0"));
        driver.converse([&whole[..cut]]);
        let edge = [0, 540, 1080].contains(&cut);
        let expected =
            if edge { Event::Disconnect } else { Event::Violation(Violation::Truncated) };
        assert_eq!(driver.conn.handle_eof(), Some(expected), "{cut}");
        assert_eq!(driver.conn.want(), Want::Close);
        assert_eq!(driver.conn.bytes_in_flight(), 0);
    }
}

#[test]
fn a_server_going_down_finishes_what_it_began() {
    let mut conn = bare(Limits::default(), false);
    let script = none().request(cmd::READ, 0, 1, 0, 512).write(0, 2, 0, &[1; 512]).request(
        cmd::FLUSH,
        0,
        3,
        0,
        0,
    );
    let mut input = &script.0[..];
    let read = next_request(&mut conn, &mut input);
    conn.begin_shutdown();
    assert_eq!(conn.receive(&mut input), None);
    assert!(input.is_empty());
    for cookie in [2, 3] {
        let Some(Segment::Bytes(mut bytes)) = conn.segments().next() else { panic!() };
        assert_eq!(reply(&mut bytes), simple(SHUTDOWN, cookie));
        conn.sent(16, |_| panic!("the driver never knew of them"));
    }
    assert!(!conn.is_idle());
    conn.reply(read.id, Outcome::Done);
    drain(&mut conn);
    assert!(conn.is_idle());
}

#[test]
fn more_extents_than_a_reply_holds_are_left_for_the_next() {
    let mut conn = bare(Limits::default(), true);
    let script = none().request(cmd::BLOCK_STATUS, 0, 1, 0, SIZE as u32);
    let status = next_request(&mut conn, &mut &script.0[..]);
    let extents: Vec<_> =
        (0..20_000).map(|n| Extent { len: 512, hole: n % 2 == 0, zero: true }).collect();
    conn.reply(status.id, Outcome::Extents(&extents));
    assert_eq!(drain(&mut conn).1, 20 + 4 + 8192 * 8);
}

#[test]
fn output_stays_where_it_is_until_sent() {
    let mut conn = bare(Limits { requests: 64, bytes: 1 << 20 }, true);
    let script = (0..64).fold(none(), |s, n| s.request(cmd::FLUSH, 0, n, 0, 0));
    let mut input = &script.0[..];
    let first = next_request(&mut conn, &mut input);
    conn.reply(first.id, Outcome::Done);
    let Some(Segment::Bytes(bytes)) = conn.segments().next() else { panic!() };
    let (address, copy) = (bytes.as_ptr(), bytes.to_vec());
    while let Some(Event::Request(request)) = conn.receive(&mut input) {
        conn.reply(request.id, Outcome::Error(Errno::Io));
    }
    let mut conn = Box::new(conn);
    let Some(Segment::Bytes(bytes)) = conn.segments().next() else { panic!() };
    assert_eq!((bytes.as_ptr(), bytes), (address, &copy[..]));
    assert_eq!(drain(&mut conn).0.len(), 64);
}

#[test]
#[should_panic(expected = "does not wait for a reply")]
fn an_id_ends_with_its_release() {
    let mut conn = bare(Limits::default(), false);
    let script = none().request(cmd::FLUSH, 0, 1, 0, 0);
    let flush = next_request(&mut conn, &mut &script.0[..]);
    conn.reply(flush.id, Outcome::Done);
    drain(&mut conn);
    conn.reply(flush.id, Outcome::Done);
}
