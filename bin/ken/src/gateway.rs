//! The gateway of this system over HTTP, as any client speaks it.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use ken_types::ops::kend::{StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_types::{Code, Error, json};
use serde_json::{Value, json};
use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body};

use crate::parts::{kend, to_args, typed};
use crate::remote::Answer;

/// A JSON answer is not larger than a page of a transcript can be.
const ANSWER_BYTES: u64 = 64 * 1024 * 1024;
const CONNECT: Duration = Duration::from_secs(5);
/// A gateway that has not begun to answer after that is not going to: a long poll takes 30 s.
const LONGEST: Duration = Duration::from_secs(90);

pub(crate) struct Gateway {
    agent: Agent,
    url: String,
}

impl Gateway {
    /// Where kend says that it is.
    pub(crate) fn find(places: &Places) -> Result<Gateway, Error> {
        let args = to_args(&StatusArgs::default())?;
        let status: SystemStatus =
            typed(kend(places)?.call("parts.status", &args, Some(CONNECT), |_| Ok(()))?)?;
        let listener = status
            .listeners
            .into_iter()
            .find(|listener| listener.name == "gateway");
        let url = listener.map(|listener| listener.url).ok_or_else(|| {
            Error::unavailable("no gateway is configured in this system").hint("`ken status` lists its parts")
        })?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(LONGEST))
            .proxy(None);
        Ok(Gateway {
            agent: config.build().into(),
            url,
        })
    }

    pub(crate) fn get(&self, target: &str) -> Result<Value, Error> {
        let answer = self.agent.get(format!("{}{target}", self.url)).call();
        read(answer.map_err(|error| self.unreachable(&error))?)
    }

    /// A POST that does not wait for what it starts.
    pub(crate) fn post(&self, target: &str, body: &Value) -> Result<Value, Error> {
        let request = self.agent.post(format!("{}{target}", self.url));
        let request = request
            .header("content-type", "application/json")
            .header("prefer", "respond-async");
        read(
            request
                .send(body.to_string())
                .map_err(|error| self.unreachable(&error))?,
        )
    }

    /// Any request and its answer, whatever the status. An error when there is none.
    pub(crate) fn send(
        &self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{target}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let wrong = |error| Error::invalid("", format!("not a request: {error}"));
        let sent = match *method == Method::POST || *method == Method::PUT {
            true => self.agent.run(request.body(body).map_err(wrong)?),
            false => self.agent.run(request.body(()).map_err(wrong)?),
        };
        let (head, body) = sent.map_err(|error| self.unreachable(&error))?.into_parts();
        let body = body.into_with_config().limit(ANSWER_BYTES).read_to_vec();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.map_err(|error| self.unreachable(&error))?,
        })
    }

    /// The lines of an answer as they come.
    pub(crate) fn lines(
        &self,
        url: &str,
    ) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>, Error> {
        let answer = self
            .agent
            .get(url)
            .call()
            .map_err(|error| self.unreachable(&error))?;
        match answer.status().as_u16() {
            200 => Ok(BufReader::new(answer.into_body().into_reader()).lines()),
            _ => Err(read(answer)
                .err()
                .unwrap_or_else(|| Error::internal("the stream did not open"))),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        Error::unavailable(format!("the gateway at {}: {error}", self.url))
            .hint("`ken status` tells whether it runs")
    }
}

/// A 2xx as its value, anything else as the error that it tells of.
fn read(answer: Response<Body>) -> Result<Value, Error> {
    let good = answer.status().is_success();
    let bytes = answer
        .into_body()
        .into_with_config()
        .limit(ANSWER_BYTES)
        .read_to_vec();
    let bytes =
        bytes.map_err(|error| Error::unavailable(format!("the gateway's answer broke off: {error}")))?;
    let value = json::parse(&bytes, json::MAX_DEPTH)?;
    if good { Ok(value) } else { Err(failure(&value)) }
}

/// From `{"error","code","at"?,"hint"?}`, or from the envelope of streams.
fn failure(body: &Value) -> Error {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let code = serde_json::from_value(body.get("code").cloned().unwrap_or(json!("internal")));
    Error {
        code: code.unwrap_or(Code::Internal),
        message: text("/error")
            .or_else(|| text("/error/message"))
            .unwrap_or_else(|| body.to_string()),
        hint: text("/hint"),
        at: text("/at"),
        retry_after_ms: body.get("retry_after_ms").and_then(Value::as_u64),
    }
}
