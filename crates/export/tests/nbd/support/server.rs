//! A blocking server over a Unix socket: one thread per connection, memory behind it. Only here to
//! show the protocol to real clients.

use std::io::{self, IoSliceMut, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use lapstrake_export::nbd::{Event, Exports, Limits, Want};

use super::Driver;
use super::memory::Store;

/// A listening server; its threads end with the test's process.
pub struct Server {
    dir: tempfile::TempDir,
    sessions: Arc<Sessions>,
    pub stores: Arc<Vec<Mutex<Store>>>,
}

/// How many connections are open, and what those that are over went through.
#[derive(Default)]
struct Sessions {
    state: Mutex<(usize, Vec<Vec<Event>>)>,
    over: Condvar,
}

impl Server {
    pub fn start(exports: Arc<Exports>) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the socket");
        let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
        let stores: Vec<_> =
            exports.list().iter().map(|e| Mutex::new(Store::new(e.size.bytes()))).collect();
        let stores = Arc::new(stores);
        let sessions = Arc::new(Sessions::default());
        let server = Server { dir, sessions: Arc::clone(&sessions), stores: Arc::clone(&stores) };
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.expect("accept");
                let driver =
                    Driver::over(Arc::clone(&exports), Arc::clone(&stores), Limits::default());
                let sessions = Arc::clone(&sessions);
                sessions.state.lock().expect("no thread died").0 += 1;
                std::thread::spawn(move || {
                    let log = serve(socket, driver);
                    let mut state = sessions.state.lock().expect("no thread died");
                    state.0 -= 1;
                    state.1.push(log);
                    sessions.over.notify_all();
                });
            }
        });
        server
    }

    /// What each connection went through. Waits until all are over.
    pub fn logs(&self) -> Vec<Vec<Event>> {
        let state = self.sessions.state.lock().expect("no thread died");
        let state = self.sessions.over.wait_while(state, |state| state.0 > 0);
        state.expect("no thread died").1.clone()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// A place for the clients' files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// The driver's loop. An error of the socket just ends it.
fn serve(mut socket: UnixStream, mut driver: Driver) -> Vec<Event> {
    let mut receive = vec![0; 64 << 10];
    let mut filled = 0..0;
    loop {
        let mut input = &receive[filled.clone()];
        driver.parse(&mut input);
        filled.start = filled.end - input.len();
        let sent = send_all(&mut socket, &mut driver);
        let got = match driver.conn.want() {
            _ if sent.is_err() => break,
            Want::Close => break,
            Want::Nothing => continue,
            Want::Bytes => socket.read(&mut receive),
            Want::Payload { .. } => {
                let into = driver.payload_buffer();
                let mut slices = [IoSliceMut::new(into), IoSliceMut::new(&mut receive)];
                socket.read_vectored(&mut slices)
            }
        };
        let count = match got {
            Err(_) => break,
            Ok(0) => {
                driver.log.extend(driver.conn.handle_eof());
                filled = 0..0;
                continue;
            }
            Ok(count) => count,
        };
        let payload = count.min(driver.payload_buffer().len());
        if payload > 0 {
            driver.payload_arrived(payload);
        }
        filled = 0..count - payload;
    }
    driver.log
}

fn send_all(socket: &mut UnixStream, driver: &mut Driver) -> io::Result<()> {
    while driver.conn.has_output() {
        driver.send(64, |slices| socket.write_vectored(slices))?;
    }
    Ok(())
}
