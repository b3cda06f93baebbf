//! Wire operations: list the workflows that clients can start, and check payloads for them.

use std::sync::Arc;

use ken_flow::{Data, Definition};
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::{AuditVerify, CheckWorkflow, Workflow, Workflows, WorkflowsCheck, WorkflowsList};
use ken_types::{Code, Error};
use ken_wire::Table;
use serde_json::json;

use crate::app::Cognitive;
use crate::research;

pub(crate) fn table(name: &'static str, version: &'static str) -> Table<Cognitive> {
    Table::new(name, version)
        .op::<WorkflowsList, _, _>(|app: Arc<Cognitive>, _, _| async move { Ok(list(&app)) })
        .op::<WorkflowsCheck, _, _>(|app: Arc<Cognitive>, _, args| async move { check(&app, &args).await })
        .op::<AuditVerify, _, _>(|app: Arc<Cognitive>, _, _| async move { app.audit.verify().await })
}

/// Lists the public workflows. It omits those whose file is invalid, which `GET /v1/templates` lists.
fn list(app: &Cognitive) -> Workflows {
    let all = app.catalog.list().into_values().flatten();
    let public = all.filter(|definition| definition.is_public());
    Workflows { workflows: public.map(|definition| entry(&definition)).chain([research::workflow()]).collect() }
}

fn entry(definition: &Definition) -> Workflow {
    Workflow {
        name: definition.name().to_owned(),
        description: definition.description().to_owned(),
        input: definition.schema().cloned().unwrap_or_else(|| json!({"type": "object"})),
    }
}

const LISTED: &str = "`ken-workflow list --public` shows the workflows that clients may start";

async fn check(app: &Cognitive, args: &CheckWorkflow) -> Result<Nothing, Error> {
    if args.name == research::NAME {
        return app.research.check(&args.payload).await.map(|()| Nothing {});
    }
    let definition = app.catalog.find(&args.name).map_err(|error| match error.code {
        Code::NotFound if error.hint.is_none() => error.hint(LISTED),
        _ => error,
    })?;
    if !definition.is_public() {
        return Err(Error::not_found(format!("there is no public workflow `{}`", args.name)).hint(LISTED));
    }
    // `at` is a pointer into the payload.
    definition.check(&Data::from_value(&args.payload)?)?;
    Ok(Nothing {})
}
