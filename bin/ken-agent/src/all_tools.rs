//! The tools of an agent from all sources: its built-in tools, and those of ken-tools.

use ken_types::event::ToolResult;
use ken_types::ops::model::ToolSpec;
use ken_types::ops::tools::{Approval, CallTool};

use crate::builtin::Builtins;
use crate::ports::{Grant, Pending, RequestedCall, Tools};
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

    fn is_built_in(&self, name: &str) -> bool {
        self.builtin.find(name).is_some()
    }

    fn is_idempotent(&self, name: &str) -> bool {
        match self.builtin.find(name) {
            Some(tool) => tool.idempotent,
            None => self.wire.is_idempotent(name),
        }
    }

    /// Only of a tool of the agent itself it is certain that it changes nothing.
    fn only_reads(&self, name: &str) -> bool {
        self.builtin.find(name).is_some_and(|tool| tool.only_reads)
    }

    fn outside(&self, name: &str) -> Option<String> {
        // The built-in tools say with each result where its text comes from.
        if self.is_built_in(name) {
            return None;
        }
        self.wire.outside(name)
    }

    fn process(&self, name: &str) -> Option<String> {
        if self.is_built_in(name) { None } else { self.wire.process(name) }
    }

    fn approval(&self, name: &str) -> Option<Approval> {
        if self.is_built_in(name) { Some(Approval::None) } else { self.wire.approval(name) }
    }

    fn call(&self, requested: RequestedCall, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        match self.builtin.find(&requested.call.name) {
            Some(tool) => self.builtin.call(tool, requested.caller, requested.call.arguments),
            None => self.wire.call(requested, grant),
        }
    }
}
