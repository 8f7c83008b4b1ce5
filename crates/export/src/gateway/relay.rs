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
/// How often a direction is read before the other has its turn, and the time and the gateway's end theirs.
const READS_MAX: usize = 8;
/// Why a client is let go that has no more to say.
const SERVER_SILENT: &str = "its array's server did not answer in time";

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

    /// Writes what is held, then reads and writes on while there may be more to read, but not for ever: the other direction
    /// has its turn, too. `read` also tells whether there may be more.
    fn pump(
        &mut self,
        mut may_read: bool,
        mut read: impl FnMut(&mut [u8]) -> Result<(Option<usize>, bool), Ended>,
        mut write: impl FnMut(&[u8]) -> Result<usize, Ended>,
    ) -> Result<(), Ended> {
        for _ in 0..READS_MAX {
            while !self.held.is_empty() {
                match write(&self.buffer[self.held.clone()])? {
                    0 => return Ok(()),
                    count => self.held.start += count,
                }
            }
            if self.ended || !may_read {
                return Ok(());
            }
            match read(&mut self.buffer)? {
                (None, _) => return Ok(()),
                (Some(0), _) => self.ended = true,
                (Some(count), more) => {
                    self.held = 0..count;
                    // Who has given less than was asked for has no more, and need not be asked.
                    may_read = more || count == self.buffer.len();
                }
            }
        }
        Ok(())
    }

    /// Nobody takes it any more.
    fn drop_all(&mut self) {
        (self.held, self.ended) = (0..0, true);
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

/// Goes on until either side ends, or `stop` is closed: then what has come from the client is still answered, for as long
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
    // The client has no more to say, and since when the server has not answered, then.
    let (mut client_has_ended, mut silent_since) = (false, None);
    loop {
        let may_read = client_has || client.has_input();
        let (mut is_gone, mut server_moves) = (false, false);
        up.pump(
            may_read,
            |into| Ok((client.read(into)?, client.has_input())),
            |bytes| {
                let count = server.write(bytes).unwrap_or_else(|_| {
                    is_gone = true;
                    0
                });
                server_moves |= count > 0;
                Ok(count)
            },
        )?;
        if is_gone {
            // What that has said before is still passed on.
            up.drop_all();
        }
        if up.is_over() && !server_is_told {
            server.end();
            server_is_told = true;
        }
        down.pump(
            server_has,
            |into| {
                // One that was killed has ended, too.
                let count = server.read(into).unwrap_or(Some(0));
                server_moves |= count.is_some();
                Ok((count, false))
            },
            |bytes| Ok(client.write(bytes)?),
        )?;
        client.flush()?;
        outward.moved(client.take_sent());
        let owes = down.wants_output() || client.has_output();
        if owes && !is_owed {
            outward = Pace::new();
        }
        is_owed = owes;
        if down.is_over() && !owes {
            return part(client, leaving.unwrap_or_else(|| Instant::now() + patience.farewell));
        }
        client_has_ended |= up.ended;
        silent_since = match client_has_ended && !owes {
            false => None,
            true if server_moves => Some(Instant::now()),
            true => silent_since.or_else(|| Some(Instant::now())),
        };
        let slow = is_owed.then_some(outward.since).or(silent_since).map(|it| it + patience.stall);
        let mut waits = [
            Wait::new(client.as_raw_fd(), up.wants_input(), owes)
                .or_end(client.as_raw_fd(), !client_has_ended),
            Wait::new(server.as_raw_fd(), down.wants_input(), up.wants_output()),
            Wait::new(stop, leaving.is_none(), false),
        ];
        if !wait(&mut waits, leaving.into_iter().chain(slow).min())? {
            return Err(Ended::cut(if is_owed { NO_PROGRESS } else { SERVER_SILENT }));
        }
        let [client_wait, server_wait, stop_wait] = waits;
        (client_has, server_has) = (client_wait.has_come(), server_wait.has_come());
        client_has_ended |= client_wait.has_ended();
        if stop_wait.has_come() {
            leaving = Some(Instant::now() + patience.farewell);
            // One that has always more to say would not be answered to the end.
            client.end_input()?;
        }
    }
}

/// Says to the client that no more will come, and drops what it still sends until it has taken that in: a socket that is
/// closed over bytes that were not read resets the connection, by which the last replies may be lost.
fn part(client: &mut Client, until: Instant) -> Result<(), Ended> {
    client.end();
    while Instant::now() < until && !client.drop_input()? {
        wait(&mut [Wait::new(client.as_raw_fd(), true, false)], Some(until))?;
    }
    Ok(())
}
