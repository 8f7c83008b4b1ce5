//! Bytes between a client and its array's server, both ways, until one of them ends. Nothing is read in them: what a
//! client may ask, how much at once and how slowly, is that server's to say.
//!
//! Invariant: of each direction at most [`BUFFER_BYTES`] are held, and no more is read before they are gone, so that who
//! is slow slows down the other.

use super::client::{Client, Socket};
use super::wait::{Wait, wait};
use super::{Ended, NO_PROGRESS};
use crate::session::{Pace, Patience};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

/// Held of one direction.
const BUFFER_BYTES: usize = 128 << 10;

/// One direction.
struct Flow {
    buffer: Box<[u8]>,
    /// What of it is not written yet.
    held: std::ops::Range<usize>,
    /// No more will be read.
    ended: bool,
}

impl Flow {
    fn holding(early: &[u8]) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES.max(early.len())].into_boxed_slice();
        buffer[..early.len()].copy_from_slice(early);
        Self { buffer, held: 0..early.len(), ended: false }
    }

    /// Writes what is held, then reads and writes on while there may be more to read; gives back how many bytes were
    /// written. `read` also tells whether there may be more.
    fn pump(
        &mut self,
        mut may_read: bool,
        mut read: impl FnMut(&mut [u8]) -> Result<(Option<usize>, bool), Ended>,
        mut write: impl FnMut(&[u8]) -> Result<usize, Ended>,
    ) -> Result<usize, Ended> {
        let mut written = 0;
        loop {
            while !self.held.is_empty() {
                match write(&self.buffer[self.held.clone()])? {
                    0 => return Ok(written),
                    count => {
                        self.held.start += count;
                        written += count;
                    }
                }
            }
            if self.ended || !may_read {
                return Ok(written);
            }
            match read(&mut self.buffer)? {
                (None, _) => return Ok(written),
                (Some(0), _) => self.ended = true,
                (Some(count), more) => {
                    self.held = 0..count;
                    // Who has given less than was asked for has no more, and need not be asked.
                    may_read = more || count == self.buffer.len();
                }
            }
        }
    }

    fn wants_input(&self) -> bool {
        self.held.is_empty() && !self.ended
    }

    fn wants_output(&self) -> bool {
        !self.held.is_empty()
    }

    fn is_over(&self) -> bool {
        self.held.is_empty() && self.ended
    }
}

/// Goes on until either side ends, or `stop` is closed: then what the client has asked for is still answered, for as long
/// as patience has it. `early` came from the client already.
pub(super) fn relay(
    client: &mut Client,
    server: &mut Socket,
    early: &[u8],
    stop: RawFd,
    patience: &Patience,
) -> Result<(), Ended> {
    let (mut up, mut down) = (Flow::holding(early), Flow::holding(&[]));
    let (mut client_has, mut server_has) = (true, true);
    let (mut server_is_told, mut leaving) = (false, None);
    // Of what the client is sent.
    let (mut outward, mut is_owed) = (Pace::new(), false);
    loop {
        let may_read = client_has || client.has_input();
        let mut is_gone = false;
        up.pump(
            may_read,
            |into| {
                let count = client.read(into)?;
                Ok((count, client.has_input()))
            },
            |bytes| {
                // What is for who has gone is dropped; what that has said before is still passed on.
                Ok(server.write(bytes).unwrap_or_else(|_| {
                    is_gone = true;
                    bytes.len()
                }))
            },
        )?;
        up.ended |= is_gone;
        if up.is_over() && !server_is_told {
            server.end();
            server_is_told = true;
        }
        let sent = down.pump(
            server_has,
            // One that was killed has ended, too.
            |into| Ok((server.read(into).unwrap_or(Some(0)), false)),
            |bytes| Ok(client.write(bytes)?),
        )?;
        client.flush()?;
        outward.moved(sent);
        let owes = down.wants_output() || client.has_output();
        if owes && !std::mem::replace(&mut is_owed, owes) {
            outward = Pace::new();
        }
        is_owed = owes;
        if down.is_over() && !owes {
            return Ok(());
        }
        let slow = is_owed.then(|| outward.since + patience.stall);
        let mut waits = [
            Wait::new(client.as_raw_fd(), up.wants_input(), owes),
            Wait::new(server.as_raw_fd(), down.wants_input(), up.wants_output()),
            Wait::new(stop, leaving.is_none(), false),
        ];
        if !wait(&mut waits, leaving.into_iter().chain(slow).min())? {
            return match leaving {
                Some(_) => Ok(()),
                None => Err(Ended::cut(NO_PROGRESS)),
            };
        }
        let [client_wait, server_wait, stop_wait] = waits;
        (client_has, server_has) = (client_wait.has_come(), server_wait.has_come());
        if stop_wait.has_come() {
            leaving = Some(Instant::now() + patience.farewell);
            up.ended = true;
        }
    }
}
