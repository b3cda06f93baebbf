//! A workflow as its file defines it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ken_tool::MAX_DEPTH;
use ken_types::{Error, json};

use crate::condition::Condition;
use crate::data::Data;
use crate::node::Node;
use crate::protocol::Protocols;
use crate::reference::{References, Root};
use crate::schema::Schema;
use crate::template::Template;

/// Maximum nesting of `parallel` and `loop`.
pub const MAX_NESTING: usize = 8;
/// Maximum number of items of a workflow.
pub const MAX_ITEMS: usize = 64;
/// Maximum number of rounds of a loop.
pub const MAX_ROUNDS: u64 = 100;
/// Maximum number of steps of a run, counting all rounds of its loops.
pub const MAX_STEPS: u64 = 1_000;
/// Maximum timeout of a step: ten minutes, like any deadline in ken.
pub const MAX_TIMEOUT_MS: u64 = 600_000;
/// Maximum size of a workflow file, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;

/// A valid workflow (ken-workflow(5)).
#[derive(Debug, Clone)]
pub struct Definition {
    name: String,
    description: String,
    is_public: bool,
    schema: Option<Schema>,
    items: Vec<Item>,
    steps: Vec<Step>,
    origin: PathBuf,
}

/// One item of a workflow. Steps are indices into [`Definition::steps`].
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Step(usize),
    Parallel(Vec<Item>),
    Loop { rounds: u64, items: Vec<Item> },
}

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct Step {
    /// The name of its result, unique in the workflow. The default is the name of the protocol.
    pub id: String,
    /// `REP`, `ESL`, …
    pub protocol: String,
    /// Time limit of the call; `None` for the engine's default.
    pub timeout: Option<Duration>,
    pub(crate) when: Option<Condition>,
    pub(crate) input: Option<Template>,
}

/// How the steps of [`Definition::of_protocols`] run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Sequential,
    Parallel,
}

impl Definition {
    /// Reads a workflow. Returns `invalid` with a message that begins with `origin`; `at` is a pointer into the document.
    pub fn parse(text: &str, origin: &Path, protocols: &Protocols) -> Result<Definition, Error> {
        read(text, origin, protocols).map_err(|error| {
            let message = format!("{}: {}", origin.display(), error.message);
            Error { message, ..error }
        })
    }

