//! The providers of models by name: those that ken knows, and those of `[model.provider.NAME]` in ken.toml. A table with a known
//! name changes only the fields that it sets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::secrets::is_name;
use crate::{Error, uri};

/// The tables `[model.provider.NAME]`, by name.
pub type Providers = BTreeMap<String, ProviderTable>;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Chat completions of OpenAI, which most servers offer.
    OpenAi,
    /// Messages of Anthropic.
    Anthropic,
}

/// What ken.toml says of a provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTable {
    /// The wire format. If absent, that of the known provider, or else `openai`.
    pub kind: Option<Kind>,
    /// The address, to which `/chat/completions` is added, or `/v1/messages` for `anthropic`.
    pub base_url: Option<String>,
    /// The name of the key in secrets.env. If empty, no key is sent.
    pub key: Option<String>,
    /// Headers that every request gets. A value `secret:NAME` is taken from secrets.env.
    pub headers: BTreeMap<String, String>,
    pub options: CallOptions,
    /// Models that `/model` can choose besides those of `[model] use`.
    pub models: Vec<String>,
    /// How long the provider may send nothing, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The context window of its models, in tokens.
    pub context: Option<u64>,
}

/// Options of every call. What is absent is left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallOptions {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// The maximum length of an answer, in tokens.
    pub max_tokens: Option<u64>,
    pub reasoning_effort: Option<String>,
    pub seed: Option<i64>,
}

/// A provider that needs no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownProvider {
    pub name: &'static str,
    pub kind: Kind,
    /// The address of its service, or of a server on this machine with its usual port. `None` if there is no usual one.
    pub base_url: Option<&'static str>,
    /// The name of its key. A server on this machine needs none.
    pub key: Option<&'static str>,
}

const fn service(name: &'static str, base_url: &'static str, key: &'static str) -> KnownProvider {
    KnownProvider { name, kind: Kind::OpenAi, base_url: Some(base_url), key: Some(key) }
}

const fn server(name: &'static str, base_url: Option<&'static str>) -> KnownProvider {
    KnownProvider { name, kind: Kind::OpenAi, base_url, key: None }
}

