//! A headless Chromium, driven over the DevTools protocol (<https://chromedevtools.github.io/devtools-protocol/>) through two
//! pipes, and what a person does and sees in it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// How long a page may take for anything; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks at a page. For each, the browser lays out the whole page, which takes longer than what is waited for if it is
/// asked too often.
const PAUSE: Duration = Duration::from_millis(40);

/// The browser of the system, from Debian's package `chromium`.
pub fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.is_file())
}

/// A browser as a test sees it, with windows, cookies, storage and a cache of its own: a context of the one Chromium that all tests of a
/// program share, because to start one takes longer than most tests. It is closed when this is dropped.
pub struct Browser {
    process: &'static Process,
    context: String,
    /// The sessions of its tabs.
    sessions: Mutex<Vec<String>>,
}

/// One tab.
pub struct Tab {
    process: &'static Process,
    session: String,
}

/// A running Chromium. It is never dropped: it ends when the process of the tests ends, because that closes its pipe.
struct Process {
    _shell: Child,
    to: Mutex<ChildStdin>,
    last: AtomicU64,
    inbox: Arc<Mutex<Inbox>>,
}

/// What the browser has said.
#[derive(Default)]
struct Inbox {
    /// Who waits for the reply to a call, by its number.
    callers: HashMap<u64, Sender<Value>>,
    /// The events of each open tab, by the session of the tab.
    events: HashMap<String, Vec<Value>>,
}

impl Browser {
    /// Opens a context. The first call starts the program, and all later calls use the same process.
    pub fn open(program: &Path) -> Browser {
        static SHARED: OnceLock<Process> = OnceLock::new();
        let process = SHARED.get_or_init(|| Process::start(program));
        let context = process.call(None, "Target.createBrowserContext", json!({}));
        let context = context["browserContextId"].as_str().expect("a context").to_owned();
        Browser { process, context, sessions: Mutex::default() }
    }

    /// Opens a tab that a person looks at, of this size in CSS pixels.
    pub fn tab(&self, width: u32, height: u32, is_dark: bool) -> Tab {
        // In a window of its own, it is visible.
        let tab = self.attach(true);
        tab.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        tab.resize(width, height);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        tab.call("Emulation.setEmulatedMedia", features);
        tab
    }

    /// Opens a tab in the window of the others, of which one at a time is visible.
    pub fn tab_behind(&self, width: u32, height: u32) -> Tab {
        let is_first = self.sessions.lock().is_empty();
        let tab = self.attach(is_first);
        tab.resize(width, height);
        tab
    }

    fn attach(&self, is_in_new_window: bool) -> Tab {
        let target = json!({"url": "about:blank", "browserContextId": self.context, "newWindow": is_in_new_window});
        let target = self.process.call(None, "Target.createTarget", target);
        let params = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.process.call(None, "Target.attachToTarget", params);
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        self.sessions.lock().push(session.clone());
        self.process.inbox.lock().events.insert(session.clone(), Vec::new());
        let tab = Tab { process: self.process, session };
        for domain in ["Page", "Runtime", "Network", "Log", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A test that has failed must not panic again, which would end the process and all other tests.
        let params = json!({"browserContextId": self.context});
        let closed = self.process.try_call(None, "Target.disposeBrowserContext", params);
        let sessions = std::mem::take(self.sessions.get_mut());
        self.process.inbox.lock().events.retain(|session, _| !sessions.contains(session));
        assert!(closed.is_ok() || std::thread::panicking(), "{closed:?}");
    }
}

impl Process {
    fn start(program: &Path) -> Process {
        // The browser reads from descriptor 3 and writes to descriptor 4. As root it has no sandbox of its own. The shell outlives the
        // tests, also if they are killed, and removes what the browser leaves. `ken.test` is an address that is not local. The disabled
        // features load hidden pages for the address bar of each window and start a process in advance. They take most of the time of a new
        // window.
        let script = "folder=$(mktemp -d) || exit; \
                      TMPDIR=$folder \"$0\" --headless=new --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage \
                      --no-first-run --disable-extensions --disable-background-networking --disable-component-update \
                      --disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess \
                      --host-resolver-rules='MAP ken.test 127.0.0.1' --user-data-dir=\"$folder/profile\" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null; \
                      rm -rf \"$folder\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program).stderr(Stdio::null());
        // In a group of its own, it is not interrupted at a terminal before it has cleaned up.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the browser");
        let to = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        let inbox = Arc::new(Mutex::new(Inbox::default()));
        let filled = Arc::clone(&inbox);
        std::thread::spawn(move || sort(output, &filled));
        Process { _shell: child, to: Mutex::new(to), last: AtomicU64::new(0), inbox }
    }

    fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.try_call(session, method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value, String> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut message = json!({"id": number, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let (sender, reply) = channel();
        self.inbox.lock().callers.insert(number, sender);
        let written = self.to.lock().write_all(format!("{message}\0").as_bytes());
        written.map_err(|error| format!("the browser does not listen: {error}"))?;
        let reply = reply.recv_timeout(PATIENCE).map_err(|error| format!("no answer: {error}"))?;
        if reply["error"].is_null() { Ok(reply["result"].clone()) } else { Err(reply["error"].to_string()) }
    }
}

/// Reads the messages of the browser until it ends. Passes each reply to the call that waits for it, and keeps the events of open tabs. When the
/// browser ends, the calls that still wait fail.
fn sort(output: impl Read, inbox: &Mutex<Inbox>) {
    let (mut output, mut message) = (BufReader::new(output), Vec::new());
    while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
        message.pop();
        let value: Value = serde_json::from_slice(&message).unwrap_or_default();
        message.clear();
        let mut inbox = inbox.lock();
        if let Some(number) = value["id"].as_u64() {
            if let Some(caller) = inbox.callers.remove(&number) {
                _ = caller.send(value);
            }
        } else if let Some(events) = value["sessionId"].as_str().and_then(|session| inbox.events.get_mut(session)) {
            events.push(value);
        }
    }
    inbox.lock().callers.clear();
}

impl Tab {
    pub fn call(&self, method: &str, params: Value) -> Value {
        self.process.call(Some(&self.session), method, params)
    }

    pub fn resize(&self, width: u32, height: u32) {
        let is_phone = width < 600;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn open(&self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// The value of an expression, awaited if it is a promise.
    #[track_caller]
    pub fn eval(&self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, and returns how long that took.
    #[track_caller]
    pub fn wait(&self, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.eval(&format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"))
            != true
        {
            assert!(begun.elapsed() < PATIENCE, "never: {expression}\n{}", self.text());
            std::thread::sleep(PAUSE);
        }
        begun.elapsed()
    }

    /// Waits until an expression has a value: between an address and its content the page shows neither the old nor the new.
    #[track_caller]
    pub fn is(&self, expression: &str, value: impl Into<Value>) {
        let (begun, value) = (Instant::now(), value.into());
        let safe = format!("(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()");
        while self.eval(&safe) != value {
            assert!(begun.elapsed() < PATIENCE, "{expression}: {} and not {value}", self.eval(expression));
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn sees(&self, text: &str) -> Duration {
        self.wait(&format!("document.body?.innerText.includes({})", json!(text)))
    }

    /// What the page shows.
    pub fn text(&self) -> String {
        self.eval("document.body?.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Clicks with the mouse on the middle of an element, which has to be there, enabled, and not covered. What loads above it may move
    /// it between the look and the click: such a click is kept from what lies there now, and is made again.
    #[track_caller]
    pub fn click(&self, element: &str) {
        let begun = Instant::now();
        while !self.try_click(element) {
            assert!(begun.elapsed() < PATIENCE, "{element} never stands still");
        }
    }

    #[track_caller]
    fn try_click(&self, element: &str) -> bool {
        self.wait(&format!("(e => e && !e.disabled)({element})"));
        let place = self.eval(&format!(
            "(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); \
             const [x, y] = [r.x + r.width / 2, r.y + r.height / 2]; const at = document.elementFromPoint(x, y); \
             const kinds = ['mousedown', 'mouseup', 'click']; window.hasMissed = false; window.atEnd?.(); \
             window.atEnd = () => kinds.forEach(kind => removeEventListener(kind, look, true)); \
             const look = event => {{ if (!e.contains(event.target)) {{ window.hasMissed = true; event.stopImmediatePropagation(); event.preventDefault(); }} \
               if (event.type === 'click') window.atEnd(); }}; \
             if (!e.contains(at)) return null; kinds.forEach(kind => addEventListener(kind, look, true)); return [x, y]; }})({element})"
        ));
        assert!(place.is_array(), "{element} is covered or outside the page: {place}");
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
        self.eval("(window.atEnd?.(), window.hasMissed)") != true
    }

    /// Clicks the button or link with this text.
    #[track_caller]
    pub fn click_text(&self, text: &str) {
        self.click(&format!(
            "[...document.querySelectorAll('button, a, summary')].find(e => e.innerText.trim() === {} && e.offsetParent)",
            json!(text)
        ));
    }

    /// Types a text where the focus is.
    pub fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses a key: a letter, or `Enter`, `Escape`, `Tab`.
    pub fn press(&self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            "Escape" | "Tab" => "",
            letter => letter,
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            letter => letter.to_uppercase().bytes().next().map_or(0, u32::from),
        };
        let down = json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}));
    }

    /// Writes a picture of what is visible.
    pub fn picture(&self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().expect("a picture"));
        path.parent().map_or(Ok(()), std::fs::create_dir_all).expect("a folder");
        std::fs::write(path, bytes.expect("base64")).expect("a file");
    }

    /// What the browser has reported about this tab, by the name of the event.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.eval("0");
        let inbox = self.process.inbox.lock();
        let own = inbox.events.get(&self.session).into_iter().flatten().filter(|event| event["method"] == name);
        own.map(|event| event["params"].clone()).collect()
    }

    /// Fails the test if a script threw, or the content security policy stopped anything.
    #[track_caller]
    pub fn has_no_faults(&self) {
        let thrown = self.events("Runtime.exceptionThrown");
        assert!(thrown.is_empty(), "{thrown:#?}");
        let issues = self.events("Audits.issueAdded");
        let refused: Vec<_> =
            issues.iter().filter(|one| one["issue"]["code"] == "ContentSecurityPolicyIssue").collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let logged = self.events("Log.entryAdded");
        let refused: Vec<_> = logged.iter().filter(|one| one["entry"]["source"] == "security").collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}
