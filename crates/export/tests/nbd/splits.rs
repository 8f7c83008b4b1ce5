//! Promise: how a client's bytes are cut into pieces changes neither an event nor a byte of output;
//! and no bytes whatever make the server panic or forget its bounds.

use crate::support::{Driver, Script, driver, exports};
use lapstrake_export::nbd::wire::{cmd, opt};
use lapstrake_export::nbd::{Event, Limits, Request, RequestId, Want};
use proptest::prelude::*;

fn transcript<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Event>, Vec<u8>) {
    let mut driver = driver();
    let output = driver.converse(pieces);
    // Ids depend on which replies were sent before.
    let log = driver.log.into_iter().map(|event| match event {
        Event::Request(request) => {
            Event::Request(Request { id: RequestId::from_bits(0), ..request })
        }
        Event::Payload(request) => {
            Event::Payload(Request { id: RequestId::from_bits(0), ..request })
        }
        other => other,
    });
    (log.collect(), output)
}

/// Cuts bytes into pieces of the given lengths, over and over.
fn pieces<'a>(mut bytes: &'a [u8], lens: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut lens = lens.iter().cycle();
    std::iter::from_fn(move || {
        let len = (*lens.next()?).min(bytes.len());
        (!bytes.is_empty()).then(|| bytes.split_off(..len).expect("len is within"))
    })
}

/// Some of everything.
fn tour() -> Script {
    Script::new()
        .option(opt::STARTTLS, &[])
        .option(opt::LIST, &[])
        .option(77, &[7; 20_000])
        .option(opt::STRUCTURED_REPLY, &[])
        .info("nothing", &[])
        .contexts(opt::LIST_META_CONTEXT, "", &[])
        .contexts(opt::SET_META_CONTEXT, "md0", &["base:allocation"])
        .go("md0", &[0, 1, 2, 3])
        .write(0, 1, 512, &[9; 1536])
        .write(0, 2, 3, &[9; 700])
        .request(cmd::READ, 0, 3, 0, 4096)
        .request(cmd::BLOCK_STATUS, 0, 4, 0, 1 << 20)
        .request(99, 0, 5, 0, 0)
        .request(cmd::FLUSH, 0, 6, 0, 0)
        .request(cmd::DISC, 0, 0, 0, 0)
}

#[test]
fn a_tour_byte_by_byte_is_the_same_tour() {
    let script = tour().0;
    let whole = transcript([&script[..]]);
    assert_eq!(whole.0.last(), Some(&Event::Disconnect));
    assert_eq!(transcript(script.chunks(1)), whole);
    for at in (0..script.len()).step_by(13) {
        assert_eq!(transcript([&script[..at], &script[at..]]), whole, "cut at {at}");
    }
}

fn any_option() -> impl Strategy<Value = Script> {
    let name = prop_oneof![Just(""), Just("md0"), Just("ro"), Just("big-blocks"), Just("no")];
    let query = prop_oneof![Just("base:allocation"), Just("base:"), Just("x"), Just("qemu:")];
    let context = prop_oneof![Just(opt::SET_META_CONTEXT), Just(opt::LIST_META_CONTEXT)];
    prop_oneof![
        2 => Just(Script::default().option(opt::STRUCTURED_REPLY, &[])),
        2 => (context, name.clone(), prop::collection::vec(query, 0..4))
            .prop_map(|(option, name, queries)| Script::default().contexts(option, name, &queries)),
        1 => (name, prop::collection::vec(0..6u16, 0..4))
            .prop_map(|(name, infos)| Script::default().info(name, &infos)),
        1 => (0..13u32, prop::collection::vec(any::<u8>(), 0..40))
            .prop_filter("no leaving, no going", |(option, _)| ![1, 2, 7].contains(option))
            .prop_map(|(option, data)| Script::default().option(option, &data)),
    ]
}

fn any_request() -> impl Strategy<Value = Script> {
    let offset = prop_oneof![
        4 => (0..200u64).prop_map(|n| n * 512),
        1 => (0..100u64).prop_map(|n| (64 << 20) - n * 512),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => (0..20u32).prop_map(|n| n * 512), 1 => 0..5000u32];
    let flags = prop_oneof![6 => Just(0u16), 2 => 0..32u16, 1 => any::<u16>()];
    (0..10u16, flags, any::<u64>(), offset, len, any::<u8>()).prop_map(
        |(kind, flags, cookie, offset, len, byte)| match kind {
            cmd::WRITE => Script::default().write(flags, cookie, offset, &vec![byte; len as usize]),
            cmd::DISC => Script::default(),
            kind => Script::default().request(kind, flags, cookie, offset, len),
        },
    )
}

/// A session that keeps the framing: options, GO, requests; perhaps garbage at the end.
fn session() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("md0"), Just("ro"), Just("big-blocks")];
    let options = prop::collection::vec(any_option(), 0..8);
    let requests = prop::collection::vec(any_request(), 0..30);
    let garbage = prop::collection::vec(any::<u8>(), 0..64);
    (options, name, requests, garbage).prop_map(|(options, name, requests, garbage)| {
        let mut script = options.iter().fold(Script::new(), |s, option| s.raw(&option.0));
        script = requests.iter().fold(script.go(name, &[]), |s, request| s.raw(&request.0));
        script.raw(&garbage).0
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_session_cut_anyhow_is_the_same_session(
        script in session(),
        lens in prop::collection::vec(prop_oneof![1..4usize, 1..64usize, 1..2000usize], 1..20),
    ) {
        let whole = transcript([&script[..]]);
        prop_assert_eq!(&transcript(pieces(&script, &lens)), &whole);
        prop_assert_eq!(&transcript(script.chunks(1)), &whole);
    }

    #[test]
    fn garbage_is_survived_within_bounds(
        open in any::<bool>(),
        garbage in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                any_option().prop_map(|script| script.0),
                any_request().prop_map(|script| script.0),
                Just(0x2560_9513u32.to_be_bytes().to_vec()),
                Just(b"IHAVEOPT".to_vec()),
            ],
            0..20,
        ),
    ) {
        let limits = Limits { requests: 3, bytes: 8192 };
        let mut driver = Driver::new(exports(), limits);
        let start = if open { Script::open_structured("md0") } else { Script::new() };
        driver.converse([&start.0[..]]);
        for piece in &garbage {
            // Output is not sent before the input stops, so the limits are felt.
            let mut piece = &piece[..];
            while !piece.is_empty() {
                driver.parse(&mut piece);
                prop_assert!(driver.conn.in_flight() <= 3);
                prop_assert!(driver.conn.bytes_in_flight() <= 32 << 20);
                if driver.output().is_empty() {
                    break;
                }
            }
        }
        driver.conn.handle_eof();
        driver.output();
        prop_assert_eq!(driver.conn.want(), Want::Close);
    }
}
