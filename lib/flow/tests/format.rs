//! Tests of the workflow format: valid and invalid files, the position of errors, and the folders of a catalog.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use ken_flow::{
    Catalog, Data, Definition, MAX_FILE_BYTES, MAX_ITEMS, MAX_NESTING, MAX_ROUNDS, MAX_STEPS, MAX_TIMEOUT_MS, Mode,
    Protocols,
};
use ken_types::{Code, Error};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parse(document: &Value) -> Result<Definition, Error> {
    Definition::parse(&document.to_string(), Path::new("some/file.json"), &Protocols::shipped())
}

fn steps(items: Value) -> Value {
    json!({"name": "w", "steps": items})
}

/// The error of a document: `at` and the message.
#[track_caller]
fn refused(document: &Value) -> (String, String) {
    let error = parse(document).map(|_| document).unwrap_err();
    assert_eq!(error.code, Code::Invalid, "{error}");
    assert!(error.message.starts_with("some/file.json: "), "{error}");
    (error.at.unwrap(), error.message)
}

/// One case per line: wrong items, a pointer to the error in the file, and a part of the message.
const WRONG_ITEMS: &str = r#"{} | /steps | must be a list
[] | /steps | must have at least one item
["ESL"] | /steps/0 | must be an object, not text
[{"step": "ESL"}, {"stp": "ESL"}] | /steps/1 | unknown item {stp}
[{"step": "XYZ"}] | /steps/0/step | unknown step `XYZ`
[{"step": 5}] | /steps/0/step | must be text, not 5
[{"step": "ESL", "timeout": 5}] | /steps/0/timeout | unknown field `timeout`
[{"step": "ESL", "timeout_ms": 0}] | /steps/0/timeout_ms | from 1 to 600000, not 0
[{"step": "ESL", "timeout_ms": 1.5}] | /steps/0/timeout_ms | whole number
[{"step": "ESL", "id": "a/b"}] | /steps/0/id | is not a valid name
[{"step": "ESL"}, {"step": "ESL"}] | /steps/1/step | two steps `ESL`
[{"step": "ESL"}, {"step": "REP", "id": "ESL"}] | /steps/1/id | two steps `ESL`
[{"parallel": [{"step": "ESL"}], "id": "x"}] | /steps/0/id | unknown field
[{"parallel": [{"step": "ESL"}, {"loop": 2}]}] | /steps/0/parallel/1/steps | missing field `steps`
[{"loop": 101, "steps": [{"step": "ESL"}]}] | /steps/0/loop | from 1 to 100
[{"loop": 100, "steps": [{"loop": 100, "steps": [{"step": "ESL"}]}]}] |  | would make 10000 steps
[{"step": "ESL", "when": {"exists": "/dta/x"}}] | /steps/0/when/exists | `/dta/x` is not a valid reference
[{"step": "ESL", "when": {"exists": "/results/REP"}}] | /steps/0/when/exists | there is no step `REP`
[{"step": "ESL", "when": {}}] | /steps/0/when | a condition is one of
[{"step": "ESL", "when": {"not": {"eval": "1"}}}] | /steps/0/when/not/eval | unknown field `eval`
[{"step": "ESL", "when": {"compare": ["/data/n", "~", 1]}}] | /steps/0/when/compare/1 | unknown order
[{"step": "ESL", "when": {"compare": ["/data/n", "<", "1"]}}] | /steps/0/when/compare/2 | a number
[{"step": "ESL", "when": {"all": [{"equals": ["/data/n"]}]}}] | /steps/0/when/all/0/equals | two parts
[{"step": "ESL", "input": {"a": ["{{/data/x"]}}] | /steps/0/input/a/0 | has no end
[{"step": "ESL", "input": "{{/data/x||/data/y}}"}] | /steps/0/input | only the last reference
[{"step": "ESL", "input": {"a": "x {{/results/none}}"}}] | /steps/0/input/a | there is no step `none`"#;

