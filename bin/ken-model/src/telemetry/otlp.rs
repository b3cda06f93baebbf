//! Requests to a collector in the two encodings of OTLP over HTTP
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). The binary one is protobuf with the field numbers of
//! `opentelemetry/proto/trace/v1/trace.proto`; it is written here, because these few fields need no generated code.

use ken_service::host_name;
use ken_types::Timestamp;
use ken_types::config::OtlpProtocol;
use ken_types::ops::telemetry::RunHost;
use serde_json::{Value, json};

const NAME: &str = "ken";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const FAILED: u64 = 2;

#[derive(Debug)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// `None` for the root of a trace.
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) kind: u64,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<Attribute>,
    pub(super) is_error: bool,
}

#[derive(Debug)]
pub(super) struct Attribute {
    key: &'static str,
    value: Content,
}

#[derive(Debug)]
enum Content {
    Text(String),
    Number(u64),
    Texts(Vec<String>),
}

impl Attribute {
    pub(super) fn text(key: &'static str, text: impl Into<String>) -> Attribute {
        Attribute { key, value: Content::Text(text.into()) }
    }

    pub(super) fn number(key: &'static str, number: u64) -> Attribute {
        Attribute { key, value: Content::Number(number) }
    }

    pub(super) fn texts(key: &'static str, texts: &[&str]) -> Attribute {
        Attribute { key, value: Content::Texts(texts.iter().map(|text| (*text).to_owned()).collect()) }
    }
}

/// The spans of one host; `None` if the system has only this one.
pub(super) type OfHost = (Option<RunHost>, Vec<Span>);

/// Returns the content type and the body of a request with these spans.
pub(super) fn request(protocol: OtlpProtocol, hosts: &[OfHost]) -> (&'static str, Vec<u8>) {
    match protocol {
        OtlpProtocol::Protobuf => ("application/x-protobuf", Message::default().each(1, hosts, resource_spans).0),
        OtlpProtocol::Json => {
            let hosts: Vec<Value> = hosts.iter().map(resource_value).collect();
            ("application/json", json!({"resourceSpans": hosts}).to_string().into_bytes())
        }
    }
}

/// One host sends the spans of all, so each resource is the host that did the work.
fn resource(host: Option<&RunHost>) -> Vec<Attribute> {
    let name = host.map_or_else(host_name, |host| host.name.clone());
    let named = [("host.name", name), ("service.instance.id", host.map(|host| host.id.clone()))];
    [Attribute::text("service.name", NAME), Attribute::text("service.version", VERSION)]
        .into_iter()
        .chain(named.into_iter().filter_map(|(key, value)| value.map(|value| Attribute::text(key, value))))
        .collect()
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.millis()).unwrap_or_default().saturating_mul(1_000_000)
}

fn resource_value((host, spans): &OfHost) -> Value {
    let spans: Vec<Value> = spans.iter().map(span_value).collect();
    json!({
        "resource": {"attributes": resource(host.as_ref()).iter().map(attribute_value).collect::<Vec<_>>()},
        "scopeSpans": [{"scope": {"name": NAME, "version": VERSION}, "spans": spans}],
    })
}

/// The ids are hexadecimal and 64-bit numbers are strings, as the JSON form of OTLP demands.
fn span_value(span: &Span) -> Value {
    let mut value = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": nanoseconds(span.start).to_string(),
        "endTimeUnixNano": nanoseconds(span.end).to_string(),
        "attributes": span.attributes.iter().map(attribute_value).collect::<Vec<_>>(),
        "status": if span.is_error { json!({"code": FAILED}) } else { json!({}) },
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    value
}

fn attribute_value(attribute: &Attribute) -> Value {
    let value = match &attribute.value {
        Content::Text(text) => json!({"stringValue": text}),
        Content::Number(number) => json!({"intValue": number.to_string()}),
        Content::Texts(texts) => {
            let texts: Vec<Value> = texts.iter().map(|text| json!({"stringValue": text})).collect();
            json!({"arrayValue": {"values": texts}})
        }
    };
    json!({"key": attribute.key, "value": value})
}

fn resource_spans((host, spans): &OfHost) -> Message {
    let scope = Message::default().bytes(1, NAME).bytes(2, VERSION);
    let scope_spans = Message::default().bytes(1, scope).each(2, spans, span_message);
    let resource = Message::default().each(1, &resource(host.as_ref()), attribute_message);
    Message::default().bytes(1, resource).bytes(2, scope_spans)
}

fn span_message(span: &Span) -> Message {
    let mut message = Message::default().bytes(1, span.trace.to_be_bytes()).bytes(2, span.id.to_be_bytes());
    if let Some(parent) = span.parent {
        message = message.bytes(4, parent.to_be_bytes());
    }
    let status = Message::default();
    message
        .bytes(5, &span.name)
        .number(6, span.kind)
        .fixed(7, nanoseconds(span.start))
        .fixed(8, nanoseconds(span.end))
        .each(9, &span.attributes, attribute_message)
        .bytes(15, if span.is_error { status.number(3, FAILED) } else { status })
}

fn attribute_message(attribute: &Attribute) -> Message {
    let value = match &attribute.value {
        Content::Text(text) => Message::default().bytes(1, text),
        Content::Number(number) => Message::default().number(3, *number),
        Content::Texts(texts) => {
            let values = Message::default().each(1, texts, |text| Message::default().bytes(1, text));
            Message::default().bytes(5, values)
        }
    };
    Message::default().bytes(1, attribute.key).bytes(2, value)
}

/// A message of protobuf that is being written (<https://protobuf.dev/programming-guides/encoding/>). Each field is a
/// number with its wire type, and a value.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    fn number(mut self, field: u64, number: u64) -> Message {
        self.varint(field << 3 | VARINT);
        self.varint(number);
        self
    }

    fn fixed(mut self, field: u64, number: u64) -> Message {
        self.varint(field << 3 | FIXED64);
        self.0.extend(number.to_le_bytes());
        self
    }

    /// Adds a text, bytes or an inner message.
    fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Message {
        let bytes = bytes.as_ref();
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn each<T>(self, field: u64, items: &[T], message: impl Fn(&T) -> Message) -> Message {
        items.iter().fold(self, |all, item| all.bytes(field, message(item)))
    }

    /// Writes seven bits a byte, the lowest first. The top bit says that another byte follows.
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