    /// Makes a workflow with one step for each protocol. Repeated protocols get numbered ids. `at` of an error is the index
    /// of the wrong name in `names`.
    pub fn of_protocols(names: &[&str], mode: Mode, protocols: &Protocols) -> Result<Definition, Error> {
        if names.is_empty() || names.len() > MAX_ITEMS {
            return Err(Error::invalid("", format!("from 1 to {MAX_ITEMS} protocols are needed")));
        }
        let mut steps: Vec<Step> = Vec::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            let known = protocols.find(name).ok_or_else(|| unknown_step(name, protocols).at(format!("/{place}")))?;
            let same = steps.iter().filter(|step| step.protocol == known.name).count();
            steps.push(Step {
                id: if same == 0 { known.name.clone() } else { format!("{}-{}", known.name, same + 1) },
                protocol: known.name.clone(),
                timeout: None,
                when: None,
                input: None,
            });
        }
        let items: Vec<Item> = (0..steps.len()).map(Item::Step).collect();
        Ok(Definition {
            name: "protocols".to_owned(),
            description: String::new(),
            is_public: false,
            schema: None,
            items: match mode {
                Mode::Sequential => items,
                Mode::Parallel => vec![Item::Parallel(items)],
            },
            steps,
            origin: PathBuf::new(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether clients are allowed to start it as a run.
    pub fn is_public(&self) -> bool {
        self.is_public
    }

    /// The schema of its input, as written in the file.
    pub fn schema(&self) -> Option<&serde_json::Value> {
        self.schema.as_ref().map(Schema::source)
    }

    /// Its steps, in the order of the file.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The protocol of the step with this id.
    pub fn protocol_of(&self, id: &str) -> Option<&str> {
        let step = self.steps.iter().find(|step| step.id == id)?;
        Some(&step.protocol)
    }

    /// The file that it was read from; empty if it was made by [`Definition::of_protocols`].
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Checks an input against the schema, and that none of its fields has the name of a result. Without a schema the input
    /// must be an object. Returns `invalid`, with a pointer into the input as `at`. [`crate::Engine::run`] checks this too.
    /// A caller that queues runs should check before it accepts one.
    pub fn check(&self, data: &Data) -> Result<(), Error> {
        self.check_names(data)?;
        match &self.schema {
            Some(schema) => schema.check(data.tree()),
            None if data.is_object() => Ok(()),
            None => Err(Error::invalid("", "the input must be a JSON object")),
        }
    }

    /// The first half of [`Definition::check`]: that no field has the name of a step's result or of governance.
    pub fn check_names(&self, data: &Data) -> Result<(), Error> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for step in &self.steps {
            names.extend([step.id.as_str(), step.protocol.as_str()]);
        }
        data.check_names(&names)
    }

    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }
}

/// Whether a text is allowed as the name of a workflow or a result. The characters are restricted because names are used in
/// paths, JSON pointers and metrics.
pub(crate) fn is_name(name: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    name.len() <= 64 && name.starts_with(|char: char| char.is_ascii_alphanumeric()) && name.chars().all(is_part)
}

fn read(text: &str, origin: &Path, protocols: &Protocols) -> Result<Definition, Error> {
    if text.len() > MAX_FILE_BYTES {
        return Err(Error::too_large(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    let value = json::parse(text.as_bytes(), MAX_DEPTH)?;
    let root = Node::root(&value);
    root.only(&["name", "description", "public", "schema", "steps"])?;
    let mut reader = Reader { protocols, steps: Vec::new(), references: Vec::new(), items: 0 };
    let items = reader.items(&root.required("steps")?, 0)?;
    reader.check_references()?;
    let steps = count(&items);
    if steps > MAX_STEPS {
        let message = format!("a run would make {steps} steps; at most {MAX_STEPS} are allowed");
        return Err(root.error(message));
    }
    let description = root.optional("description", Node::text)?;
    Ok(Definition {
        name: name(&root.required("name")?)?,
        description: description.unwrap_or_default().to_owned(),
        is_public: root.optional("public", Node::flag)?.unwrap_or_default(),
        schema: root.optional("schema", Schema::parse)?,
        items,
        steps: reader.steps,
        origin: origin.to_owned(),
    })
}

fn name(node: &Node<'_>) -> Result<String, Error> {
    match node.text()? {
        name if is_name(name) => Ok(name.to_owned()),
        name => Err(node.error(format!("`{name}` is not a valid name: letters, digits, - and _, at most 64"))),
    }
}

fn unknown_step(name: &str, protocols: &Protocols) -> Error {
    let known: Vec<&str> = protocols.names().collect();
    Error::invalid("", format!("unknown step `{name}`")).hint(format!("known: {}", known.join(", ")))
}

/// The number of steps that a run makes, counting all rounds of its loops.
fn count(items: &[Item]) -> u64 {
    let one = |item: &Item| match item {
        Item::Step(_) => 1,
        Item::Parallel(items) => count(items),
        Item::Loop { rounds, items } => rounds.saturating_mul(count(items)),
    };
    items.iter().map(one).fold(0, u64::saturating_add)
}

struct Reader<'p> {
    protocols: &'p Protocols,
    steps: Vec<Step>,
    references: References,
    items: usize,
}

impl Reader<'_> {
    fn items(&mut self, node: &Node<'_>, depth: usize) -> Result<Vec<Item>, Error> {
        if depth > MAX_NESTING {
            return Err(node.error(format!("items are nested deeper than {MAX_NESTING}")));
        }
        let items = node.items()?;
        if items.is_empty() {
            return Err(node.error("must have at least one item"));
        }
        items.iter().map(|item| self.item(item, depth)).collect()
    }

    fn item(&mut self, node: &Node<'_>, depth: usize) -> Result<Item, Error> {
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(node.error(format!("more than {MAX_ITEMS} items")));
        }
        let fields = node.fields()?;
        if fields.contains_key("step") {
            return self.step(node);
        }
        if fields.contains_key("parallel") {
            node.only(&["parallel"])?;
            let items = self.items(&node.required("parallel")?, depth + 1)?;
            return Ok(Item::Parallel(items));
        }
        if fields.contains_key("loop") {
            node.only(&["loop", "steps"])?;
            let rounds = node.required("loop")?.count(MAX_ROUNDS)?;
            let items = self.items(&node.required("steps")?, depth + 1)?;
            return Ok(Item::Loop { rounds, items });
        }
        let named: Vec<&str> = fields.keys().map(String::as_str).collect();
        Err(node
            .error(format!("unknown item {{{}}}", named.join(", ")))
            .hint("an item has one of `step`, `parallel`, `loop`"))
    }

    fn step(&mut self, node: &Node<'_>) -> Result<Item, Error> {
        node.only(&["step", "id", "timeout_ms", "when", "input"])?;
        let named = node.required("step")?;
        let protocol = named.text()?;
        if self.protocols.find(protocol).is_none() {
            return Err(unknown_step(protocol, self.protocols).at(named.at));
        }
        let own = node.field("id")?;
        let id = own.as_ref().map_or_else(|| Ok(protocol.to_owned()), name)?;
        if self.steps.iter().any(|step| step.id == id) {
            let node = own.unwrap_or(named);
            return Err(node.error(format!("there are two steps `{id}`")).hint("give each an `id`"));
        }
        let timeout = node.optional("timeout_ms", |node| node.count(MAX_TIMEOUT_MS))?;
        let references = &mut self.references;
        self.steps.push(Step {
            id,
            protocol: protocol.to_owned(),
            timeout: timeout.map(Duration::from_millis),
            when: node.optional("when", |node| Condition::parse(node, references))?,
            input: node.optional("input", |node| Template::parse(node, references))?,
        });
        Ok(Item::Step(self.steps.len() - 1))
    }

    /// Checks that every reference to a result names a step of the workflow. Within a loop, that step may come later.
    fn check_references(&self) -> Result<(), Error> {
        for (reference, at) in &self.references {
            if let Root::Result(id) = &reference.root
                && !self.steps.iter().any(|step| step.id == *id)
            {
                return Err(Error::invalid(at.clone(), format!("there is no step `{id}`")));
            }
        }
        Ok(())
    }
}