#[test]
fn whatever_is_unknown_or_wrong_is_named_with_its_place() {
    let nested = |depth: usize| (0..depth).fold(json!([{"step": "ESL"}]), |items, _| json!([{ "parallel": items }]));
    let many: Vec<Value> = (0..=MAX_ITEMS).map(|n| json!({"step": "ESL", "id": format!("s{n}")})).collect();
    let rows = WRONG_ITEMS.lines().map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        (serde_json::from_str(cells[0]).unwrap(), cells[1], cells[2])
    });
    let too_deep = "/steps".to_owned() + &"/0/parallel".repeat(MAX_NESTING + 1);
    let too_many = format!("/steps/{MAX_ITEMS}");
    let made =
        [(nested(MAX_NESTING + 1), too_deep.as_str(), "nested deeper"), (json!(many), &too_many, "more than 64 items")];
    for (items, at, words) in rows.chain(made) {
        let (found, message) = refused(&steps(items.clone()));
        assert_eq!(found, at, "{items}: {message}");
        assert!(message.contains(words), "{items}: {message}");
    }
    assert!(parse(&steps(nested(MAX_NESTING))).is_ok());
}

/// Each limit: a document at it is accepted, one beyond it is refused.
#[test]
fn the_limits_of_a_document() {
    let step = |id: &str| json!({"step": "ESL", "id": id});
    let loops =
        |outer: u64, inner: u64| steps(json!([{"loop": outer, "steps": [{"loop": inner, "steps": [step("s")]}]}]));
    let rounds = |rounds: u64| steps(json!([{"loop": rounds, "steps": [step("s")]}]));
    let many = |count: usize| steps((0..count).map(|number| step(&format!("s{number}"))).collect());
    let condition = |depth: usize| {
        let when = (0..depth).fold(json!({"exists": "/data/x"}), |inner, _| json!({"not": inner}));
        steps(json!([{"step": "ESL", "when": when}]))
    };
    let timeout = |ms: u64| steps(json!([{"step": "ESL", "timeout_ms": ms}]));
    let named = |length: usize| json!({"name": "w".repeat(length), "steps": [step("s")]});
    let sized = |bytes: usize| {
        let document = |text: &str| json!({"name": "w", "description": text, "steps": [step("s")]});
        document(&"x".repeat(bytes - document("").to_string().len()))
    };
    let total = MAX_STEPS / 100;
    for (case, fitting, wrong) in [
        ("items", many(MAX_ITEMS), many(MAX_ITEMS + 1)),
        ("steps", loops(100, total), loops(100, total + 1)),
        ("rounds", rounds(MAX_ROUNDS), rounds(MAX_ROUNDS + 1)),
        ("conditions", condition(8), condition(9)),
        ("timeout", timeout(MAX_TIMEOUT_MS), timeout(MAX_TIMEOUT_MS + 1)),
        ("name", named(64), named(65)),
        ("size", sized(MAX_FILE_BYTES), sized(MAX_FILE_BYTES + 1)),
    ] {
        assert!(parse(&fitting).is_ok(), "{case}: {:?}", parse(&fitting).err());
        assert!(parse(&wrong).is_err(), "{case}");
    }
    let protocols = Protocols::shipped();
    for (count, fits) in [(MAX_ITEMS, true), (MAX_ITEMS + 1, false)] {
        let names = vec!["ESL"; count];
        assert_eq!(Definition::of_protocols(&names, Mode::Sequential, &protocols).is_ok(), fits, "{count}");
    }
}