/// The known providers, each with the address that its documentation gives for the format of OpenAI.
pub const KNOWN_PROVIDERS: [KnownProvider; 13] = [
    server("ollama", Some("http://127.0.0.1:11434/v1")),
    server("lmstudio", Some("http://127.0.0.1:1234/v1")),
    server("llamacpp", Some("http://127.0.0.1:8080/v1")),
    // Its usual port is 8000, which is that of ken-cognitive, so its address has to be given.
    server("vllm", None),
    service("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    KnownProvider {
        name: "anthropic",
        kind: Kind::Anthropic,
        base_url: Some("https://api.anthropic.com"),
        key: Some("ANTHROPIC_API_KEY"),
    },
    service("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    service("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    service("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    service("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    service("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    service("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    service("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
];

/// Names that mean engines of ken-model and no provider.
pub const RESERVED_NAMES: [&str; 3] = ["rules", "script", "local"];

pub fn known_provider(name: &str) -> Option<KnownProvider> {
    KNOWN_PROVIDERS.into_iter().find(|known| known.name == name)
}

/// Returns the names of the keys that these providers and the known ones may need.
pub fn key_names(tables: &Providers) -> impl Iterator<Item = &str> {
    let known = KNOWN_PROVIDERS.iter().filter_map(|known| known.key);
    let headers = tables.values().flat_map(|table| table.headers.values().filter_map(|value| secret_name(value)));
    known.chain(tables.values().filter_map(|table| table.key.as_deref()).filter(|key| !key.is_empty())).chain(headers)
}

/// Returns the name of the secret that the value of a header stands for.
pub fn secret_name(value: &str) -> Option<&str> {
    value.strip_prefix("secret:")
}

/// A provider as it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub name: String,
    pub kind: Kind,
    /// Without a slash at its end.
    pub base_url: String,
    /// The name of its key.
    pub key: Option<String>,
    /// Whether it cannot be called without that key: it is a public service, or ken.toml names the key.
    pub needs_key: bool,
    /// Whether it is the service of the company that defined the format.
    pub is_origin: bool,
    pub table: ProviderTable,
}

/// Returns the provider with this name. `setting` returns `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`; a `base_url` in the table takes
/// precedence over them. Fails with `invalid` if there is no such provider, or if its address is missing or cannot be one.
pub fn resolve(name: &str, tables: &Providers, setting: impl Fn(&str) -> Option<String>) -> Result<Resolved, Error> {
    let known = known_provider(name);
    let table = tables.get(name);
    if known.is_none() && table.is_none() {
        return Err(unknown_provider(name, tables));
    }
    let table = table.cloned().unwrap_or_default();
    let variable = match name {
        "openai" => Some("OPENAI_BASE_URL"),
        "anthropic" => Some("ANTHROPIC_BASE_URL"),
        _ => None,
    };
    let public = known.and_then(|known| known.base_url);
    let of_variable = variable.and_then(|variable| Some((variable.to_owned(), setting(variable)?)));
    let of_table = table.base_url.clone().map(|url| (format!("model.provider.{name}.base_url"), url));
    let given = of_table.or(of_variable);
    let (at, url) = given
        .or_else(|| public.map(|url| (String::new(), url.to_owned())))
        .ok_or_else(|| Error::invalid(format!("model.provider.{name}"), no_address(name)).hint(ADDRESS_HINT))?;
    if let Some(problem) = address_problem(&url) {
        return Err(Error::invalid(at, problem).hint(ADDRESS_HINT));
    }
    let base_url = url.trim().trim_end_matches('/').to_owned();
    let is_public = public.is_some_and(|public| public == base_url) && known.is_some_and(|known| known.key.is_some());
    let kind = kind_of(name, tables);
    let key = match &table.key {
        Some(key) if key.is_empty() => None,
        Some(key) => Some(key.clone()),
        None => known.and_then(|known| known.key).map(str::to_owned),
    };
    let needs_key = key.is_some() && (is_public || table.key.is_some());
    let is_origin = is_public && variable.is_some();
    Ok(Resolved { name: name.to_owned(), kind, base_url, key, needs_key, is_origin, table })
}

/// Returns the wire format of a provider.
pub fn kind_of(name: &str, tables: &Providers) -> Kind {
    let own = tables.get(name).and_then(|table| table.kind);
    own.or(known_provider(name).map(|known| known.kind)).unwrap_or(Kind::OpenAi)
}

/// Returns the error for the name of a provider that is neither known nor in ken.toml.
pub fn unknown_provider(name: &str, tables: &Providers) -> Error {
    let own = tables.keys().map(String::as_str);
    let mut names: Vec<&str> = own.chain(KNOWN_PROVIDERS.iter().map(|known| known.name)).collect();
    names.extend(RESERVED_NAMES);
    names.sort_unstable();
    names.dedup();
    let error = Error::invalid("", format!("there is no model provider `{name}`"));
    error.hint(format!(
        "a list like `openai/gpt-4o,rules`; known providers: {}; others have a table [model.provider.NAME] in ken.toml",
        names.join(", ")
    ))
}

const ADDRESS_HINT: &str = "base_url is the address before /chat/completions, such as http://127.0.0.1:8000/v1";

fn no_address(name: &str) -> String {
    format!("the provider `{name}` has no address: base_url is missing")
}

/// Returns why a text cannot be the address of a provider.
fn address_problem(url: &str) -> Option<String> {
    let url = url.trim().trim_end_matches('/');
    let Some(rest) = uri::after_http(url) else {
        return Some("it is not an http or https address".to_owned());
    };
    if url.contains(char::is_whitespace) || url.contains(['?', '#']) {
        return Some("an address has no blanks, `?` and `#`".to_owned());
    }
    if rest.split('/').next().is_some_and(|host| host.contains('@')) {
        return Some("a password does not belong into an address; `key` names one in secrets.env".to_owned());
    }
    let ending =
        ["/chat/completions", "/messages", "/responses", "/completions"].into_iter().find(|end| url.ends_with(end));
    ending.map(|ending| format!("it ends in {ending}, which ken adds itself"))
}

const MAX_TIMEOUT_MS: u64 = 3_600_000;
const MAX_TOKENS: u64 = 1_000_000_000;

/// Returns what is wrong with the tables, each with the keys of its place below `model.provider`.
pub fn problems(tables: &Providers) -> Vec<(Vec<&str>, String)> {
    let mut found = Vec::new();
    for (name, table) in tables {
        let place = |key| vec![name.as_str(), key];
        let mut say = |key, message: String| found.push((place(key), message));
        if let Some(problem) = name_problem(name) {
            say("", problem);
        }
        match &table.base_url {
            None if known_provider(name).is_none_or(|known| known.base_url.is_none()) => {
                say("", format!("{}; {ADDRESS_HINT}", no_address(name)));
            }
            None => {}
            Some(url) => {
                if let Some(problem) = address_problem(url) {
                    say("base_url", format!("{problem}; {ADDRESS_HINT}"));
                }
            }
        }
        if table.key.as_ref().is_some_and(|key| !key.is_empty() && !is_name(key)) {
            // The text may be a key, so it is not repeated.
            say("key", "this is not the name of a variable; the key itself belongs into secrets.env".to_owned());
        }
        for (header, value) in &table.headers {
            if let Some(problem) = header_problem(header, value) {
                say("headers", format!("{header}: {problem}"));
            }
        }
        for (key, problem) in table.options.problems() {
            say("options", format!("{key}: {problem}"));
        }
        if table.models.iter().any(|model| model.trim().is_empty() || model.contains(',')) {
            say("models", "a model has a name, without a comma".to_owned());
        }
        for (key, value, max) in
            [("timeout_ms", table.timeout_ms, MAX_TIMEOUT_MS), ("context", table.context, MAX_TOKENS)]
        {
            if value.is_some_and(|value| !(1..=max).contains(&value)) {
                say(key, format!("it is 1 to {max}"));
            }
        }
    }
    found
}

/// Returns why a provider cannot have this name.
pub fn name_problem(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(is_plain) {
        return Some("a provider has a name of a-z, 0-9, - and _".to_owned());
    }
    RESERVED_NAMES.contains(&name).then(|| format!("`{name}` is an engine of ken and no provider"))
}

fn header_problem(name: &str, value: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_fixed = ["host", "content-length", "content-type", "transfer-encoding", "connection", "accept"];
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("this is not the name of a header");
    }
    if is_fixed.contains(&name.to_ascii_lowercase().as_str()) {
        return Some("ken sets this header itself");
    }
    if secret_name(value).is_some_and(|name| !is_name(name)) {
        return Some("secret: is followed by the name of a variable");
    }
    let is_visible = value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    (!is_visible).then_some("a value has no control characters and no letters beyond ASCII")
}

impl CallOptions {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if self.temperature.is_some_and(|value| !(0.0..=2.0).contains(&value)) {
            found.push(("temperature", "it is 0 to 2".to_owned()));
        }
        if self.top_p.is_some_and(|value| !(value > 0.0 && value <= 1.0)) {
            found.push(("top_p", "it is above 0 and at most 1".to_owned()));
        }
        if self.max_tokens.is_some_and(|value| !(1..=MAX_TOKENS).contains(&value)) {
            found.push(("max_tokens", format!("it is 1 to {MAX_TOKENS}")));
        }
        if self.reasoning_effort.as_ref().is_some_and(|effort| effort.trim().is_empty()) {
            found.push(("reasoning_effort", "it is empty".to_owned()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> Providers {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_table_with_a_known_name_changes_only_what_it_sets() {
        let none = Providers::new();
        let groq = resolve("groq", &none, |_| None).unwrap();
        assert_eq!(
            (groq.base_url.as_str(), groq.key.as_deref(), groq.needs_key),
            ("https://api.groq.com/openai/v1", Some("GROQ_API_KEY"), true)
        );
        let own = tables(
            r#"{"groq": {"base_url": "http://proxy:1/v1/"}, "openai": {"key": ""}, "box": {"base_url": "http://box/v1", "key": "BOX"}}"#,
        );
        let groq = resolve("groq", &own, |_| None).unwrap();
        assert_eq!(
            (groq.base_url.as_str(), groq.key.as_deref(), groq.needs_key),
            ("http://proxy:1/v1", Some("GROQ_API_KEY"), false)
        );
        let openai = resolve("openai", &own, |_| Some("http://other/v1".into())).unwrap();
        assert_eq!((openai.base_url.as_str(), openai.key), ("http://other/v1", None));
        let own_box = resolve("box", &own, |_| None).unwrap();
        assert_eq!((own_box.kind, own_box.key.as_deref(), own_box.needs_key), (Kind::OpenAi, Some("BOX"), true));
        let ollama = resolve("ollama", &none, |_| None).unwrap();
        assert!(!ollama.needs_key && ollama.key.is_none() && !ollama.is_origin);
        assert!(resolve("openai", &none, |_| None).unwrap().is_origin);
    }

    #[test]
    fn the_address_of_a_table_outranks_the_variable() {
        let own = tables(r#"{"openai": {"base_url": "http://table/v1"}}"#);
        assert_eq!(resolve("openai", &own, |_| Some("http://variable/v1".into())).unwrap().base_url, "http://table/v1");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let none = Providers::new();
        assert!(resolve("opnai", &none, |_| None).unwrap_err().message.contains("opnai"));
        assert!(resolve("vllm", &none, |_| None).unwrap_err().message.contains("base_url is missing"));
        for (table, place, part) in [
            (r#"{"x": {}}"#, "x.", "base_url is missing"),
            (r#"{"X y": {"base_url": "http://a"}}"#, "X y.", "a-z"),
            (r#"{"rules": {"base_url": "http://a"}}"#, "rules.", "engine"),
            (r#"{"x": {"base_url": "http://a/v1/chat/completions"}}"#, "x.base_url", "ken adds itself"),
            (r#"{"x": {"base_url": "ftp://a"}}"#, "x.base_url", "http or https"),
            (r#"{"x": {"base_url": "http://u:p@a"}}"#, "x.base_url", "password"),
            (r#"{"x": {"base_url": "http://a", "key": "sk-abc"}}"#, "x.key", "secrets.env"),
            (r#"{"x": {"base_url": "http://a", "headers": {"a b": "c"}}}"#, "x.headers", "a b"),
            (r#"{"x": {"base_url": "http://a", "headers": {"host": "c"}}}"#, "x.headers", "itself"),
            (r#"{"x": {"base_url": "http://a", "options": {"temperature": 2.1}}}"#, "x.options", "0 to 2"),
            (r#"{"x": {"base_url": "http://a", "options": {"top_p": 0}}}"#, "x.options", "top_p"),
            (r#"{"x": {"base_url": "http://a", "timeout_ms": 0}}"#, "x.timeout_ms", "1 to"),
            (r#"{"x": {"base_url": "http://a", "models": ["a,b"]}}"#, "x.models", "comma"),
        ] {
            let tables = tables(table);
            let found = problems(&tables);
            assert_eq!(found.len(), 1, "{table}: {found:?}");
            let (keys, message) = &found[0];
            assert!(keys.join(".") == place && message.contains(part), "{table}: {found:?}");
            assert!(!message.contains("sk-abc"));
        }
        assert_eq!(
            problems(&tables(
                r#"{"groq": {}, "x": {"base_url": "http://a", "key": "", "options": {"temperature": 2, "top_p": 1, "seed": -1}}}"#
            )),
            []
        );
    }
}
