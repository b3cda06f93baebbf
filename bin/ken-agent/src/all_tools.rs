//! The tools of an agent from all sources: its built-in tools, and those of ken-tools.

use ken_types::event::ToolResult;
use ken_types::ops::model::ToolSpec;
use ken_types::ops::tools::{Approval, CallTool};

use crate::builtin::Builtins;
use crate::ports::{Grant, Pending, RequestedCall, ToolFacts, Tools};
use crate::toolbox::WireTools;

/// If a built-in tool and one of ken-tools have the same name, the built-in tool is used.
pub(crate) struct AllTools {
    pub(crate) builtin: Builtins,
    pub(crate) wire: WireTools,
}

impl Tools for AllTools {
    fn refresh(&self) -> Pending<'_, ()> {
        self.wire.refresh()
    }

    fn asks(&self, call: CallTool) -> Pending<'static, bool> {
        self.wire.asks(call)
    }

    fn list(&self, agent: &str) -> Vec<ToolSpec> {
        let mut tools: Vec<ToolSpec> = self.builtin.list(agent).cloned().collect();
        let others = self.wire.list(agent);
        tools.extend(others.into_iter().filter(|tool| self.builtin.find(&tool.name).is_none()));
        tools
    }

    fn facts(&self, name: &str) -> ToolFacts {
        match self.builtin.find(name) {
            Some(tool) => ToolFacts {
                is_built_in: true,
                is_idempotent: tool.idempotent,
                only_reads: tool.only_reads,
                approval: Some(Approval::None),
                ..ToolFacts::default()
            },
            None => self.wire.facts(name),
        }
    }

    fn call(&self, requested: RequestedCall, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        match self.builtin.find(&requested.call.name) {
            Some(tool) => self.builtin.call(tool, requested.caller, requested.call.arguments),
            None => self.wire.call(requested, grant),
        }
    }
}