#[test]
fn the_outer_fields_are_checked() {
    for (document, at) in [
        (json!([]), ""),
        (json!({"steps": [{"step": "ESL"}]}), "/name"),
        (json!({"name": "w"}), "/steps"),
        (json!({"name": "../w", "steps": [{"step": "ESL"}]}), "/name"),
        (json!({"name": "w", "version": 1, "steps": [{"step": "ESL"}]}), "/version"),
        (json!({"name": "w", "public": "yes", "steps": [{"step": "ESL"}]}), "/public"),
        (
            json!({"name": "w", "schema": {"properties": {"a": {"oneOf": []}}}, "steps": [{"step": "ESL"}]}),
            "/schema/properties/a/oneOf",
        ),
        (json!({"name": "w", "schema": {"type": "text"}, "steps": [{"step": "ESL"}]}), "/schema/type"),
    ] {
        assert_eq!(refused(&document).0, at, "{document}");
    }
    for text in ["", "{", r#"{"name":"w","name":"w","steps":[{"step":"ESL"}]}"#] {
        let error = Definition::parse(text, Path::new("f"), &Protocols::shipped()).unwrap_err();
        assert_eq!(error.code, Code::Invalid, "{text}");
    }
}

#[test]
fn a_schema_says_what_the_data_may_be() {
    let document = json!({"name": "w", "steps": [{"step": "ESL"}], "schema": {
        "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 5},
            "depth": {"enum": ["basic", "deep"]},
            "n": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}}
        }
    }});
    let workflow = parse(&document).unwrap();
    for (data, at) in [
        (json!({"text": "é is 1"}), Some("/text")),
        (json!({"text": "éèàü!", "n": 9.0, "list": [true], "depth": "deep"}), None),
        (json!({"text": "a", "n": null}), None),
        (json!({}), Some("/text")),
        (json!({"text": ""}), Some("/text")),
        (json!({"text": 5}), Some("/text")),
        (json!({"text": "a", "n": 1.5}), Some("/n")),
        (json!({"text": "a", "n": 10}), Some("/n")),
        (json!({"text": "a", "depth": "odd"}), Some("/depth")),
        (json!({"text": "a", "list": [true, 1]}), Some("/list/1")),
        (json!({"text": "a", "list": [true, true, true]}), Some("/list")),
        (json!({"text": "a", "other": 1}), Some("/other")),
    ] {
        let checked = workflow.check(&Data::from_value(&data).unwrap());
        assert_eq!(checked.err().and_then(|error| error.at).as_deref(), at, "{data}");
    }
}

#[test]
fn a_schema_can_ask_for_one_of_several_fields_and_depend_on_a_value() {
    let document = json!({"name": "w", "steps": [{"step": "ESL"}], "schema": {
        "type": ["object", "array"],
        "minItems": 1,
        "properties": {
            "text": {"type": "string", "pattern": "\\S"},
            "decay": {"type": "number", "exclusiveMinimum": 0},
            "rule": {"prefixItems": [{"type": "array"}, {"type": "string"}], "minItems": 2, "items": {"type": "null"}}
        },
        "anyOf": [{"required": ["text"]}, {"required": ["rule"]}, {"type": "array"}],
        "allOf": [{"if": {"required": ["kind"]}, "then": {"required": ["events"]}}]
    }});
    let workflow = parse(&document).unwrap();
    for (data, refusal) in [
        (json!({"text": "x"}), None),
        (json!([1]), None),
        (json!([]), Some(("", "has too few items"))),
        (json!(7), Some(("", "must be of type object or array"))),
        (json!({"text": " \n"}), Some(("/text", "is blank"))),
        (json!({"text": "x", "decay": 0}), Some(("/decay", "is too low"))),
        (json!({"rule": [[], "c"]}), None),
        (json!({"rule": [[]]}), Some(("/rule", "has too few items"))),
        (json!({"rule": [[], 7]}), Some(("/rule/1", "must be of type string"))),
        (json!({"rule": [[], "c", 1]}), Some(("/rule/2", "must be of type null"))),
        (json!({"text": "x", "kind": 1}), Some(("/events", "missing field `events`"))),
        (json!({"text": "x", "kind": 1, "events": []}), None),
        (json!({}), Some(("", "missing field `text`; or missing field `rule`; or must be of type array"))),
    ] {
        let checked = workflow.check(&Data::from_value(&data).unwrap());
        let found = checked.err().map(|error| (error.at.unwrap_or_default(), error.message));
        let found = found.as_ref().map(|(at, message)| (at.as_str(), message.as_str()));
        assert_eq!(found, refusal, "{data}");
    }
    for (schema, at) in [
        (json!({"anyOf": []}), "/schema/anyOf"),
        (json!({"if": {}}), "/schema/if"),
        (json!({"pattern": "[a-z]+"}), "/schema/pattern"),
        (json!({"allOf": [{"not": {}}]}), "/schema/allOf/0/not"),
    ] {
        let document = json!({"name": "w", "steps": [{"step": "ESL"}], "schema": schema});
        assert_eq!(refused(&document).0, at, "{document}");
    }
}

