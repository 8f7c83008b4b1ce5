//! A blocking server over a Unix socket: one thread per connection, memory behind it. Only here to
//! show the protocol to real clients.

use std::io::{self, IoSliceMut, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lapstrake_export::nbd::{Event, Exports, Limits, Want};

use super::Driver;
use super::memory::Store;

/// A listening server; its threads end with the test's process.
pub struct Server {
    dir: tempfile::TempDir,
    /// What each connection that is over went through.
    pub logs: Arc<Mutex<Vec<Vec<Event>>>>,
    pub stores: Arc<Vec<Mutex<Store>>>,
}

impl Server {
    pub fn start(exports: Arc<Exports>) -> Self {
        let dir = tempfile::tempdir().expect("a directory for the socket");
        let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
        let stores: Vec<_> =
            exports.list().iter().map(|e| Mutex::new(Store::new(e.size_bytes))).collect();
        let stores = Arc::new(stores);
        let logs = Arc::new(Mutex::new(Vec::new()));
        let server = Server { dir, logs: Arc::clone(&logs), stores: Arc::clone(&stores) };
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.expect("accept");
                let driver =
                    Driver::over(Arc::clone(&exports), Arc::clone(&stores), Limits::default());
                let logs = Arc::clone(&logs);
                std::thread::spawn(move || {
                    let log = serve(socket, driver);
                    logs.lock().expect("no thread died").push(log);
                });
            }
        });
        server
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
