//! Which tool does a step, what it is given, what it promises.

use std::path::PathBuf;

/// What a step of this kind is about: how its input is made and how its result is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Esl,
    Rep,
    Vvp,
    Laws,
    Model,
    /// A tool that ken does not know: its input is the data, any JSON document is a result.
    Other,
}

/// A name that steps use, and the tool behind it: `PROGRAM ARGS…`, one line in, one line out.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub name: String,
    pub kind: Kind,
    /// In one sentence, for lists.
    pub description: &'static str,
    /// A name, looked for beside the running program and then on `PATH`; or a path.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// Environment variables that it is given beside [`crate::ENVIRONMENT`]; one that ends in `*` is a beginning.
    pub environment: &'static [&'static str],
    /// The fields that every result has.
    pub promises: &'static [&'static str],
    /// The most processes of it.
    pub processes: usize,
    /// Where ken-model listens, for [`Kind::Model`]; while this socket is there it is asked in place of the tool.
    pub socket: Option<PathBuf>,
}

/// The table of the protocols that steps may name.
#[derive(Debug, Clone)]
pub struct Protocols(Vec<Protocol>);

/// Processes of one tool. More than cores, because a slow request must not stand before the quick ones.
const PROCESSES: usize = 16;

impl Protocols {
    /// `ESL`, `REP`, `VVP`, `LAWS` and `MODEL`.
    pub fn shipped() -> Protocols {
        Protocols(vec![
            Protocol::new(
                "ESL",
                Kind::Esl,
                "ken-esl",
                "Reads emotions, valence and intensity out of a text.",
            ),
            Protocol::new(
                "REP",
                Kind::Rep,
                "ken-rep",
                "Reasons over facts and rules and proves every conclusion.",
            ),
            Protocol::new(
                "VVP",
                Kind::Vvp,
                "ken-vvp",
                "Finds every problem of a rule set or of a result of REP.",
            ),
            Protocol::new(
                "LAWS",
                Kind::Laws,
                "ken-laws",
                "Scores a text against the five laws, with evidence.",
            ),
            Protocol::new(
                "MODEL",
                Kind::Model,
                "ken-model",
                "Asks the configured language model.",
            ),
        ])
    }

    /// Adds a protocol, in the place of one of the same name.
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
            promises: kind.promises(),
            processes: PROCESSES,
            socket: (kind == Kind::Model).then(model_socket).flatten(),
        }
    }
}

/// `model.sock` in the run directory of the system that this program belongs to.
fn model_socket() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let run = set("KEN_RUN_DIR").or_else(|| Some(set("KEN_HOME")?.join("run")))?;
    Some(run.join("model.sock"))
}

impl Kind {
    fn environment(self) -> &'static [&'static str] {
        match self {
            Kind::Model => &[
                "KEN_MODEL",
                "KEN_SCRIPT",
                "OPENAI_*",
                "ANTHROPIC_*",
                "OLLAMA_*",
                "MVLM_*",
                "ACTIVE_MVLM_MODEL",
            ],
            _ => &[],
        }
    }

    /// As `share/tools_manifest.json` and ken-model(8) have them.
    fn promises(self) -> &'static [&'static str] {
        match self {
            Kind::Esl => &[
                "emotional_state",
                "valence",
                "intensity",
                "confidence",
                "detected_emotions",
                "salience",
                "valence_score",
                "contextual_factors",
                "explanation",
            ],
            Kind::Rep => &[
                "reasoning_type",
                "conclusions",
                "confidence_scores",
                "reasoning_chain",
                "explanation",
                "validation",
                "facts",
                "rules",
            ],
            Kind::Vvp => &[
                "validation_status",
                "reason",
                "issues",
                "warnings",
                "total_rules",
                "valid_rules",
                "conflicts",
                "completeness",
            ],
            Kind::Laws => &[
                "scores",
                "pass_fail_status",
                "violations",
                "recommendations",
                "strengths",
                "evidence",
            ],
            Kind::Model => &["text", "model", "usage", "stopReason"],
            Kind::Other => &[],
        }
    }
}
