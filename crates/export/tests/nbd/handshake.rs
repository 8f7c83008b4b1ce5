//! Promise: every option gets the reply that the specification asks for, and a handshake that
//! cannot be answered is cut off.

use crate::support::{Driver, OptionReply, SIZE, Script, all_option_replies, driver, exports};
use lapstrake_export::nbd::wire::{export_flag as f, info, opt, rep};
use lapstrake_export::nbd::{Connection, Event, Exports, Limits, Security, Violation, Want};

const RW: u16 = f::HAS_FLAGS
    | f::SEND_FLUSH
    | f::SEND_FUA
    | f::SEND_TRIM
    | f::SEND_WRITE_ZEROES
    | f::CAN_MULTI_CONN
    | f::SEND_CACHE
    | f::SEND_FAST_ZERO;
const RO: u16 = f::HAS_FLAGS
    | f::READ_ONLY
    | f::SEND_FLUSH
    | f::SEND_FUA
    | f::ROTATIONAL
    | f::CAN_MULTI_CONN
    | f::SEND_CACHE;

fn talk(script: &Script) -> (Driver, Vec<u8>) {
    let mut driver = driver();
    let output = driver.converse([&script.0[..]]);
    (driver, output)
}

fn replies(script: &Script) -> Vec<OptionReply> {
    all_option_replies(&talk(script).1)
}

/// The kinds of all replies; errors carry a text besides.
fn kinds(script: &Script) -> Vec<u32> {
    replies(script).iter().map(|reply| reply.kind).collect()
}

fn fact(kind: u16, data: &[&[u8]]) -> Vec<u8> {
    [&kind.to_be_bytes(), &data.concat()[..]].concat()
}

fn export_fact(size: u64, flags: u16) -> Vec<u8> {
    fact(info::EXPORT, &[&size.to_be_bytes(), &flags.to_be_bytes()])
}

