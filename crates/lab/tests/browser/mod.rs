//! Chromium with one page, without a window and without a network, spoken to by its pipe: commands and answers in JSON,
//! each ended by a zero byte (`--remote-debugging-pipe`, the DevTools protocol).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
const PATIENCE: Duration = Duration::from_secs(60);
const LOADED: &str = "Page.loadEventFired";
/// Events that tell of something wrong with a page, or that it writes to the console.
const COMPLAINTS: [&str; 3] =
    ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];

/// A page in a browser, which ends when this is dropped.
pub struct Page {
    browser: Child,
    commands: RefCell<ChildStdin>,
    said: Receiver<Value>,
    last_id: Cell<u64>,
    /// Of the page; none before there is one.
    session: Option<String>,
    complaints: RefCell<Vec<Value>>,
    /// Since it was last told to.
    has_loaded: Cell<bool>,
    /// What the browser keeps.
    profile: TempDir,
}

impl Page {
    /// Opens a file and waits until it says that it is ready; nothing, said aloud, where there is no Chromium.
    pub fn open(file: &Path, width: u32, height: u32) -> Option<Self> {
        let Some(chromium) = NAMES.into_iter().find_map(program) else {
            lapstrake_not_run::not_run("there is no Chromium here (make setup installs it)");
            assert!(std::env::var_os("CI").is_none(), "CI must have Chromium");
            return None;
        };
        let mut page = Self::start(&chromium, width, height);
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.call("Target.attachToTarget", attach);
        page.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Runtime", "Log", "Page"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.load("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        Some(page)
    }

    fn start(chromium: &Path, width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads commands from descriptor 3 and answers on 4.
        let mut browser = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >"$WORDS" 2>&1"#, "sh"])
            .env("WORDS", words(&profile))
            .arg(chromium)
            // As root, which a container often is, Chromium has no sandbox.
            .args(["--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = RefCell::new(browser.stdin.take().unwrap());
        let answers = BufReader::new(browser.stdout.take().unwrap());
        let (say, said) = channel();
        std::thread::spawn(move || {
            let messages = answers.split(0).map_while(Result::ok);
            for message in messages.map_while(|message| serde_json::from_slice(&message).ok()) {
                // The test that listened may be over.
                let _ = say.send(message);
            }
        });
        Self {
            browser,
            commands,
            said,
            last_id: Cell::new(0),
            session: None,
            complaints: RefCell::default(),
            has_loaded: Cell::new(false),
            profile,
        }
    }

    /// What a method of the protocol answers.
    pub fn call(&self, method: &str, params: Value) -> Value {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        // What cannot be sent is not answered.
        let _ = self.send(&command);
        let until = Instant::now() + PATIENCE;
        loop {
            let mut message = self.hear(until, method);
            if message["id"] == json!(id) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
        }
    }

    fn send(&self, command: &Value) -> io::Result<()> {
        self.commands.borrow_mut().write_all(format!("{command}\0").as_bytes())
    }

    /// The next message; of an event notes what it tells.
    fn hear(&self, until: Instant, waited_for: &str) -> Value {
        let message = self.said.recv_timeout(until.saturating_duration_since(Instant::now()));
        let message = message.unwrap_or_else(|_| {
            let words = std::fs::read_to_string(words(&self.profile));
            panic!("waited in vain for {waited_for}; Chromium said: {words:?}")
        });
        let is = |method: &&str| message["method"] == json!(method);
        self.has_loaded.set(self.has_loaded.get() || is(&LOADED));
        if COMPLAINTS.iter().any(is) {
            self.complaints.borrow_mut().push(message.clone());
        }
        message
    }

    /// Loads the page by a method, and waits until it says that it is ready.
    fn load(&self, method: &str, params: Value) {
        self.has_loaded.set(false);
        let answer = self.call(method, params);
        assert!(answer["errorText"].is_null(), "{method}: {}", answer["errorText"]);
        let until = Instant::now() + PATIENCE;
        while !self.has_loaded.get() {
            self.hear(until, LOADED);
        }
        self.wait_for("html[data-ready]");
    }

    /// What an expression comes to, once it is known.
    pub fn evaluate(&self, expression: &str) -> Value {
        let how = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", how);
        let error = &answer["exceptionDetails"];
        assert!(error.is_null(), "{expression}: {error}");
        answer["result"]["value"].take()
    }

    /// What an expression comes to, as a number.
    pub fn number(&self, expression: &str) -> u64 {
        let value = self.evaluate(&format!("Number({expression})"));
        value.as_f64().unwrap_or_else(|| panic!("{expression}: {value}")) as u64
    }

    pub fn text(&self, expression: &str) -> String {
        self.evaluate(&format!("String({expression})")).as_str().unwrap().to_owned()
    }

    /// Waits until there is an element.
    pub fn wait_for(&self, selector: &str) {
        let until = Instant::now() + PATIENCE;
        while self.evaluate(&format!("document.querySelector('{selector}') !== null"))
            != json!(true)
        {
            assert!(Instant::now() < until, "there is no {selector}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Gives an element the keyboard.
    pub fn focus(&self, selector: &str) {
        self.wait_for(selector);
        let focus = format!(
            "(() => {{
                const element = document.querySelector('{selector}');
                element.focus();
                return document.activeElement === element;
            }})()"
        );
        assert_eq!(self.evaluate(&focus), json!(true), "{selector} takes no keys");
    }

    /// Writes, a character at a time, to what has the keyboard.
    pub fn write(&self, text: &str) {
        for character in text.chars() {
            self.call("Input.insertText", json!({ "text": character }));
        }
    }

    /// Presses Enter on an element.
    pub fn enter(&self, selector: &str) {
        self.focus(selector);
        for what in ["keyDown", "keyUp"] {
            let key = json!({
                "type": what, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r",
            });
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// Makes the page so wide, as a phone would, and loads it again.
    pub fn resize(&self, width: u32) {
        let metrics =
            json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.load("Page.reload", json!({}));
    }

    /// A picture of an element, PNG.
    pub fn picture(&self, of: &str) -> Vec<u8> {
        self.evaluate("scrollTo(0, 0)");
        let mut clip = self
            .evaluate(&format!("document.querySelector('{of}').getBoundingClientRect().toJSON()"));
        clip["scale"] = json!(1);
        let capture = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
        bytes(&self.call("Page.captureScreenshot", capture))
    }

    /// The page as it is printed, PDF.
    pub fn print(&self) -> Vec<u8> {
        bytes(&self.call("Page.printToPDF", json!({})))
    }

    /// Nothing went wrong in the page, nothing was written to its console, and it is there still.
    pub fn no_complaints(&self) {
        // What it had to say until then comes before its answer.
        self.evaluate("new Promise((done) => setTimeout(done))");
        let complaints = self.complaints.borrow();
        assert!(complaints.is_empty(), "{complaints:#?}");
    }
}

impl Drop for Page {
    /// Asks it to go, so that it leaves nothing behind.
    fn drop(&mut self) {
        let _ = self.send(&json!({ "id": 0, "method": "Browser.close" }));
        let until = Instant::now() + PATIENCE;
        while self.said.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        // It may have ended by itself.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

/// What Chromium says besides the protocol.
fn words(profile: &TempDir) -> PathBuf {
    profile.path().join("words")
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn bytes(answer: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
}
