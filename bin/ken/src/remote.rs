//! The gateway for commands that outlive its restarts: a call is made again while the gateway is away.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_types::places::Places;
use ken_types::{Code, Error, json};
use serde_json::Value;
use ureq::http::{HeaderMap, Method};

use crate::gateway::Gateway;

/// How long it may be away.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Remote<'a> {
    places: &'a Places,
    gateway: Gateway,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl<'a> Remote<'a> {
    pub(crate) fn find(places: &'a Places) -> Result<Remote<'a>, Error> {
        let gateway = Gateway::find(places)?;
        Ok(Remote { places, gateway })
    }

    /// One request, again and again while nobody can say what has become of it. So it has to be one that may be
    /// repeated. The answer is the last word on it; a refusal is an error.
    pub(crate) fn call(
        &mut self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Error> {
        let until = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.gateway.send(method, target, headers, body) {
                Ok(answer) if answer.status < 400 => return Ok(answer),
                Ok(answer) => answer.refusal(),
                Err(error) => error,
            };
            let may_pass = matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline);
            if !may_pass || Instant::now() >= until {
                return Err(error);
            }
            sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
            // It may have come back elsewhere.
            if let Ok(gateway) = Gateway::find(self.places) {
                self.gateway = gateway;
            }
        }
    }

    pub(crate) fn get(&mut self, target: &str) -> Result<Answer, Error> {
        self.call(&Method::GET, target, &[], &[])
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// What a status of 400 and above says, in either of the gateway's envelopes.
    fn refusal(&self) -> Error {
        let body = json::parse(&self.body, json::MAX_DEPTH).unwrap_or_default();
        let text = |pointers: [&str; 2]| {
            let mut found = pointers.into_iter().filter_map(|pointer| body.pointer(pointer));
            found.find_map(Value::as_str).map(str::to_owned)
        };
        let message = text(["/error/message", "/error"]);
        Error {
            code: code(self.status),
            message: message.unwrap_or_else(|| format!("the gateway answered with {}", self.status)),
            hint: text(["/error/meta/hint", "/hint"]),
            at: text(["/error/meta/at", "/at"]),
            retry_after_ms: None,
        }
    }
}

/// The code of a status, as ken-wire(5) pairs them.
fn code(status: u16) -> Code {
    match status {
        401 => Code::Unauthenticated,
        403 => Code::Forbidden,
        404 | 410 => Code::NotFound,
        409 => Code::Conflict,
        413 => Code::TooLarge,
        408 | 504 => Code::Deadline,
        429 => Code::Busy,
        502 | 503 => Code::Unavailable,
        500.. => Code::Internal,
        _ => Code::Invalid,
    }
}
