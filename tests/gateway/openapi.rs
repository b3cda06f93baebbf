//! `/openapi.json` describes every answer of a running system.

use std::collections::BTreeSet;

use ken_tests::{Contract, System, scripted, tui};
use serde_json::{Value, json};

const SCOPE: &str = "connector=tui&actorId=a&conversationId=c";

/// Client generators need a discriminator to read a union, and treat an object without described fields as empty.
#[test]
fn generators_can_read_the_documents() {
    let gateway = Contract::get().document();
    for (union, own_field) in [("Event", ("text_delta", "text")), ("SystemEvent", ("run.ended", "runId"))] {
        let schema = &gateway["components"]["schemas"][union];
        assert_eq!(schema["discriminator"]["propertyName"], "type");
        let mapping = schema["discriminator"]["mapping"].as_object().unwrap();
        let variants = schema["oneOf"].as_array().unwrap();
        assert_eq!(mapping.len(), variants.len());
        for (kind, reference) in mapping {
            assert!(variants.iter().any(|variant| variant["$ref"] == *reference), "{reference}");
            let variant = gateway.pointer(&reference.as_str().unwrap()[1..]).unwrap();
            assert_eq!(variant["allOf"][1]["properties"]["type"]["const"], **kind, "{reference}");
        }
        let (kind, field) = own_field;
        let variant = gateway.pointer(&mapping[kind].as_str().unwrap()[1..]).unwrap();
        assert!(variant["allOf"][1]["properties"][field].is_object(), "{variant}");
    }
    for method in ["put", "post"] {
        let content = &gateway["paths"]["/streams/{path}"][method]["requestBody"]["content"];
        for (media, body) in content.as_object().unwrap() {
            assert!(body["schema"].is_object(), "{method} {media}");
        }
    }
    for document in [gateway, Contract::cognitive().document()] {
        check_objects(document, "");
    }
}

fn check_objects(value: &Value, at: &str) {
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                check_objects(item, &format!("{at}/{place}"));
            }
        }
        Value::Object(fields) => {
            let kind = fields.get("type");
            let is_object = kind == Some(&json!("object")) || kind == Some(&json!(["object", "null"]));
            let says = ["properties", "additionalProperties", "allOf"];
            assert!(!is_object || says.iter().any(|name| fields.contains_key(*name)), "{at}");
            for (name, field) in fields {
                check_objects(field, &format!("{at}/{name}"));
            }
        }
        _ => {}
    }
}

/// Every operation: path, method and its description.
fn operations() -> Vec<(String, String, Value)> {
    let rows = Contract::get().document()["paths"].as_object().unwrap();
    let of_row = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(|(method, operation)| (path.clone(), method.to_uppercase(), operation.clone())).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => drop(found.insert(reference.clone())),
            _ => references(value, found),
        }),
        _ => {}
    }
}

#[test]
fn the_document_is_complete() {
    let document = Contract::get().document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = BTreeSet::new();
    references(document, &mut found);
    for reference in &found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    for kind in ["parameters", "responses", "schemas"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let used = found.contains(&format!("#/components/{kind}/{name}"));
            // The answer to an unknown method belongs to no operation.
            assert!(used || name == "MethodNotAllowed", "{kind}/{name} is not used");
        }
    }
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations() {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id), "{method} {path}: its operationId is there twice");
        let resolved = |parameter: &Value| match parameter["$ref"].as_str() {
            Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap().clone(),
            None => parameter.clone(),
        };
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let in_path: BTreeSet<String> = parameters
            .map(resolved)
            .filter(|one| one["in"] == "path")
            .map(|one| format!("{{{}}}", one["name"].as_str().unwrap()))
            .collect();
        let segments = path.split('/').filter(|segment| segment.starts_with('{')).map(str::to_owned);
        assert_eq!(in_path, segments.collect(), "{method} {path}");
    }
}