#[test]
fn each_option_gets_its_reply() {
    let new = Script::new;
    let structured = || new().option(opt::STRUCTURED_REPLY, &[]);
    let set = opt::SET_META_CONTEXT;
    let list = opt::LIST_META_CONTEXT;
    let all = ["base:allocation"];
    let (info, ack, server, context) = (rep::INFO, rep::ACK, rep::SERVER, rep::META_CONTEXT);
    let table: &[(&str, Script, &[u32])] = &[
        ("list", new().option(opt::LIST, &[]), &[server, server, server, ack]),
        ("list with data", new().option(opt::LIST, b"x"), &[rep::ERR_INVALID]),
        ("unknown option", new().option(99, b"what"), &[rep::ERR_UNSUP]),
        ("option 0", new().option(0, &[]), &[rep::ERR_UNSUP]),
        ("peek export", new().option(4, &[]), &[rep::ERR_UNSUP]),
        ("tls", new().option(opt::STARTTLS, &[]), &[rep::ERR_UNSUP]),
        ("extended headers", new().option(opt::EXTENDED_HEADERS, &[]), &[rep::ERR_UNSUP]),
        ("structured", structured(), &[ack]),
        ("structured twice", structured().option(opt::STRUCTURED_REPLY, &[]), &[ack, ack]),
        ("structured with data", new().option(opt::STRUCTURED_REPLY, b"x"), &[rep::ERR_INVALID]),
        ("abort", new().option(opt::ABORT, &[]), &[ack]),
        ("abort with data", new().option(opt::ABORT, b"bye"), &[ack]),
        ("info", new().info("md0", &[]), &[info, ack]),
        ("info of default", new().info("", &[info::NAME, info::NAME]), &[info, info, ack]),
        ("info of nothing", new().info("md1", &[]), &[rep::ERR_UNKNOWN]),
        (
            "all facts",
            new().info("ro", &[0, 1, 2, 3, 4, 63, 64, 0xffff]),
            &[info, info, info, info, ack],
        ),
        ("empty info", new().option(opt::INFO, &[]), &[rep::ERR_INVALID]),
        ("info cut short", new().option(opt::INFO, &[0, 0, 0, 1, b'x', 0]), &[rep::ERR_INVALID]),
        ("name too long", new().option(opt::GO, &[0xff; 12]), &[rep::ERR_INVALID]),
        ("too few facts", new().option(opt::GO, &[0, 0, 0, 0, 0, 2, 0, 0]), &[rep::ERR_INVALID]),
        ("trailing byte", new().option(opt::GO, &[0, 0, 0, 0, 0, 0, 0]), &[rep::ERR_INVALID]),
        ("go", new().go("md0", &[]), &[info, ack]),
        ("go nowhere", new().go("nowhere", &[]), &[rep::ERR_UNKNOWN]),
        ("go after error", new().go("no", &[]).go("ro", &[]), &[rep::ERR_UNKNOWN, info, ack]),
        ("contexts too early", new().contexts(set, "md0", &all), &[rep::ERR_INVALID]),
        ("listing too early", new().contexts(list, "md0", &[]), &[rep::ERR_INVALID]),
        ("set", structured().contexts(set, "md0", &all), &[ack, context, ack]),
        ("set nothing", structured().contexts(set, "md0", &[]), &[ack, ack]),
        ("set namespace", structured().contexts(set, "md0", &["base:"]), &[ack, ack]),
        ("set foreign", structured().contexts(set, "", &["qemu:x", "", "a"]), &[ack, ack]),
        ("set among", structured().contexts(set, "", &["qemu:x", all[0]]), &[ack, context, ack]),
        ("set twice", structured().contexts(set, "", &[all[0], all[0]]), &[ack, context, ack]),
        ("set nowhere", structured().contexts(set, "no", &all), &[ack, rep::ERR_UNKNOWN]),
        ("set malformed", structured().option(set, &[0; 9]), &[ack, rep::ERR_INVALID]),
        (
            "query count lies",
            structured().option(set, &[0, 0, 0, 0, 255, 255, 255, 255]),
            &[ack, rep::ERR_INVALID],
        ),
        ("list all", structured().contexts(list, "md0", &[]), &[ack, context, ack]),
        ("list namespace", structured().contexts(list, "md0", &["base:"]), &[ack, context, ack]),
        ("list foreign", structured().contexts(list, "md0", &["qemu:"]), &[ack, ack]),
        ("too big to keep", new().option(opt::INFO, &vec![0; 16385]), &[rep::ERR_TOO_BIG]),
        (
            "too big, then fine",
            new().option(77, &vec![0; 65536]).option(opt::ABORT, &[]),
            &[rep::ERR_TOO_BIG, ack],
        ),
    ];
    for (name, script, expected) in table {
        assert_eq!(kinds(script), *expected, "{name}");
    }
}

/// What a script brings about where TLS is offered or required: the kinds of replies, and events. What follows the
/// answer to `STARTTLS` stands for what was decrypted.
fn with_tls(security: Security, script: &Script) -> (Vec<u32>, Vec<Event>) {
    let mut driver = driver();
    driver.conn = Connection::new(exports(), Limits::default()).with_security(security);
    let output = driver.converse([&script.0[..]]);
    let kinds = all_option_replies(&output).iter().map(|reply| reply.kind).collect();
    (kinds, driver.log)
}

#[test]
fn without_tls_where_it_is_required_there_is_nothing_but_the_way_to_it() {
    let new = Script::new;
    let required = |script: Script| with_tls(Security::Required, &script);
    let all = new()
        .option(opt::LIST, &[])
        .info("md0", &[])
        .go("md0", &[])
        .option(opt::STRUCTURED_REPLY, &[])
        .contexts(opt::LIST_META_CONTEXT, "md0", &[])
        .contexts(opt::SET_META_CONTEXT, "md0", &["base:allocation"])
        .option(99, b"what");
    assert_eq!(required(all), (vec![rep::ERR_TLS_REQD; 7], vec![]));
    assert_eq!(required(new().option(opt::ABORT, &[])), (vec![rep::ACK], vec![Event::Disconnect]));
    let (kinds, log) = required(new().option(opt::EXPORT_NAME, b"md0"));
    assert_eq!((kinds, log), (vec![], vec![Event::Violation(Violation::TlsRequired)]));
    let (kinds, log) = required(new().option(opt::STARTTLS, &[]).go("md0", &[]));
    assert_eq!(kinds, [rep::ACK, rep::INFO, rep::ACK]);
    assert_eq!(log, [Event::StartTls, Event::Open { export: 0 }]);
}

