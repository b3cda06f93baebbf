//! Reads the requests that a collector receives, in both encodings of OTLP. It shares no code with ken-model: the binary
//! form is read by the rules of protobuf and the field numbers of `opentelemetry/proto/trace/v1/trace.proto`.

use serde_json::{Map, Value, json};

use crate::provider::ReceivedRequest;

/// The JSON form of a request with traces.
pub fn traces(request: &ReceivedRequest) -> Value {
    match request.header("content-type") {
        Some("application/json") => request.body.clone(),
        Some("application/x-protobuf") => message(&request.bytes, &REQUEST),
        other => panic!("not a content type of OTLP: {other:?}"),
    }
}

/// All spans of requests.
pub fn spans(requests: &[ReceivedRequest]) -> Vec<Value> {
    let of = |resource: Value| resource["scopeSpans"][0]["spans"].as_array().cloned().expect("spans");
    requests.iter().flat_map(resources).flat_map(of).collect()
}

/// The resources of a request, each with its spans.
pub fn resources(request: &ReceivedRequest) -> Vec<Value> {
    traces(request)["resourceSpans"].as_array().cloned().expect("resources")
}

/// A field: its number, its name in the JSON form, and its type.
struct Field(u64, &'static str, Kind);

enum Kind {
    Text,
    /// Bytes, which are hexadecimal in the JSON form.
    Id,
    /// A 64-bit number, which is a string in the JSON form.
    Fixed64,
    Int64,
    Enum,
    One(&'static [Field]),
    Many(&'static [Field]),
}

static REQUEST: [Field; 1] = [Field(1, "resourceSpans", Kind::Many(&RESOURCE_SPANS))];
static RESOURCE_SPANS: [Field; 2] =
    [Field(1, "resource", Kind::One(&RESOURCE)), Field(2, "scopeSpans", Kind::Many(&SCOPE_SPANS))];
static RESOURCE: [Field; 1] = [Field(1, "attributes", Kind::Many(&ATTRIBUTE))];
static SCOPE_SPANS: [Field; 2] = [Field(1, "scope", Kind::One(&SCOPE)), Field(2, "spans", Kind::Many(&SPAN))];
static SCOPE: [Field; 2] = [Field(1, "name", Kind::Text), Field(2, "version", Kind::Text)];
static SPAN: [Field; 9] = [
    Field(1, "traceId", Kind::Id),
    Field(2, "spanId", Kind::Id),
    Field(4, "parentSpanId", Kind::Id),
    Field(5, "name", Kind::Text),
    Field(6, "kind", Kind::Enum),
    Field(7, "startTimeUnixNano", Kind::Fixed64),
    Field(8, "endTimeUnixNano", Kind::Fixed64),
    Field(9, "attributes", Kind::Many(&ATTRIBUTE)),
    Field(15, "status", Kind::One(&STATUS)),
];
static STATUS: [Field; 2] = [Field(2, "message", Kind::Text), Field(3, "code", Kind::Enum)];
static ATTRIBUTE: [Field; 2] = [Field(1, "key", Kind::Text), Field(2, "value", Kind::One(&ANY))];
static ANY: [Field; 3] =
    [Field(1, "stringValue", Kind::Text), Field(3, "intValue", Kind::Int64), Field(5, "arrayValue", Kind::One(&ARRAY))];
static ARRAY: [Field; 1] = [Field(1, "values", Kind::Many(&ANY))];

fn message(mut bytes: &[u8], fields: &[Field]) -> Value {
    let mut value = Map::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let Field(_, name, kind) = fields.iter().find(|field| field.0 == key >> 3).expect("a known field");
        let read = match (kind, key & 7) {
            (Kind::Int64, 0) => json!(varint(&mut bytes).to_string()),
            (Kind::Enum, 0) => json!(varint(&mut bytes)),
            (Kind::Fixed64, 1) => {
                let number: [u8; 8] = take(&mut bytes, 8).try_into().expect("eight bytes");
                json!(u64::from_le_bytes(number).to_string())
            }
            (Kind::Text, 2) => json!(std::str::from_utf8(delimited(&mut bytes)).expect("UTF-8")),
            (Kind::Id, 2) => json!(delimited(&mut bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
            (Kind::One(inner) | Kind::Many(inner), 2) => message(delimited(&mut bytes), inner),
            (_, wire) => panic!("{name} has the wire type {wire}"),
        };
        match kind {
            Kind::Many(_) => {
                let list = value.entry(*name).or_insert_with(|| json!([]));
                list.as_array_mut().expect("a list").push(read);
            }
            _ => assert_eq!(value.insert((*name).to_owned(), read), None, "{name} is repeated"),
        }
    }
    Value::Object(value)
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than ten bytes")
}

fn delimited<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = varint(bytes);
    take(bytes, usize::try_from(length).expect("a length"))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at_checked(length).expect("a message that is not cut off");
    *bytes = rest;
    taken
}