/// Every operation documents the common answers in addition to its own: to a malformed head, an unauthenticated caller,
/// or a slow or large body.
#[test]
fn every_operation_has_the_common_answers_of_its_area() {
    for (path, method, operation) in operations() {
        let answers = operation["responses"].as_object().unwrap();
        let guarded = ["/api/", "/agents/", "/workflows/", "/runs", "/streams", "/v1/", "/mcp"]
            .iter()
            .any(|area| path.starts_with(area));
        let common = if guarded {
            &["400", "401", "403", "408", "413", "415", "429", "431", "500", "503"][..]
        } else {
            &["400", "408", "429", "431", "500", "503"]
        };
        for status in common {
            assert!(answers.contains_key(*status), "{method} {path}: no {status}");
        }
        // The code of a link is its own key: it is used once. Appends and messages of the messenger have ids.
        let takes_no_keys = ["/streams", "/channels", "/console"].iter().any(|area| path.starts_with(area));
        let takes_keys = method == "POST" && !takes_no_keys;
        let key = json!({"$ref": "#/components/parameters/Key"});
        let given = operation["parameters"].as_array().into_iter().flatten();
        assert_eq!(given.into_iter().any(|one| *one == key), takes_keys, "{method} {path}: Idempotency-Key");
        assert_eq!(operation["security"] == json!([]), !guarded, "{method} {path}: security");
    }
}

/// The client of the tests checks each answer against the document, so this test only sends requests.
#[test]
fn every_route_answers_as_the_document_says() {
    let system = scripted();
    let served = system.get("/openapi.json").expect(200).json();
    assert_eq!(&served, Contract::get().document());
    system.get("/health").expect(200);
    system.get("/ready").expect(200);
    answers_of_chat(&system);
    answers_of_knowledge(&system);
    answers_of_agents(&system);
    for (path, method, operation) in operations() {
        let target = path.replace(['{', '}'], "");
        let mut client = system.client();
        if operation["summary"].as_str().unwrap().starts_with("Not part") {
            let answer = client.request(&method, &target).send().expect(503);
            assert!(answer.is_to_head || !answer.body.is_empty());
        }
        // Any other method of the same path.
        let answer = client.request("TRACE", &target).header("Content-Length", "0").send().expect(405);
        let allowed: BTreeSet<&str> = answer.header("allow").unwrap().split(", ").collect();
        let documented = Contract::get().methods(&path);
        assert_eq!(allowed, documented.iter().map(String::as_str).collect(), "{path}");
    }
}

fn answers_of_chat(system: &System) {
    let session = system.session();
    for text in ["hello", "think", "tools", "length", "/session", "/compact", "/help", "/nothing"] {
        system.say(&session, text).expect(200);
    }
    system.say(&session, "refused").expect(500);
    system.say(&session, "/rename").expect(400);
    system.say(&session, "/resume nowhere").expect(404);
    let resume = format!("/api/chat/sessions/{session}/resume");
    system.post(&resume, &tui(&[])).expect(200);
    system.post("/api/chat/sessions/nothing/resume", &tui(&[])).expect(201);
    system.get(&format!("/api/chat/sessions?{SCOPE}&limit=1")).expect(200);
    system.get(&format!("/api/chat/sessions/{session}/transcript?{SCOPE}&limit=3")).expect(200);
    system.post(&format!("/api/chat/sessions/{session}/cancel"), &tui(&[])).expect(200);
    system.delete(&format!("/api/chat/sessions/{session}?{SCOPE}")).expect(200);
    system.get(&format!("/api/chat/sessions?{SCOPE}&archived=1")).expect(200);
}

fn answers_of_knowledge(system: &System) {
    let entry = json!({"title": "t", "content": "c", "tags": ["x"]});
    let id = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    system.get("/api/knowledge?q=c").expect(200);
    system.get(&format!("/api/knowledge/{id}")).expect(200);
    let job = system.post("/api/knowledge/reindex", &json!({})).expect(202).text("/jobId");
    system.get(&format!("/api/knowledge/reindex/{job}")).expect(200);
    system.delete(&format!("/api/knowledge/{id}")).expect(200);
    system.get(&format!("/api/knowledge/{id}")).expect(404);
    system.get("/api/knowledge/reindex/nothing").expect(404);
}

fn answers_of_agents(system: &System) {
    let agent = "/agents/orchestrator/x";
    system.get(agent).expect(404);
    system.post(&format!("{agent}?wait=result"), &json!({"message": "tools"})).expect(200);
    system.post(&format!("{agent}?wait=result"), &json!({"message": "refused"})).expect(500);
    system.post(agent, &json!({"message": "hello"})).expect(202);
    let etag = system.get(agent).expect(200);
    let etag = etag.header("etag").unwrap().to_owned();
    let mut client = system.client();
    client.request("HEAD", agent).send().expect(200);
    let again = client.request("GET", &format!("{agent}?tail=2&offset=-1")).header("If-None-Match", &etag);
    again.send().expect(200);
    system.get(&format!("{agent}?offset=-1&live=long-poll")).expect(200);
    system.post(&format!("{agent}/abort"), &json!({})).expect(200);
}