#[test]
fn tls_begins_once_and_forgets_what_was_agreed_on_before() {
    let set = |script: Script| script.contexts(opt::SET_META_CONTEXT, "md0", &["base:allocation"]);
    let agreed = set(Script::new().option(opt::STRUCTURED_REPLY, &[]));
    let script = set(agreed.option(opt::STARTTLS, b"now").option(opt::STARTTLS, &[]))
        .option(opt::STARTTLS, &[])
        .go("md0", &[]);
    let (kinds, log) = with_tls(Security::Offered, &script);
    let before = [rep::ACK, rep::META_CONTEXT, rep::ACK, rep::ERR_INVALID, rep::ACK];
    // Structured replies are gone, and with them what needs them.
    let after = [rep::ERR_INVALID, rep::ERR_INVALID, rep::INFO, rep::ACK];
    assert_eq!(kinds, [&before[..], &after].concat());
    assert_eq!(log, [Event::StartTls, Event::Open { export: 0 }]);
    let (kinds, _) = with_tls(Security::Offered, &Script::new().option(opt::LIST, &[]));
    assert_eq!(kinds.last(), Some(&rep::ACK), "who does without is served");
}

#[test]
fn facts_say_what_the_export_is() {
    let script = Script::new().info("", &[info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]);
    let data: Vec<_> = replies(&script).into_iter().map(|reply| reply.data).collect();
    let sizes = [512u32, 4096, 32 << 20].map(u32::to_be_bytes);
    let sizes = fact(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
    assert_eq!(data, [export_fact(SIZE, RW), fact(info::NAME, &[b"md0"]), sizes, vec![]]);

    let script = Script::new().info("ro", &[info::DESCRIPTION]);
    let data: Vec<_> = replies(&script).into_iter().map(|reply| reply.data).collect();
    assert_eq!(data[0], export_fact(SIZE, RO));
    assert_eq!(data[1], fact(info::DESCRIPTION, &[b"an array with no pen"]));

    let script = Script::new().option(opt::STRUCTURED_REPLY, &[]).info("ro", &[]);
    assert_eq!(replies(&script)[1].data, export_fact(SIZE, RO | f::SEND_DF));
}

#[test]
fn a_listing_names_and_describes() {
    let all = replies(&Script::new().option(opt::LIST, &[]));
    assert_eq!(all[0].data, b"\0\0\0\x03md0");
    assert_eq!(all[1].data, b"\0\0\0\x02roan array with no pen");
    assert_eq!(all[2].data, b"\0\0\0\x0abig-blocks");
}

#[test]
fn export_name_opens_with_and_without_zeroes() {
    for (client_flags, zeroes) in [(1u32, 124), (3, 0), (0, 124)] {
        let script = Script(client_flags.to_be_bytes().to_vec()).option(opt::EXPORT_NAME, b"ro");
        let (driver, output) = talk(&script);
        assert_eq!(driver.log, [Event::Open { export: 1 }]);
        let answer = [&SIZE.to_be_bytes()[..], &RO.to_be_bytes(), &vec![0; zeroes]].concat();
        assert_eq!(output[18..], answer);
        assert_eq!(driver.conn.export(), Some(1));
    }
}

#[test]
fn what_cannot_be_answered_is_cut_off() {
    let many = (0..).take(64 + 3 * 4 + 1).fold(Script::new(), |s, _| s.option(opt::LIST, &[]));
    let table = [
        (Script(vec![0, 0, 0, 4]), Violation::ClientFlags { found: 4 }),
        (Script(b"GET ".to_vec()), Violation::ClientFlags { found: 0x4745_5420 }),
        (
            Script::new().raw(b"GET / HTTP/1.1\r\n"),
            Violation::OptionMagic { found: u64::from_be_bytes(*b"GET / HT") },
        ),
        (
            Script::new().option_header(opt::LIST, 65537),
            Violation::OptionTooLong { option: opt::LIST, len: 65537 },
        ),
        (
            Script::new().option_header(99, u32::MAX),
            Violation::OptionTooLong { option: 99, len: u32::MAX },
        ),
        (
            Script::new().option_header(opt::EXPORT_NAME, 16385),
            Violation::OptionTooLong { option: opt::EXPORT_NAME, len: 16385 },
        ),
        (Script::new().option(opt::EXPORT_NAME, b"nowhere"), Violation::UnknownExport),
        (many, Violation::TooManyOptions),
    ];
    for (script, violation) in table {
        let (driver, _) = talk(&script);
        assert_eq!(driver.log, [Event::Violation(violation)]);
        assert_eq!(driver.conn.want(), Want::Close);
        assert!(!driver.conn.has_output());
    }
}

#[test]
fn an_abort_is_acknowledged_before_the_end() {
    let mut driver = driver();
    driver.output();
    driver.parse(&mut &Script::new().option(opt::ABORT, &[]).0[..]);
    assert_eq!(driver.log, [Event::Disconnect]);
    assert_eq!(driver.conn.want(), Want::Nothing);
    assert_eq!(driver.output().len(), 20);
    assert_eq!(driver.conn.want(), Want::Close);
}

#[test]
fn the_end_of_input_is_told_from_a_break() {
    let whole = Script::new().option(opt::LIST, &[]).0;
    for cut in 0..=whole.len() {
        let mut driver = driver();
        driver.converse([&whole[..cut]]);
        let edge = [0, 4, whole.len()].contains(&cut);
        let expected =
            if edge { Event::Disconnect } else { Event::Violation(Violation::Truncated) };
        assert_eq!(driver.conn.is_mid_message(), !edge, "{cut}");
        assert_eq!(driver.conn.handle_eof(), Some(expected), "{cut}");
        assert_eq!(driver.conn.want(), Want::Close);
        assert_eq!(driver.conn.handle_eof(), None);
    }
}

#[test]
fn a_flood_of_options_keeps_one_reply_in_memory() {
    let mut driver = driver();
    driver.output();
    let script = Script::new().option(opt::LIST, &[]).option(opt::LIST, &[]);
    let mut input = &script.0[..];
    driver.parse(&mut input);
    assert_eq!(driver.conn.want(), Want::Nothing);
    assert_eq!(input.len(), 16, "the second option waits");
    let first = driver.output();
    driver.parse(&mut input);
    assert!(input.is_empty());
    assert_eq!(driver.output(), first);
}

#[test]
fn a_server_going_down_refuses_options_but_not_leaving() {
    let mut driver = driver();
    driver.conn.begin_shutdown();
    let script = Script::new().go("md0", &[]).option(opt::LIST, &[]).option(opt::ABORT, &[]);
    let output = driver.converse([&script.0[..]]);
    let kinds: Vec<_> = all_option_replies(&output).iter().map(|reply| reply.kind).collect();
    assert_eq!(kinds, [rep::ERR_SHUTDOWN, rep::ERR_SHUTDOWN, rep::ACK]);
    assert_eq!(driver.log, [Event::Disconnect]);
}

#[test]
fn a_server_of_nothing_has_no_default() {
    let none = Exports::new([]).unwrap();
    let mut driver = Driver::new(none.into(), Limits::default());
    let script = Script::new().option(opt::LIST, &[]).go("", &[]);
    let kinds: Vec<_> =
        all_option_replies(&driver.converse([&script.0[..]])).iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [rep::ACK, rep::ERR_UNKNOWN]);
}
