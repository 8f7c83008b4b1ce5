//! Any bytes from a client that haggles with a gateway, and from the server whose answers it passes on: no panic, bounds
//! kept, and how the client's are cut changes nothing.
//!
//! Input: two bytes for how many are the server's, one for the length of the client's pieces, the server's, the client's.

#![no_main]

use lapstrake_export::gateway::backend::read_replies;
use lapstrake_export::nbd::handshake::{Handshake, Step};
use lapstrake_export::nbd::wire::opt;
use lapstrake_export::nbd::Security;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [high, low, piece, rest @ ..] = data else { return };
    let servers = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
    let (server, client) = rest.split_at(servers);
    let whole = converse(server, client, client.len().max(1));
    let cut = converse(server, client, usize::from(*piece) + 1);
    assert_eq!(whole, cut);
});

/// What arose, and what was sent to the client.
fn converse(mut server: &[u8], client: &[u8], piece: usize) -> (Vec<Step>, Vec<u8>) {
    let mut handshake = Handshake::new(3).with_security(Security::Offered);
    let (mut log, mut output) = (Vec::new(), Vec::new());
    for mut input in client.chunks(piece) {
        loop {
            let step = handshake.receive(&mut input);
            log.extend(step);
            if step == Some(Step::Question) {
                answer(&mut handshake, &mut server);
            }
            let said = handshake.output();
            assert!(said.len() <= 80 << 10);
            output.extend_from_slice(said);
            let count = said.len();
            assert_eq!(handshake.sent(count), 0);
            if step.is_none() && count == 0 {
                break;
            }
        }
    }
    log.extend(handshake.handle_eof());
    assert_eq!(handshake.receive(&mut &client[..]), None);
    (log, output)
}

fn answer(handshake: &mut Handshake, server: &mut &[u8]) {
    let (option, data) = handshake.question();
    assert!(data.len() <= 16 << 10);
    assert!(handshake.name().is_none_or(|name| name.len() <= data.len()));
    let replies = read_replies(server, option);
    match replies {
        Ok(replies) if option == opt::LIST => handshake.list(&replies.bytes[..replies.entries]),
        Ok(replies) => handshake.pass_on(&replies.bytes),
        // Refused, only the name alone ends it.
        Err(_) => assert_eq!(handshake.refuse("why").is_err(), option == opt::EXPORT_NAME),
    }
}
