//! ken.toml as its owner has written it: comments, order and everything that a change does not name stay as they are.

use std::path::{Path, PathBuf};

use ken_types::Error;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

pub(crate) struct ConfigFile {
    path: PathBuf,
    document: DocumentMut,
    text: String,
}

/// What is set in `[model.provider.NAME]`. What is `None` is left as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProviderTable {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) base_url: Option<String>,
    /// The name of its key in secrets.env.
    pub(crate) key: Option<String>,
    pub(crate) models: Option<Vec<String>>,
}

impl ProviderTable {
    /// Whether it says nothing, as for a provider that ken knows.
    pub(crate) fn is_empty(&self) -> bool {
        *self == ProviderTable { name: self.name.clone(), ..ProviderTable::default() }
    }
}

impl ConfigFile {
    /// Reads the file. One that does not exist is empty. Fails if it is not TOML: no change could keep what its owner has written.
    pub(crate) fn open(path: &Path) -> Result<ConfigFile, Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::invalid(path.display().to_string(), format!("cannot be read: {error}"))),
        };
        let document = text.parse::<DocumentMut>().map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            Error::invalid(format!("{}:{line}", path.display()), error.message().to_owned())
                .hint("mend the file first; nothing was changed")
        })?;
        Ok(ConfigFile { path: path.to_owned(), document, text })
    }

    pub(crate) fn text(&self) -> String {
        self.document.to_string()
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.text() != self.text
    }

    /// Returns `[model] use`, or an empty text.
    pub(crate) fn used(&self) -> &str {
        let used = self.document.get("model").and_then(|model| model.get("use"));
        used.and_then(Item::as_str).unwrap_or_default()
    }

    pub(crate) fn use_models(&mut self, list: &str) -> Result<(), Error> {
        let path = self.path.clone();
        let end = self.end_comment();
        let model = table(self.document.as_table_mut(), "model", false, &path)?;
        set(model, "use", list.into());
        self.put_behind(end, |document| document.get_mut("model"));
        Ok(())
    }

    /// Takes the comments at the end of the file, if a table will be added there. They would otherwise stand behind it.
    fn end_comment(&mut self) -> Option<String> {
        if self.document.contains_key("model") {
            return None;
        }
        let end = self.document.trailing().as_str().map(str::to_owned).filter(|end| !end.is_empty())?;
        self.document.set_trailing("");
        Some(end)
    }

    /// Puts the comments before the table that was added.
    fn put_behind(&mut self, end: Option<String>, added: impl FnOnce(&mut DocumentMut) -> Option<&mut Item>) {
        let Some(end) = end else { return };
        if let Some(table) = added(&mut self.document).and_then(Item::as_table_mut) {
            table.decor_mut().set_prefix(end);
        }
    }

    pub(crate) fn set_provider(&mut self, provider: &ProviderTable) -> Result<(), Error> {
        let path = self.path.clone();
        let end = self.end_comment();
        // Without a key of its own, a table needs no header.
        let model = table(self.document.as_table_mut(), "model", true, &path)?;
        let providers = table(model, "provider", true, &path)?;
        let own = table(providers, &provider.name, false, &path)?;
        let texts = [("kind", &provider.kind), ("base_url", &provider.base_url), ("key", &provider.key)];
        for (name, value) in texts.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            set(own, name, value.as_str().into());
        }
        if let Some(models) = &provider.models {
            set(own, "models", Value::Array(models.iter().collect::<Array>()));
        }
        let name = provider.name.as_str();
        self.put_behind(end, |document| document.get_mut("model")?.get_mut("provider")?.get_mut(name));
        Ok(())
    }

    /// Writes the file, if anything has changed. Its mode and its owner stay. A symbolic link stays, too, and what it points to is written.
    pub(crate) fn save(&self) -> Result<(), Error> {
        if !self.is_changed() {
            return Ok(());
        }
        let target = std::fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        ken_trusted::rewrite(&target, self.text().as_bytes(), 0o644, None)
    }
}

/// Returns a table within another one, and adds it if it is missing. One that has only tables in it (`is_outer`) gets no header
/// of its own.
fn table<'a>(
    within: &'a mut dyn TableLike,
    name: &str,
    is_outer: bool,
    path: &Path,
) -> Result<&'a mut dyn TableLike, Error> {
    if !within.contains_key(name) {
        let mut fresh = Table::new();
        fresh.set_implicit(is_outer);
        within.insert(name, Item::Table(fresh));
    }
    let found = within.get_mut(name).and_then(Item::as_table_like_mut);
    let wrong = || Error::invalid(path.display().to_string(), format!("`{name}` is not a table"));
    found.ok_or_else(wrong)
}

/// Sets a value. A comment behind the old one stays.
fn set(table: &mut dyn TableLike, name: &str, value: Value) {
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => _ = table.insert(name, Item::Value(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, change: impl FnOnce(&mut ConfigFile)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ken.toml");
        std::fs::write(&path, text).unwrap();
        let mut file = ConfigFile::open(&path).unwrap();
        change(&mut file);
        file.save().unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    fn local() -> ProviderTable {
        ProviderTable {
            name: "local-box".into(),
            kind: Some("openai".into()),
            base_url: Some("http://127.0.0.1:9000/v1".into()),
            key: None,
            models: Some(vec!["m".into()]),
        }
    }

    const TABLE: &str =
        "[model.provider.local-box]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9000/v1\"\nmodels = [\"m\"]\n";

    #[test]
    fn what_a_person_has_written_stays() {
        let mine = "# mine\n[model] # the models\nuse = \"rules\" # for now\nembed = \"\"\n\n[gateway]\nport = 4000 # not 3940\n";
        let text = edited(mine, |file| file.use_models("openai/m,rules").unwrap());
        assert_eq!(text, mine.replace("\"rules\" # for", "\"openai/m,rules\" # for"));
        let text = edited(mine, |file| file.set_provider(&local()).unwrap());
        assert!(
            text.contains("use = \"rules\" # for now\nembed = \"\"\n") && text.contains(TABLE.trim_end()),
            "{text}"
        );
        assert!(text.contains("[gateway]\nport = 4000 # not 3940\n"), "{text}");
        // A second time changes nothing.
        assert_eq!(edited(&text, |file| file.set_provider(&local()).unwrap()), text);
    }

    #[test]
    fn an_empty_file_gets_only_what_is_set() {
        assert_eq!(edited("", |file| file.set_provider(&local()).unwrap()), TABLE);
        let text = edited("", |file| file.use_models("ollama/qwen3").unwrap());
        assert_eq!(text, "[model]\nuse = \"ollama/qwen3\"\n");
        assert_eq!(edited("# mine\n", |file| file.set_provider(&local()).unwrap()), format!("# mine\n{TABLE}"));
        let dotted = edited("model.use = \"rules\"\n", |file| file.use_models("ollama/qwen3").unwrap());
        assert_eq!(dotted, "model.use = \"ollama/qwen3\"\n");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ken.toml");
        std::fs::write(&path, "[model]\nuse = \n").unwrap();
        let error = ConfigFile::open(&path).err().unwrap();
        assert!(error.at.as_ref().unwrap().ends_with("ken.toml:2"), "{error}");
        std::fs::write(&path, "model = 1\n").unwrap();
        let error = ConfigFile::open(&path).unwrap().use_models("rules").unwrap_err();
        assert!(error.message.contains("`model` is not a table"), "{error}");
    }
}
