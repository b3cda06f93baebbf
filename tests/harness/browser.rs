//! A headless Chromium, driven over the DevTools protocol (<https://chromedevtools.github.io/devtools-protocol/>) through two
//! pipes, and what a person does and sees in it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use tempfile::TempDir;

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

pub struct Browser {
    child: Child,
    wire: Rc<RefCell<Wire>>,
    _profile: TempDir,
}

struct Wire {
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    /// What the browser has reported, for all tabs.
    events: Vec<Value>,
}

/// One tab.
pub struct Tab {
    wire: Rc<RefCell<Wire>>,
    session: String,
}

impl Browser {
    pub fn start(program: &Path) -> Browser {
        Browser::start_with(program, &[])
    }

    /// Starts it with further options.
    pub fn start_with(program: &Path, options: &[&str]) -> Browser {
        let profile = tempfile::tempdir().expect("a folder");
        // The browser reads from descriptor 3 and writes to descriptor 4. As root it has no sandbox of its own.
        let script = "program=$0; profile=$1; shift; exec \"$program\" \"$@\" --headless=new --remote-debugging-pipe --no-sandbox --disable-gpu --disable-dev-shm-usage \
                      --no-first-run --disable-extensions --disable-background-networking --disable-component-update \
                      --user-data-dir=\"$profile\" about:blank 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(program).arg(profile.path()).args(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the browser");
        let to = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let value = serde_json::from_slice(&message).unwrap_or_default();
                message.clear();
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let wire = Wire { to, from, last: 0, events: Vec::new() };
        Browser { child, wire: Rc::new(RefCell::new(wire)), _profile: profile }
    }

    /// Opens a tab that a person looks at, of this size in CSS pixels.
    pub fn tab(&self, width: u32, height: u32, is_dark: bool) -> Tab {
        // In a window of its own, it is visible.
        let tab = self.attach(json!({"url": "about:blank", "newWindow": true}));
        tab.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true}));
        tab.resize(width, height);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        tab.call("Emulation.setEmulatedMedia", features);
        tab
    }

    /// Opens a tab in the window of the others, of which one at a time is visible.
    pub fn tab_behind(&self, width: u32, height: u32) -> Tab {
        let tab = self.attach(json!({"url": "about:blank"}));
        tab.resize(width, height);
        tab
    }

    fn attach(&self, target: Value) -> Tab {
        let call = |method: &str, params: Value| self.wire.borrow_mut().call(None, method, params);
        let target = call("Target.createTarget", target);
        let attached = call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let tab = Tab { wire: self.wire.clone(), session };
        for domain in ["Page", "Runtime", "Network", "Log", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The pipe's end ends the browser too, but not before its profile is removed.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Wire {
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.from.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }
}

impl Tab {
    pub fn call(&self, method: &str, params: Value) -> Value {
        self.wire.borrow_mut().call(Some(&self.session), method, params)
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
        std::fs::write(path, bytes.expect("base64")).expect("a file");
    }

    /// What the browser has reported about this tab, by the name of the event.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.eval("0");
        let wire = self.wire.borrow();
        let own =
            wire.events.iter().filter(|event| event["sessionId"] == self.session.as_str() && event["method"] == name);
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