#[test]
fn without_a_schema_the_input_is_an_object() {
    let workflow = parse(&json!({"name": "w", "steps": [{"step": "ESL"}]})).unwrap();
    for (data, is_taken) in [("{}", true), ("[]", false), ("null", false), ("\"x\"", false)] {
        assert_eq!(workflow.check(&Data::read(data).unwrap()).is_ok(), is_taken, "{data}");
    }
}

#[test]
fn a_workflow_of_names_alone() {
    let protocols = Protocols::shipped();
    let made = Definition::of_protocols(&["REP", "ESL", "REP"], Mode::Sequential, &protocols).unwrap();
    let ids: Vec<&str> = made.steps().iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["REP", "ESL", "REP-2"]);
    let error = Definition::of_protocols(&["REP", "RAP"], Mode::Parallel, &protocols).unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("/1")));
    assert!(Definition::of_protocols(&[], Mode::Parallel, &protocols).is_err());
}

/// Valid items, with `parallel` and `loop` nested.
fn items() -> impl Strategy<Value = Value> {
    let step = prop_oneof![
        Just(json!({"step": "ESL"})),
        Just(json!({"step": "REP", "timeout_ms": 5})),
        Just(json!({"step": "VVP", "when": {"exists": "/data/rules"}})),
        Just(json!({"step": "LAWS", "input": {"text": "{{/data/text|}}", "context": {"a": [1, "b"]}}})),
    ];
    let item = step.prop_recursive(4, 24, 3, |inner| {
        let list = prop::collection::vec(inner, 1..3);
        prop_oneof![
            list.clone().prop_map(|items| json!({ "parallel": items })),
            (1..4u64, list).prop_map(|(rounds, items)| json!({"loop": rounds, "steps": items})),
        ]
    });
    prop::collection::vec(item, 1..4).prop_map(|items| {
        let mut items = json!(items);
        number(&mut items, &mut 0);
        items
    })
}

/// Gives each step a unique id.
fn number(value: &mut Value, next: &mut usize) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| number(item, next)),
        Value::Object(fields) if fields.contains_key("step") => {
            *next += 1;
            fields.insert("id".to_owned(), json!(format!("s{next}")));
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| number(field, next)),
        _ => {}
    }
}

/// The pointers of all items.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{place}"), found);
            }
        }
        Value::Object(fields) if ["step", "parallel", "loop"].iter().any(|name| fields.contains_key(*name)) => {
            found.push(at.to_owned());
            for name in ["parallel", "steps"] {
                places(fields.get(name).unwrap_or(&Value::Null), &format!("{at}/{name}"), found);
            }
        }
        _ => {}
    }
}

/// Random JSON that contains words of the format.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "name", "steps", "step", "parallel", "loop", "when", "input", "id", "ESL", "/data/x", "{{/data/x}}", "exists",
        "schema", "w",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..200).prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..4).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_right_is_taken_and_one_unknown_field_is_found(items in items(), pick in any::<prop::sample::Index>()) {
        let document = steps(items);
        let workflow = parse(&document).unwrap();
        prop_assert!(!workflow.steps().is_empty());
        let mut found = Vec::new();
        places(&document["steps"], "/steps", &mut found);
        let at = pick.get(&found);
        let mut wrong = document.clone();
        wrong.pointer_mut(at).unwrap()["surprise"] = json!(1);
        prop_assert_eq!(refused(&wrong).0, format!("{at}/surprise"));
    }

    #[test]
    fn no_document_is_too_much(value in anything()) {
        for document in [value.clone(), steps(value.clone()), steps(json!([value]))] {
            if let Err(error) = parse(&document) {
                prop_assert_eq!(error.code, Code::Invalid);
                let at = error.at.unwrap();
                let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
                prop_assert!(document.pointer(&at).or(document.pointer(parent)).is_some(), "{} in {}", at, document);
            }
        }
    }
}

