//! A client's handshake: options are answered here or by the server of the export that they name, until an export is
//! chosen.

use super::backend::{Backend, BackendError, PATIENCE, Replies};
use super::client::{Client, Socket};
use super::wait::{Wait, wait};
use super::{Ended, NO_PROGRESS, Shared};
use crate::nbd::Security;
use crate::nbd::handshake::{Handshake, Step};
use crate::nbd::wire::opt;
use crate::tls::TlsOffer;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Options take little: a name, and what is asked about it.
const RECEIVE_BYTES: usize = 16 << 10;
/// Arrays for which a client's options are enough; how many are served may change meanwhile.
const ARRAYS: usize = 256;
/// Servers that a client may haggle with by turns: each costs a connection.
const BACKENDS_MAX: usize = 2;
/// Servers that are asked for their part of a list at once.
const ASKED_AT_ONCE: usize = 64;
/// What a client is told that names an export that is none.
const NOT_SERVED: &str = "no array of this name is served here";
/// What it is told where there is one, as far as is known.
const UNFIT: &str = "the server of this array does not answer";

/// See the module.
pub(super) struct Haggle<'a> {
    shared: &'a Shared,
    /// The client's place.
    number: u64,
    client: &'a mut Client,
    handshake: Handshake,
    offer: Option<TlsOffer>,
    /// Servers of exports that the client has named last, which have what was agreed on about each; the oldest first.
    backends: VecDeque<(String, Backend)>,
    received: Box<[u8]>,
    /// What of that is not taken in yet.
    input: Range<usize>,
    until: Instant,
}

impl<'a> Haggle<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        number: u64,
        client: &'a mut Client,
        offer: Option<TlsOffer>,
    ) -> Self {
        let security = match &offer {
            None => Security::Unavailable,
            Some(TlsOffer { is_required: false, .. }) => Security::Offered,
            Some(TlsOffer { is_required: true, .. }) => Security::Required,
        };
        Self {
            shared,
            number,
            client,
            handshake: Handshake::new(ARRAYS).with_security(security),
            offer,
            backends: VecDeque::new(),
            received: vec![0; RECEIVE_BYTES].into(),
            input: 0..0,
            until: Instant::now() + shared.patience.handshake,
        }
    }

    /// Goes on to the choice of an export: its server, and what the client has sent behind the choice.
    pub(super) fn carry_on(mut self) -> Result<(Socket, Vec<u8>), Ended> {
        loop {
            self.send()?;
            // What has come already needs no waiting, and may be many options.
            self.look_at_the_time()?;
            let mut input = &self.received[self.input.clone()];
            let step = self.handshake.receive(&mut input);
            self.input.start = self.input.end - input.len();
            match step {
                None if !self.handshake.output().is_empty() => {}
                None => self.receive()?,
                Some(Step::Question) => {
                    if let Some(backend) = self.answer()? {
                        self.send()?;
                        let early = self.received[self.input].to_vec();
                        return Ok((Socket::new(backend.into_stream().into())?, early));
                    }
                }
                Some(Step::StartTls) => self.start_tls()?,
                Some(Step::Disconnect) => {
                    self.send()?;
                    return Err(Ended::Quietly);
                }
                Some(Step::Violation(violation)) => return Err(violation.into()),
            }
        }
    }

    /// Waits until there is something to read, or room to write; an end of the whole gateway is the client's.
    fn wait(&mut self, input: bool, output: bool) -> Result<(), Ended> {
        let mut waits = [
            Wait::new(self.client.as_raw_fd(), input, output),
            Wait::new(self.shared.stop.as_raw_fd(), true, false),
        ];
        // Something may come all the time.
        if Instant::now() >= self.until || !wait(&mut waits, Some(self.until))? {
            return Err(Ended::cut(NO_PROGRESS));
        }
        if waits[1].has_come() { Err(Ended::Quietly) } else { Ok(()) }
    }

    fn look_at_the_time(&self) -> Result<(), Ended> {
        if Instant::now() >= self.until {
            return Err(Ended::cut(NO_PROGRESS));
        }
        let mut stop = [Wait::new(self.shared.stop.as_raw_fd(), true, false)];
        if wait(&mut stop, Some(Instant::now()))? { Err(Ended::Quietly) } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Ended> {
        loop {
            let count = self.client.write(self.handshake.output())?;
            self.handshake.sent(count);
            if self.handshake.output().is_empty() && !self.client.has_output() {
                return Ok(());
            }
            self.wait(false, true)?;
        }
    }

    fn receive(&mut self) -> Result<(), Ended> {
        loop {
            match self.client.read(&mut self.received)? {
                Some(0) => {
                    return Err(match self.handshake.handle_eof() {
                        Some(Step::Violation(violation)) => violation.into(),
                        _ => Ended::Quietly,
                    });
                }
                Some(count) => {
                    self.input = 0..count;
                    return Ok(());
                }
                None => {
                    // What TLS itself has to say.
                    self.client.flush()?;
                    let has_output = self.client.has_output();
                    self.wait(true, has_output)?;
                }
            }
        }
    }

    fn start_tls(&mut self) -> Result<(), Ended> {
        self.send()?;
        let offer = self.offer.as_ref().expect("TLS is begun where it is offered");
        // What was said in the clear behind the question is no TLS, and fails as such.
        let early = &self.received[self.input.clone()];
        self.client.start_tls(offer.config.clone(), early)?;
        self.input = 0..0;
        // Anybody may have said it.
        self.backends.clear();
        Ok(())
    }

    /// Answers an option about exports; the server of the one that was chosen, if one was.
    fn answer(&mut self) -> Result<Option<Backend>, Ended> {
        if self.handshake.question().0 == opt::LIST {
            let entries = self.shared.listed.ask(|| self.shared.list());
            self.handshake.list(&entries);
            return Ok(None);
        }
        let until = self.until.min(Instant::now() + PATIENCE);
        let chooses = matches!(self.handshake.question().0, opt::GO | opt::EXPORT_NAME);
        let (name, mut backend) = match self.backend(until, chooses) {
            Ok(found) => found,
            Err(why) => {
                self.handshake.refuse(why)?;
                return Ok(None);
            }
        };
        if chooses && !self.shared.take_array(self.number, &name) {
            self.handshake.refuse("this array has too many clients")?;
            return Ok(None);
        }
        match self.pass(&mut backend, &name) {
            Ok(Passed { replies, is_chosen }) => {
                self.handshake.pass_on(&replies);
                if is_chosen {
                    return Ok(Some(backend));
                }
                self.backends.push_back((name, backend));
                if self.backends.len() > BACKENDS_MAX {
                    self.backends.pop_front();
                }
            }
            Err(error) => {
                self.shared.tell_unfit(&name, &error);
                self.handshake.refuse(UNFIT)?;
            }
        }
        Ok(None)
    }

    /// Has a server answer the question.
    fn pass(&self, backend: &mut Backend, name: &str) -> Result<Passed, BackendError> {
        if self.handshake.is_structured() {
            backend.structure()?;
        }
        let (option, data) = self.question(name);
        let data = &data[..];
        if option == opt::EXPORT_NAME {
            // The answer is no reply, and has no error but the connection's end: it is carried as all that follows.
            backend.send(option, data)?;
            return Ok(Passed { replies: Vec::new(), is_chosen: true });
        }
        let replies = backend.ask(option, data)?;
        let is_chosen = option == opt::GO && replies.is_ack;
        Ok(Passed { replies: replies.bytes, is_chosen })
    }

    /// The question, with an array's name where the client has said none: whoever listens at its server's place now must
    /// not take it for another's.
    fn question(&self, name: &str) -> (u32, Vec<u8>) {
        let (option, data) = self.handshake.question();
        let data = match self.handshake.name() {
            Some(b"") if option == opt::EXPORT_NAME => name.as_bytes().to_vec(),
            Some(b"") => [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &data[4..]].concat(),
            _ => data.to_vec(),
        };
        (option, data)
    }

    /// The export that the question names.
    fn name(&self) -> Option<String> {
        match std::str::from_utf8(self.handshake.name()?).ok()? {
            "" => self.shared.directory.default_name(),
            name => Some(name.to_owned()),
        }
    }

    /// The server of the export that the question names, and the export's name; or what the client is told.
    fn backend(
        &mut self,
        until: Instant,
        chooses: bool,
    ) -> Result<(String, Backend), &'static str> {
        let name = self.name().ok_or(NOT_SERVED)?;
        let known = self.backends.iter().position(|(known, _)| *known == name);
        if let Some((_, mut backend)) = known.and_then(|at| self.backends.remove(at)) {
            // What was agreed on with one that has ended is gone, which a client that chooses has to be told.
            if chooses || !backend.has_ended() {
                backend.wait_until(until);
                return Ok((name, backend));
            }
        }
        if !self.shared.directory.names().contains(&name) {
            return Err(NOT_SERVED);
        }
        let no_zeroes = self.handshake.does_without_zeroes();
        let backend = self.shared.greet(&name, no_zeroes, until).ok_or(UNFIT)?;
        Ok((name, backend))
    }
}

