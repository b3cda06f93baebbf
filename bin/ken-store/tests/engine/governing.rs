//! Rules of users: how many there can be.

use ken_types::Code;
use ken_types::ops::Nothing;
use ken_types::ops::rules::*;
use serde_json::json;

use crate::kit::*;

fn rule(name: &str, text: &str) -> PutRule {
    serde_json::from_value(json!({"rule": {"name": name, "directives": [{"text": text}]}})).unwrap()
}

#[tokio::test]
async fn there_are_256_rules_at_most_and_each_can_be_replaced() {
    let kit = Kit::new();
    for number in 0..256 {
        kit.write::<RulesPut>(rule(&format!("r{number}"), "Be brief.")).await.unwrap();
    }
    let refused = kit.write::<RulesPut>(rule("one-more", "x")).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused:?}");
    kit.write::<RulesPut>(rule("r255", "Be long.")).await.unwrap();
    assert_eq!(kit.read::<RulesList>(Nothing {}).await.unwrap().rules.len(), 256);
    kit.write::<RulesDelete>(NamedRule { name: "r7".into() }).await.unwrap();
    kit.write::<RulesPut>(rule("one-more", "x")).await.unwrap();
}
