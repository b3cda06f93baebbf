//! The protocols: which tool runs a step, and what its results contain.

use std::path::PathBuf;

/// Determines how the input of a step is made and how its result is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Esl,
    Rep,
    Vvp,
    Laws,
    Model,
    /// A tool that ken does not know: its input is the data, and any JSON document is a result.
    Other,
}

/// A named tool, `PROGRAM ARGS…`, that answers each line of input with one line.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub name: String,
    pub kind: Kind,
    /// One sentence for lists.
    pub description: &'static str,
    /// A path, or a name that is looked up beside the running program and then on `PATH`.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Environment variables that it inherits in addition to [`crate::ENVIRONMENT`]; a trailing `*` matches any ending.
    pub environment: &'static [&'static str],
    /// The fields that every result contains.
    pub promises: &'static [&'static str],
    /// The socket of ken-model, for [`Kind::Model`]. While it exists it is used instead of the tool.
    pub socket: Option<PathBuf>,
}

/// The protocols that steps may use.
#[derive(Debug, Clone)]
pub struct Protocols(Vec<Protocol>);

impl Protocols {
    /// `ESL`, `REP`, `VVP`, `LAWS` and `MODEL`.
    pub fn shipped() -> Protocols {
        let shipped = [
            (Kind::Esl, "ESL", "Reads emotions, valence and intensity out of a text."),
            (Kind::Rep, "REP", "Reasons over facts and rules and proves every conclusion."),
            (Kind::Vvp, "VVP", "Finds every problem of a rule set or of a result of REP."),
            (Kind::Laws, "LAWS", "Scores a text against the five laws, with evidence."),
            (Kind::Model, "MODEL", "Asks the configured language model."),
        ];
        let protocol = |(kind, name, description): (Kind, &str, &'static str)| {
            Protocol::new(name, kind, format!("ken-{}", name.to_lowercase()), description)
        };
        Protocols(shipped.map(protocol).into())
    }

    /// Adds a protocol, or replaces the one with the same name.
    pub fn with(mut self, protocol: Protocol) -> Protocols {
        match self.0.iter_mut().find(|known| known.name == protocol.name) {
            Some(known) => *known = protocol,
            None => self.0.push(protocol),
        }
        self
    }

    pub fn find(&self, name: &str) -> Option<&Protocol> {
        self.0.iter().find(|protocol| protocol.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|protocol| protocol.name.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Protocol> {
        self.0.iter()
    }
}

impl Protocol {
    /// A protocol whose tool is `PROGRAM --lines`.
    pub fn new(name: &str, kind: Kind, program: impl Into<PathBuf>, description: &'static str) -> Protocol {
        Protocol {
            name: name.to_owned(),
            kind,
            description,
            program: program.into(),
            args: vec!["--lines".to_owned()],
            environment: kind.environment(),
            promises: kind.required_fields(),
            socket: (kind == Kind::Model).then(|| ken_tool::part_socket("model")).flatten(),
        }
    }
}

impl Kind {
    /// The variables that the program needs in addition to [`crate::ENVIRONMENT`].
    pub fn environment(self) -> &'static [&'static str] {
        match self {
            Kind::Model => {
                &["KEN_MODEL", "KEN_SCRIPT", "OPENAI_*", "ANTHROPIC_*", "OLLAMA_*", "MVLM_*", "ACTIVE_MVLM_MODEL"]
            }
            _ => &[],
        }
    }

    /// The fields that results of this kind contain, as listed in `share/tools_manifest.json` and ken-model(8).
    fn required_fields(self) -> &'static [&'static str] {
        match self {
            Kind::Esl => &[
                "emotional_state", "valence", "intensity", "confidence", "detected_emotions", "salience",
                "valence_score", "contextual_factors", "explanation",
            ],
            Kind::Rep => &[
                "reasoning_type", "conclusions", "confidence_scores", "reasoning_chain", "explanation", "validation",
                "facts", "rules",
            ],
            Kind::Vvp => &[
                "validation_status", "reason", "issues", "warnings", "total_rules", "valid_rules", "conflicts",
                "completeness",
            ],
            Kind::Laws => &["scores", "pass_fail_status", "violations", "recommendations", "strengths", "evidence"],
            Kind::Model => &["text", "model", "usage", "stopReason"],
            Kind::Other => &[],
        }
    }
}