/// What a server has made of an option.
struct Passed {
    replies: Vec<u8>,
    /// The client has its export.
    is_chosen: bool,
}

impl Shared {
    fn tell_unfit(&self, name: &str, error: &BackendError) {
        let what = "a client could not be joined to an array's server";
        self.complain(what, "it does not answer as one", &format!("{name}: {error}"));
    }

    fn greet(&self, name: &str, no_zeroes: bool, until: Instant) -> Option<Backend> {
        let stream = self.directory.connect(name, until)?;
        let backend = Backend::greet(stream, no_zeroes, until);
        backend.inspect_err(|error| self.tell_unfit(name, error)).ok()
    }

    /// What the servers of all arrays say that they offer, in order. They are asked side by side, since some may be stuck.
    fn list(&self) -> Vec<u8> {
        let until = Instant::now() + PATIENCE.min(self.patience.handshake);
        let names = Mutex::new(self.directory.names().into_iter());
        let entries = Mutex::new(BTreeMap::new());
        let ask = || {
            let next = || names.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(name) = next().filter(|_| Instant::now() < until) {
                let Some(mut backend) = self.greet(&name, true, until) else { continue };
                match backend.ask(opt::LIST, &[]) {
                    Ok(Replies { mut bytes, entries: len, .. }) => {
                        bytes.truncate(len);
                        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
                        entries.insert(name, bytes);
                    }
                    Err(error) => self.tell_unfit(&name, &error),
                }
            }
        };
        thread::scope(|scope| {
            let askers = names.lock().unwrap_or_else(PoisonError::into_inner).len();
            for _ in 1..askers.min(ASKED_AT_ONCE) {
                // Where the system has no thread for it, the others ask more.
                let _ = thread::Builder::new().name("nbd list".into()).spawn_scoped(scope, ask);
            }
            ask();
        });
        let entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        entries.into_values().flatten().collect()
    }
}