fn write(folder: &Path, name: &str, steps: &Value) {
    let text = json!({"name": name, "steps": steps}).to_string();
    fs::write(folder.join(format!("{name}.json")), text).unwrap();
}

fn catalog(folders: &[&Path]) -> Catalog {
    Catalog::new(folders.iter().map(|folder| folder.to_path_buf()).collect(), Protocols::shipped())
}

#[test]
fn a_wrong_file_does_not_take_the_others_with_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "good", &json!([{"step": "ESL"}]));
    write(folder.path(), "bad", &json!([{"step": "XYZ"}]));
    fs::write(folder.path().join("other.json"), r#"{"name":"renamed","steps":[{"step":"ESL"}]}"#).unwrap();
    fs::write(folder.path().join("notes.txt"), "not looked at").unwrap();
    let catalog = catalog(&[folder.path(), Path::new("/nowhere")]);
    let all = catalog.list();
    let names: Vec<(&str, bool)> = all.iter().map(|(name, found)| (name.as_str(), found.is_ok())).collect();
    assert_eq!(names, [("bad", false), ("good", true), ("other", false)]);
    // What cannot be read as a folder is named as well, and hides nothing.
    let unread = folder.path().join("notes.txt");
    let listed = self::catalog(&[unread.as_path(), folder.path()]).list();
    let error = listed[unread.to_str().unwrap()].as_ref().unwrap_err();
    assert!(listed.len() == 4 && error.message.contains("notes.txt"), "{error}");
    assert_eq!(catalog.find("good").unwrap().name(), "good");
    let error = catalog.find("bad").unwrap_err();
    assert!(error.message.contains("bad.json: unknown step `XYZ`"), "{error}");
    assert_eq!(error.at.as_deref(), Some("/steps/0/step"));
    assert!(catalog.find("other").unwrap_err().message.contains("is named `renamed`"));
    for name in ["none", "", "../good", "good.json", "/etc/passwd"] {
        let error = catalog.find(name).unwrap_err();
        assert_eq!((error.code, error.hint), (Code::NotFound, None), "{name}");
    }
    assert_eq!(catalog.find("god").unwrap_err().hint.as_deref(), Some("did you mean `good`?"));
}

#[test]
fn a_changed_file_is_seen_at_once_and_the_users_comes_first() {
    let (own, shipped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let catalog = catalog(&[own.path(), shipped.path()]);
    let first = || catalog.find("w").map(|workflow| workflow.steps()[0].protocol.clone());
    assert_eq!(first().unwrap_err().code, Code::NotFound);
    write(shipped.path(), "w", &json!([{"step": "ESL"}]));
    assert_eq!(first().unwrap(), "ESL");
    // All versions have the same length and are written within one clock tick, so metadata alone does not show the
    // change.
    for step in ["REP", "VVP", "ESL", "REP"] {
        write(own.path(), "w", &json!([{"step": step}]));
        assert_eq!(first().unwrap(), step);
    }
    fs::remove_file(own.path().join("w.json")).unwrap();
    assert_eq!(first().unwrap(), "ESL");
}

#[test]
fn what_is_shipped_is_right() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../share/workflows");
    let all = catalog(&[&folder]).list();
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "StandardReasoningWorkflow", "analyze_only", "full_governance", "full_reasoning", "governed_response",
            "writing_team"
        ]
    );
    for (name, found) in &all {
        assert!(!found.as_ref().unwrap().description().is_empty(), "{name}");
    }
}
