//! The schema as a list of migrations. `user_version` is the number of migrations that have been applied to a database. Each migration runs
//! in one transaction. A released migration is never edited; a change of the schema is a new migration.

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use crate::rules::{scope_words, terms};

/// The `application_id` of a database of ken: "KEN1".
pub(crate) const APPLICATION_ID: i32 = 0x4b45_4e31;

/// All migrations. The first one is applied to an empty database.
#[rustfmt::skip]
pub(crate) const STEPS: &[&str] = &[
    FIRST,
    RUNS,
    PUBLIC_STREAMS,
    KEPT_HEADERS,
    NO_MEMORY_WORDS,
    BLOBS,
    NOTES,
    APPROVALS,
    SCHEDULES,
    MESSENGER,
    GOVERNING_RULES,
    TELEMETRY,
    DOCUMENTS,
    ENDED_APPROVALS,
    BUDGETS,
    TELEMETRY_BY_END,
    SCOPE_COLUMNS,
    OUTPUTS,
    RETRIES,
    DRAFTS,
    ENDED_MESSAGES,
    STEMS,
    WHOLE_DIFFS,
    OUTSIDE,
    SHOWN_SESSIONS,
    ENDED_SCHEDULES,
    FOLDERS,
    PURGES,
    MEMORY,
    MODELS,
    USAGE,
    NO_DRAFTS,
    PURGE_PASS,
    FEWER_INDEX_ENTRIES,
    DOORS,
    DURATIONS,
    CHANGE_NUMBERS,
    NO_USAGE_TRIGGER,
    OPENAI_KEYS,
    SCHEDULES_OF_SESSIONS,
];

/// The version of a database after all migrations.
pub(crate) const VERSION: usize = STEPS.len();

/// stream: the session with which a schedule ends.
const SCHEDULES_OF_SESSIONS: &str = concat!(
    "ALTER TABLE schedules ADD COLUMN stream INTEGER;
     CREATE INDEX schedules_by_stream ON schedules (stream) WHERE stream IS NOT NULL;
     ",
    include_str!("../deliveries.sql")
);

const OPENAI_KEYS: &str = include_str!("../openai_keys.sql");

/// The store writes a row of `usage` itself, with what it knows when it writes the summary. The trigger read all of that out of the summary again.
const NO_USAGE_TRIGGER: &str = "DROP TRIGGER IF EXISTS usage_of_summary;";

/// Changes are numbered in another way, in the same tables. A release that does not know it would take the lower number for a loss, so it
/// must not open the database.
const CHANGE_NUMBERS: &str = "";

/// The version of a database after `CHANGE_NUMBERS`.
pub(crate) const CHANGE_NUMBERS_VERSION: usize = 37;

/// How long each submission has taken, in milliseconds; NULL for a workflow. Averages over the summaries would read all of them.
const DURATIONS: &str = "
ALTER TABLE usage ADD COLUMN duration INTEGER;
DROP TRIGGER usage_of_summary;
CREATE TRIGGER usage_of_summary AFTER INSERT ON telemetry BEGIN
  INSERT OR REPLACE INTO usage
    SELECT new.submission, date(new.settled_at / 1000, 'unixepoch'), coalesce(new.body ->> '$.model', '-'),
      iif(kind = 'workflow', NULL, stream), coalesce(new.body ->> '$.usage.input', 0), coalesce(new.body ->> '$.usage.output', 0),
      coalesce(new.body ->> '$.usage.cacheRead', 0), coalesce(new.body ->> '$.usage.cacheWrite', 0),
      coalesce(new.body ->> '$.usage.totalTokens', 0), new.body ->> '$.cost',
      iif(kind = 'workflow', NULL, new.settled_at - round(unixepoch(new.body ->> '$.started_at', 'subsec') * 1000))
    FROM submissions WHERE submission = new.submission;
END;
-- The trigger computes it for what there is already.
INSERT OR REPLACE INTO telemetry SELECT * FROM telemetry;
";

/// Each turn changes the time of its session, and that is an entry in two indexes: those of the sessions that lists show, or, until a session
/// has a title or a name, those of the others. No query ever read the index of usage by stream: there are at most 10,000 rows.
const FEWER_INDEX_ENTRIES: &str = "
DROP INDEX usage_by_stream;
DROP INDEX sessions_by_scope;
DROP INDEX sessions_by_time;
CREATE INDEX hidden_by_scope ON sessions (scope, updated_at) WHERE archived_at IS NULL AND title IS NULL AND name IS NULL;
CREATE INDEX hidden_by_time ON sessions (updated_at) WHERE archived_at IS NULL AND title IS NULL AND name IS NULL;
";

/// Callers who send the whole conversation with each message. tips: the digests of the messages with which a session ends. delivered: the
/// answer to an event was sent to its end, so that an equal request is another event.
const DOORS: &str = "
CREATE TABLE tips (
  stream INTEGER NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (stream, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX tips_by_digest ON tips (digest);
ALTER TABLE events ADD COLUMN delivered INTEGER;
";

/// A row of `purges` now stands only for a session whose rows are still there. The pass over the database that follows is one for all, and
/// its state is one of the single values, because a row for each of very many sessions would have to be changed in each slice. Without the
/// index, each deletion of an event would read the uses of all blobs.
const PURGE_PASS: &str = "
INSERT OR REPLACE INTO facts (name, value)
  SELECT 'purges.pass', '{\"phase\":\"events\",\"reached\":0,\"again\":false}' WHERE EXISTS (SELECT 1 FROM purges WHERE phase > 0);
DELETE FROM purges WHERE phase > 0;
ALTER TABLE purges DROP COLUMN phase;
ALTER TABLE purges DROP COLUMN reached;
CREATE INDEX blob_uses_by_event ON blob_uses (event);
";

/// Answers are no longer sent while they are being written. A draft goes, so that the answer of its turn is sent as a message of its own:
/// a message of the same key would otherwise stop it.
const NO_DRAFTS: &str = "
DELETE FROM outbox WHERE body ->> 'draft';
ALTER TABLE outbox DROP COLUMN shown;
";

/// What each submission with a summary has used, kept with the summary, because sums over the summaries would read all submissions.
/// stream: the session; NULL for a workflow.
const USAGE: &str = "
CREATE TABLE usage (
  submission  INTEGER PRIMARY KEY,
  day         TEXT NOT NULL,
  model       TEXT NOT NULL,
  stream      INTEGER,
  input       INTEGER NOT NULL,
  output      INTEGER NOT NULL,
  cache_read  INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  total       INTEGER NOT NULL,
  cost        REAL
) STRICT;
CREATE INDEX usage_by_stream ON usage (stream);
CREATE TRIGGER usage_of_summary AFTER INSERT ON telemetry BEGIN
  INSERT OR REPLACE INTO usage
    SELECT new.submission, date(new.settled_at / 1000, 'unixepoch'), coalesce(new.body ->> '$.model', '-'),
      iif(kind = 'workflow', NULL, stream), coalesce(new.body ->> '$.usage.input', 0), coalesce(new.body ->> '$.usage.output', 0),
      coalesce(new.body ->> '$.usage.cacheRead', 0), coalesce(new.body ->> '$.usage.cacheWrite', 0),
      coalesce(new.body ->> '$.usage.totalTokens', 0), new.body ->> '$.cost'
    FROM submissions WHERE submission = new.submission;
END;
CREATE TRIGGER usage_of_old_summary AFTER DELETE ON telemetry BEGIN
  DELETE FROM usage WHERE submission = old.submission;
END;
-- The trigger fills the table with what there is already.
INSERT OR REPLACE INTO telemetry SELECT * FROM telemetry;
";

/// The only model that answers in a session.
const MODELS: &str = "
ALTER TABLE sessions ADD COLUMN model TEXT;
";

/// What a session remembers, if that was set for it.
const MEMORY: &str = "
ALTER TABLE sessions ADD COLUMN memory TEXT;
";

/// Sessions that are deleted for good. What is left of one is the row of its stream, which has only its name and this time. A row of
/// `purges` stands for the work that is left: phase is 0 for its rows, and later more; reached is the last event that was examined. With the
/// stream, a knowledge entry names the session in which an agent wrote it. Without the indexes, each deletion of an event would read all
/// submissions.
const PURGES: &str = "
ALTER TABLE streams ADD COLUMN purged_at INTEGER;
CREATE TABLE purges (
  stream  INTEGER PRIMARY KEY REFERENCES streams,
  phase   INTEGER NOT NULL DEFAULT 0,
  reached INTEGER NOT NULL DEFAULT 0
) STRICT;
DROP INDEX prompts;
CREATE INDEX submissions_by_stream ON submissions (stream, submission);
CREATE INDEX submissions_by_event ON submissions (event);
ALTER TABLE knowledge ADD COLUMN stream INTEGER;
CREATE INDEX knowledge_by_stream ON knowledge (stream) WHERE stream IS NOT NULL;
";

/// The trusted folder in which a session works.
const FOLDERS: &str = "
ALTER TABLE sessions ADD COLUMN workspace TEXT;
";

/// A schedule that has ended is kept for a while with its runs, and another one can have its slug.
const ENDED_SCHEDULES: &str = "
ALTER TABLE schedules ADD COLUMN ended_at INTEGER;
DROP INDEX schedules_by_slug;
CREATE UNIQUE INDEX schedules_by_slug ON schedules (slug) WHERE deleted_at IS NULL AND ended_at IS NULL;
CREATE INDEX schedules_of_slug ON schedules (slug, schedule) WHERE deleted_at IS NULL;
CREATE INDEX schedules_ended ON schedules (ended_at) WHERE ended_at IS NOT NULL;
";

/// Indexes of the sessions that lists for people show. Each start of a client creates a session, so most may be empty.
const SHOWN_SESSIONS: &str = "
CREATE INDEX shown_by_scope ON sessions (scope, updated_at)
  WHERE archived_at IS NULL AND (title IS NOT NULL OR name IS NOT NULL);
CREATE INDEX shown_by_time ON sessions (updated_at) WHERE archived_at IS NULL AND (title IS NOT NULL OR name IS NOT NULL);
";

/// The origins of outside text, as a JSON array, and the key of the marks in prompts. What agents wrote before may come from
/// anywhere.
const OUTSIDE: &str = "
ALTER TABLE submissions ADD COLUMN outside TEXT;
ALTER TABLE knowledge ADD COLUMN outside TEXT;
ALTER TABLE notes ADD COLUMN outside TEXT;
ALTER TABLE schedules ADD COLUMN outside TEXT;
CREATE INDEX submissions_outside ON submissions (stream) WHERE outside IS NOT NULL;
UPDATE knowledge SET outside = '[\"unknown\"]' WHERE source = 'agent';
INSERT INTO facts (name, value) VALUES ('fence.key', lower(hex(randomblob(32))));
";

/// An index of finished messages by the time of their end. It replaces one by the time of their creation.
const ENDED_MESSAGES: &str = "
DROP INDEX outbox_over;
CREATE INDEX outbox_ended ON outbox (due_at) WHERE live = 0;
";

/// The digest of the blob with the whole diff of a request, if the request holds only its beginning. The blob is kept as long as the
/// request.
const WHOLE_DIFFS: &str = "
ALTER TABLE approvals ADD COLUMN whole TEXT;
CREATE INDEX approvals_by_whole ON approvals (whole) WHERE whole IS NOT NULL;
";

/// The full-text indexes now contain the stems of words in place of the words. The SQL functions are those of [`add_functions`].
const STEMS: &str = "
DROP TABLE knowledge_words;
DROP TABLE knowledge_index;
DROP TABLE memory_index;
CREATE VIRTUAL TABLE knowledge_index USING fts5 (
  scope, title, tags, content,
  content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE knowledge_words USING fts5vocab ('knowledge_index', 'row');
CREATE VIRTUAL TABLE memory_index USING fts5 (
  scope, prompt, answer,
  content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO knowledge_index (rowid, scope, title, tags, content)
  SELECT entry, scope_of_entry(actor, conversation), indexed(title), indexed(tags), indexed(content) FROM knowledge;
INSERT INTO memory_index (rowid, scope, prompt, answer)
  SELECT submission, scope_of_memory(connector, actor, conversation), indexed(e.text), indexed(x.answer)
  FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
    JOIN scopes AS c ON c.scope = e.scope
  WHERE s.kind = 'prompt' AND NOT s.hidden AND x.answer <> '';
";

/// Adds the functions that migrations call.
pub(crate) fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("indexed", 1, pure, |call| {
        let text: String = call.get(0)?;
        Ok(terms::indexed(&text))
    })?;
    connection.create_scalar_function("scope_of_entry", 2, pure, |call| {
        let [actor, conversation]: [Option<String>; 2] = [call.get(0)?, call.get(1)?];
        Ok(scope_words::of_entry(actor.as_deref(), conversation.as_deref()))
    })?;
    connection.create_scalar_function("scope_of_memory", 3, pure, |call| {
        let [connector, actor, conversation]: [String; 3] = [call.get(0)?, call.get(1)?, call.get(2)?];
        Ok(scope_words::of_memory(&connector, &actor, &conversation))
    })
}

/// The pieces of a message that the platform shows at the moment, as JSON. For messages that are or were drafts.
const DRAFTS: &str = "
ALTER TABLE outbox ADD COLUMN shown TEXT;
";

/// The outputs of tools to which submissions refer; they are kept as long as the summaries. Also indexes from conversations to actors and
/// from actors to conversations.
const OUTPUTS: &str = "
CREATE TABLE outputs (
  blob       INTEGER NOT NULL,
  submission INTEGER NOT NULL,
  PRIMARY KEY (blob, submission)
) STRICT, WITHOUT ROWID;
CREATE INDEX outputs_by_submission ON outputs (submission);
CREATE TRIGGER outputs_of_summary AFTER DELETE ON telemetry BEGIN
  DELETE FROM outputs WHERE submission = old.submission;
END;
CREATE INDEX scopes_by_conversation ON scopes (connector, conversation, actor);
CREATE INDEX scopes_by_actor ON scopes (connector, actor);
";

/// An index of the runs that wait for another attempt. There are few of them among the many queued runs.
const RETRIES: &str = "
CREATE INDEX schedule_runs_retried ON schedule_runs (not_before) WHERE active = 1 AND not_before > 0;
";

/// The column `realm`, which contains the scope word, gets a new name. FTS5 cannot rename a column. But the name is only in the text of the
/// schema, so editing that text is enough, and takes no longer for a large index (lang_altertable.html, section 7).
const SCOPE_COLUMNS: &str = "
ALTER TABLE vectors RENAME COLUMN realm TO scope;
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'realm', 'scope') WHERE name IN ('knowledge_index', 'memory_index');
PRAGMA writable_schema = RESET;
";

/// An index for the export of traces, which reads every second which submissions have ended since the last time.
const TELEMETRY_BY_END: &str = "
CREATE INDEX telemetry_by_end ON telemetry (settled_at);
";

/// Documents (files whose pieces are knowledge entries), the vectors of entries, and which turns used an entry.
const DOCUMENTS: &str = "
CREATE TABLE documents (
  document   INTEGER PRIMARY KEY,
  collection TEXT NOT NULL,
  path       TEXT NOT NULL,
  digest     TEXT NOT NULL,
  UNIQUE (collection, path)
) STRICT;
ALTER TABLE knowledge ADD COLUMN document INTEGER REFERENCES documents;
ALTER TABLE knowledge ADD COLUMN line INTEGER;
CREATE INDEX knowledge_by_document ON knowledge (document) WHERE document IS NOT NULL;
CREATE INDEX knowledge_by_source ON knowledge (source, entry);
-- collection: the one that is read, until all are; place: the last path of it that is done.
ALTER TABLE jobs ADD COLUMN collection TEXT;
ALTER TABLE jobs ADD COLUMN place TEXT NOT NULL DEFAULT '';
-- realm is the word of the entry's scope; vector has one signed byte for each dimension.
CREATE TABLE vectors (
  entry  INTEGER PRIMARY KEY,
  model  TEXT NOT NULL,
  realm  TEXT NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE INDEX vectors_by_model ON vectors (model, entry);
CREATE TABLE vector_usage (
  day    TEXT NOT NULL,
  model  TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  cost   REAL NOT NULL,
  PRIMARY KEY (day, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE knowledge_uses (
  entry      TEXT NOT NULL,
  submission INTEGER NOT NULL,
  how        TEXT NOT NULL,
  PRIMARY KEY (entry, submission)
) STRICT, WITHOUT ROWID;
CREATE INDEX knowledge_uses_by_submission ON knowledge_uses (submission);
CREATE TRIGGER uses_of_old_summaries AFTER DELETE ON telemetry BEGIN
  DELETE FROM knowledge_uses WHERE submission = old.submission;
END;
";

/// The governing rules that users have written. Those that ken contains are files.
const GOVERNING_RULES: &str = "
CREATE TABLE governing_rules (
  name       TEXT PRIMARY KEY,
  rule       TEXT NOT NULL,
  enabled    INTEGER NOT NULL DEFAULT 1,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The usage of model calls, and reservations. scope: the day or the session, see rules/budget.rs; cost: in billionths of a US dollar. A
/// reservation is that of a call whose usage is not known yet.
const BUDGETS: &str = "
CREATE TABLE budgets (
  scope      TEXT PRIMARY KEY,
  tokens     INTEGER NOT NULL,
  cost       INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE reservations (
  id            TEXT PRIMARY KEY,
  day           TEXT NOT NULL,
  session       TEXT,
  tokens        INTEGER NOT NULL,
  cost          INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  made_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Notes and checklists that agents write for their own use. They belong to an instance.
const NOTES: &str = "
CREATE TABLE notes (
  stream     INTEGER NOT NULL REFERENCES streams,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  body       TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (stream, kind, name)
) STRICT, WITHOUT ROWID;
";

/// An index of ended approvals, which are deleted some time after their end.
const ENDED_APPROVALS: &str = "
CREATE INDEX approvals_ended ON approvals (updated_at) WHERE status <> 'pending';
";

/// Requests for approvals, and their outcomes. task: the task of the worker that made the call.
const APPROVALS: &str = "
CREATE TABLE approvals (
  approval    INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  submission  INTEGER NOT NULL REFERENCES submissions,
  session     TEXT NOT NULL,
  task        TEXT,
  call        TEXT NOT NULL,
  scope       INTEGER REFERENCES scopes,
  fingerprint TEXT NOT NULL,
  status      TEXT NOT NULL,
  expires_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  request     TEXT NOT NULL,
  decision    TEXT,
  decide_key  TEXT,
  for_session INTEGER NOT NULL DEFAULT 0,
  used_at     INTEGER,
  use_key     TEXT
) STRICT;
CREATE INDEX approvals_by_submission ON approvals (submission);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
CREATE INDEX approvals_for_session ON approvals (session, fingerprint) WHERE for_session = 1;
";

/// Schedules, and a record of every slot.
const SCHEDULES: &str = "
-- mark: every slot until there has its record, or passed while the schedule was paused. next_slot fires at next_fire.
-- A deleted schedule is kept for a while, for its runs.
CREATE TABLE schedules (
  schedule    INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  slug        TEXT NOT NULL,
  owner       INTEGER REFERENCES scopes,
  generation  INTEGER NOT NULL,
  settings    TEXT NOT NULL,
  prompt      TEXT NOT NULL,
  payload     TEXT,
  enabled     INTEGER NOT NULL,
  anchor      INTEGER NOT NULL,
  mark        INTEGER NOT NULL,
  next_slot   INTEGER,
  next_fire   INTEGER,
  last_fired  INTEGER,
  last_status TEXT,
  failures    INTEGER NOT NULL DEFAULT 0,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  deleted_at  INTEGER
) STRICT;
CREATE UNIQUE INDEX schedules_by_slug ON schedules (slug) WHERE deleted_at IS NULL;
CREATE INDEX schedules_due ON schedules (next_fire) WHERE next_fire IS NOT NULL;
CREATE INDEX schedules_deleted ON schedules (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE TABLE schedule_runs (
  run         INTEGER PRIMARY KEY AUTOINCREMENT,
  id          TEXT NOT NULL UNIQUE,
  schedule    INTEGER NOT NULL REFERENCES schedules,
  generation  INTEGER NOT NULL,
  slot_at     INTEGER,
  status      TEXT NOT NULL,
  active      INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  not_before  INTEGER NOT NULL,
  timeout_ms  INTEGER NOT NULL,
  submission  TEXT,
  result_text TEXT,
  error       TEXT,
  reason      TEXT,
  delivery    TEXT NOT NULL,
  started_at  INTEGER,
  admitted_at INTEGER,
  finished_at INTEGER
) STRICT;
CREATE UNIQUE INDEX schedule_slots ON schedule_runs (schedule, generation, slot_at) WHERE slot_at IS NOT NULL;
CREATE INDEX schedule_runs_by_age ON schedule_runs (schedule, active, run);
CREATE INDEX schedule_runs_active ON schedule_runs (status, run) WHERE active = 1;
CREATE INDEX schedule_runs_submitted ON schedule_runs (submission) WHERE submission IS NOT NULL;
";

/// The messaging connector: updates, allowed users and groups, and outgoing messages.
const MESSENGER: &str = "
CREATE TABLE counters (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE facts (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE updates (
  id      INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  sender  TEXT,
  chat    TEXT,
  verdict TEXT NOT NULL,
  reason  TEXT,
  code    TEXT
) STRICT;
CREATE INDEX updates_by_time ON updates (at);
CREATE TABLE allowed_users (
  number   INTEGER PRIMARY KEY,
  user     TEXT NOT NULL UNIQUE,
  chat     TEXT NOT NULL,
  added_at INTEGER NOT NULL
) STRICT;
CREATE TABLE chat_groups (
  id              TEXT PRIMARY KEY,
  require_mention INTEGER NOT NULL,
  allow_from      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE pairings (
  pairing    INTEGER PRIMARY KEY,
  code       TEXT NOT NULL UNIQUE,
  sender     TEXT NOT NULL,
  chat       TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT 'pending',
  replies    INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX pairings_by_time ON pairings (created_at);
-- live: something of it is left to be sent. piece: the next one; doubtful: the end of an earlier one is not known.
CREATE TABLE outbox (
  message    INTEGER PRIMARY KEY,
  key        TEXT NOT NULL UNIQUE,
  connector  TEXT NOT NULL,
  chat       TEXT NOT NULL,
  body       TEXT NOT NULL,
  state      TEXT NOT NULL DEFAULT 'pending',
  live       INTEGER NOT NULL DEFAULT 1,
  piece      INTEGER NOT NULL DEFAULT 0,
  doubtful   INTEGER NOT NULL DEFAULT 0,
  tries      INTEGER NOT NULL DEFAULT 0,
  due_at     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  message_id TEXT,
  error      TEXT
) STRICT;
CREATE INDEX outbox_live ON outbox (connector, chat, message) WHERE live = 1;
CREATE INDEX outbox_over ON outbox (created_at) WHERE live = 0;
";

/// The summaries of submissions and runs. They are stored when these end.
const TELEMETRY: &str = "
CREATE TABLE telemetry (
  submission INTEGER PRIMARY KEY REFERENCES submissions,
  settled_at INTEGER NOT NULL,
  body       TEXT NOT NULL
) STRICT;
";

/// Blobs: bytes that are identified by their digest, in pieces. A blob to which no event refers is deleted some time after its last use.
const BLOBS: &str = "
ALTER TABLE happenings RENAME TO system_events;
CREATE TABLE blobs (
  blob    INTEGER PRIMARY KEY,
  digest  TEXT NOT NULL UNIQUE,
  length  INTEGER NOT NULL,
  stored  INTEGER NOT NULL DEFAULT 0,
  used_at INTEGER NOT NULL
) STRICT;
CREATE INDEX blobs_by_use ON blobs (used_at);
CREATE TABLE pieces (
  blob  INTEGER NOT NULL,
  start INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (blob, start)
) STRICT;
CREATE TABLE blob_uses (
  blob  INTEGER NOT NULL,
  event INTEGER NOT NULL,
  PRIMARY KEY (blob, event)
) STRICT, WITHOUT ROWID;
";

/// Drops a table that is no longer used, because the number of exchanges that contain a word is now estimated.
const NO_MEMORY_WORDS: &str = "DROP TABLE memory_words;";

/// The headers of a stored answer, as a JSON array of pairs.
const KEPT_HEADERS: &str = "ALTER TABLE keys ADD COLUMN headers TEXT;";

/// Runs of workflows, each of which is a submission of a special kind. Also the system's stream.
const RUNS: &str = "
CREATE TABLE runs (
  submission INTEGER PRIMARY KEY REFERENCES submissions,
  workflow   TEXT NOT NULL,
  status     TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,
  result     TEXT,
  error      TEXT
) STRICT;
CREATE INDEX runs_by_status ON runs (status, submission);
CREATE INDEX runs_by_workflow ON runs (workflow, submission);
DROP INDEX submissions_open;
CREATE INDEX turns_open ON submissions (submission) WHERE open = 1 AND kind <> 'workflow';
CREATE INDEX runs_open ON submissions (submission) WHERE open = 1 AND kind = 'workflow';
CREATE INDEX runs_live ON submissions (state, open) WHERE live = 1 AND kind = 'workflow';
-- The system's own stream. It lies by itself: every change adds to it, always at its end. The newest always stays, so
-- that numbers are not given twice.
CREATE TABLE happenings (
  number INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  body   TEXT NOT NULL
) STRICT;
";

const FIRST: &str = "
-- On whose behalf. key is the JSON array of the other columns, because an absent thread equals only an absent one.
CREATE TABLE scopes (
  scope        INTEGER PRIMARY KEY,
  key          TEXT NOT NULL UNIQUE,
  connector    TEXT NOT NULL,
  actor        TEXT NOT NULL,
  conversation TEXT NOT NULL,
  thread       TEXT
) STRICT;

CREATE TABLE streams (
  stream       INTEGER PRIMARY KEY,
  name         TEXT NOT NULL UNIQUE,
  kind         TEXT NOT NULL,
  content_type TEXT NOT NULL,
  entries      INTEGER NOT NULL DEFAULT 0,
  closed       INTEGER NOT NULL DEFAULT 0,
  created_at   INTEGER NOT NULL
) STRICT;

-- place is stream << 32 | number in the stream, so that a stream lies together and in order, and a page of it costs
-- its own length.
CREATE TABLE entries (
  place INTEGER PRIMARY KEY,
  body  TEXT NOT NULL
) STRICT;

-- The history of an agent's instance, from its first settled submission on.
CREATE TABLE instances (
  stream        INTEGER PRIMARY KEY REFERENCES streams,
  turns         INTEGER NOT NULL DEFAULT 0,
  compactions   INTEGER NOT NULL DEFAULT 0,
  summary       TEXT,
  summary_after INTEGER NOT NULL DEFAULT 0
) STRICT;

-- A session is the instance of the same id, with a scope.
CREATE TABLE sessions (
  stream      INTEGER PRIMARY KEY REFERENCES streams,
  id          TEXT NOT NULL,
  scope       INTEGER NOT NULL REFERENCES scopes,
  origin      TEXT NOT NULL,
  title       TEXT,
  name        TEXT,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  archived_at INTEGER
) STRICT;
CREATE INDEX sessions_by_scope ON sessions (scope, updated_at) WHERE archived_at IS NULL;
CREATE INDEX sessions_by_time ON sessions (updated_at) WHERE archived_at IS NULL;
CREATE INDEX sessions_by_name ON sessions (scope, name) WHERE name IS NOT NULL AND archived_at IS NULL;
CREATE INDEX archived_by_scope ON sessions (scope, updated_at) WHERE archived_at IS NOT NULL;
CREATE INDEX archived_by_time ON sessions (updated_at) WHERE archived_at IS NOT NULL;

-- What came in. answer is what was said to it, for whoever asks again.
CREATE TABLE events (
  event       INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  scope       INTEGER REFERENCES scopes,
  kind        TEXT NOT NULL,
  text        TEXT NOT NULL,
  received_at INTEGER NOT NULL,
  context     TEXT,
  raw         TEXT,
  images      TEXT,
  answer      TEXT NOT NULL
) STRICT;

-- live: not settled. open: may be claimed now. place: order among the queued ones of an instance.
CREATE TABLE submissions (
  submission     INTEGER PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  stream         INTEGER NOT NULL REFERENCES streams,
  event          INTEGER NOT NULL REFERENCES events,
  kind           TEXT NOT NULL,
  hidden         INTEGER NOT NULL,
  state          TEXT NOT NULL,
  live           INTEGER NOT NULL DEFAULT 1,
  open           INTEGER NOT NULL,
  place          INTEGER NOT NULL,
  recorded_from  INTEGER NOT NULL,
  next_index     INTEGER NOT NULL DEFAULT 0,
  lease          INTEGER NOT NULL DEFAULT 0,
  attempt        INTEGER NOT NULL DEFAULT 0,
  closings       INTEGER NOT NULL DEFAULT 0,
  abort          INTEGER NOT NULL DEFAULT 0,
  first_claim_at INTEGER,
  waiting_since  INTEGER,
  waited_ms      INTEGER NOT NULL DEFAULT 0,
  approvals      TEXT
) STRICT;
CREATE INDEX submissions_live ON submissions (stream, state, place) WHERE live = 1;
CREATE INDEX submissions_open ON submissions (submission) WHERE open = 1;
CREATE INDEX prompts ON submissions (stream, submission) WHERE kind = 'prompt';

-- Settled submissions. body is the exchange as a transcript shows it; turn counts the prompts of an instance.
CREATE TABLE exchanges (
  submission    INTEGER PRIMARY KEY REFERENCES submissions,
  stream        INTEGER NOT NULL REFERENCES streams,
  turn          INTEGER,
  body          TEXT,
  answer        TEXT NOT NULL,
  result        TEXT,
  error         TEXT,
  context_usage TEXT,
  ended_at      INTEGER NOT NULL,
  settled_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX exchanges_by_turn ON exchanges (stream, turn) WHERE turn IS NOT NULL;

CREATE TABLE knowledge (
  entry        INTEGER PRIMARY KEY AUTOINCREMENT,
  id           TEXT NOT NULL UNIQUE,
  title        TEXT NOT NULL,
  content      TEXT NOT NULL,
  source       TEXT NOT NULL,
  actor        TEXT,
  conversation TEXT,
  tags         TEXT NOT NULL,
  created_by   TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE jobs (
  job         INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  status      TEXT NOT NULL,
  reached     INTEGER NOT NULL DEFAULT 0,
  until       INTEGER NOT NULL,
  done        INTEGER NOT NULL DEFAULT 0,
  total       INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER,
  error       TEXT
) STRICT;
CREATE INDEX jobs_running ON jobs (job) WHERE status = 'running';

-- realm, later called scope, is a word that stands for a scope: rules/scope_words.rs. The texts themselves are in knowledge, events and exchanges.
CREATE VIRTUAL TABLE knowledge_index USING fts5 (
  realm, title, tags, content,
  content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE knowledge_words USING fts5vocab ('knowledge_index', 'row');
CREATE VIRTUAL TABLE memory_index USING fts5 (
  realm, prompt, answer,
  content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE memory_words USING fts5vocab ('memory_index', 'row');

CREATE TABLE keys (
  id     INTEGER PRIMARY KEY,
  key    TEXT NOT NULL UNIQUE,
  body   TEXT NOT NULL,
  seed   TEXT NOT NULL,
  at     INTEGER NOT NULL,
  status INTEGER,
  answer TEXT
) STRICT;
CREATE INDEX keys_by_time ON keys (at);
";

const PUBLIC_STREAMS: &str = "
-- The streams below streams/. Their ids are never used again, since an id tells a stream from a later one of its name.
-- A name that is NULL is that of a stream which is being deleted. source and base: the entries before base are those of
-- the source; forks counts who refers so to this one, and gone says that it is kept for them alone. asked is the fork as
-- it was asked for. There is no foreign key, because checking one would read all streams whenever one is deleted.
CREATE TABLE public_streams (
  stream       INTEGER PRIMARY KEY AUTOINCREMENT,
  name         TEXT UNIQUE,
  content_type TEXT NOT NULL,
  entries      INTEGER NOT NULL DEFAULT 0,
  closed       INTEGER NOT NULL DEFAULT 0,
  ttl          INTEGER,
  expires_at   INTEGER,
  last_seq     TEXT,
  source       INTEGER,
  base         INTEGER NOT NULL DEFAULT 0,
  asked        TEXT,
  forks        INTEGER NOT NULL DEFAULT 0,
  gone         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX public_by_end ON public_streams (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX public_removed ON public_streams (stream) WHERE name IS NULL;

-- What was appended lies in the order in which it came, whatever stream it is of: an append then writes the last page
-- of the table, not one of each stream. places has, as entries has, stream << 32 | number, and the row that lies there.
CREATE TABLE appends (
  append INTEGER PRIMARY KEY,
  body   BLOB NOT NULL
) STRICT;
CREATE TABLE places (
  place  INTEGER PRIMARY KEY,
  append INTEGER NOT NULL
) STRICT;

CREATE TABLE producers (
  stream INTEGER NOT NULL,
  id     TEXT NOT NULL,
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  PRIMARY KEY (stream, id)
) STRICT, WITHOUT ROWID;

-- The last call of each slot, see calls.rs.
CREATE TABLE calls (
  slot   TEXT PRIMARY KEY,
  number INTEGER NOT NULL,
  answer TEXT NOT NULL,
  at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::tables::Tables;
    use crate::tables::sqlite::Sqlite;

    /// Returns a database to which all migrations before this one have been applied.
    fn before(migration: &str) -> Connection {
        let database = Connection::open_in_memory().unwrap();
        add_functions(&database).unwrap();
        let earlier = STEPS.iter().take_while(|step| **step != migration);
        earlier.for_each(|step| database.execute_batch(step).unwrap());
        database
    }

    #[test]
    fn indexes_from_before_their_column_was_renamed_find_what_they_found() {
        let database = before(SCOPE_COLUMNS);
        let old = "INSERT INTO knowledge_index (rowid, realm, title, tags, content) VALUES (7, 'zqglobal', 'Valves', '', 'red');
                   INSERT INTO memory_index (rowid, realm, prompt, answer) VALUES (8, 'zqm1', 'Which valve?', 'The red one.');
                   INSERT INTO vectors (entry, model, realm, vector) VALUES (7, 'm', 'zqglobal', x'01');";
        database.execute_batch(old).unwrap();
        let rename = format!("BEGIN IMMEDIATE; {SCOPE_COLUMNS} COMMIT");
        database.execute_batch(&rename).unwrap();
        for (sql, found) in [
            (
                "SELECT rowid FROM knowledge_index WHERE knowledge_index MATCH 'scope : (zqglobal) AND {title content} : (red)'",
                7,
            ),
            ("SELECT rowid FROM memory_index WHERE memory_index MATCH 'scope : (zqm1) AND {prompt answer} : (red)'", 8),
            ("SELECT doc FROM knowledge_words WHERE term = 'zqglobal'", 1),
            ("SELECT entry FROM vectors WHERE scope = 'zqglobal'", 7),
        ] {
            let first: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
            assert_eq!(first, found, "{sql}");
        }
        let new = "INSERT OR REPLACE INTO knowledge_index (rowid, scope, title, tags, content) VALUES (7, 'zqa2', 'Valves', '', 'red');
                   DELETE FROM memory_index WHERE rowid = 8;
                   INSERT INTO knowledge_index (knowledge_index) VALUES ('integrity-check');
                   INSERT INTO memory_index (memory_index) VALUES ('integrity-check');";
        database.execute_batch(new).unwrap();
        let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }

    /// Otherwise the key of a draft would stop the answer of its turn.
    #[test]
    fn drafts_are_gone_and_finished_messages_are_there() {
        let database = before(NO_DRAFTS);
        let old = r#"INSERT INTO outbox (key, connector, chat, body, due_at, created_at, shown)
                     VALUES ('d', 'messenger', '7', '{"text":"So far","draft":true}', 0, 0, '{}'),
                            ('m', 'messenger', '7', '{"text":"Whole"}', 0, 0, NULL);"#;
        database.execute_batch(old).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {NO_DRAFTS} COMMIT")).unwrap();
        let left: String = database.query_row("SELECT group_concat(key) FROM outbox", [], |row| row.get(0)).unwrap();
        assert_eq!(left, "m");
    }

    #[test]
    fn usage_is_counted_from_summaries_that_are_there_and_goes_with_them() {
        let database = before(USAGE);
        let summary = |submission: u32, tokens: u32| {
            let body = format!(
                r#"{{"model":"m","usage":{{"input":{tokens},"output":2,"totalTokens":{}}},"cost":0.5}}"#,
                tokens + 2
            );
            format!("INSERT OR REPLACE INTO telemetry VALUES ({submission}, 86400000, '{body}');")
        };
        // Sessions and events do not matter here.
        database.pragma_update(None, "foreign_keys", false).unwrap();
        let submissions = "INSERT INTO submissions (submission, id, stream, event, kind, hidden, state, open, place, recorded_from)
            VALUES (1, 's1', 4, 1, 'prompt', 0, 'completed', 0, 0, 0), (2, 's2', 5, 2, 'workflow', 0, 'completed', 0, 0, 0);";
        database.execute_batch(&(submissions.to_owned() + &summary(1, 10) + &summary(2, 20))).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {USAGE} COMMIT")).unwrap();
        type Used = (i64, String, Option<i64>, i64, Option<f64>);
        let used = || -> Vec<Used> {
            let mut usage = database.prepare("SELECT submission, day, stream, input, cost FROM usage").unwrap();
            let rows = usage.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let row = |submission, stream, input| (submission, "1970-01-02".to_owned(), stream, input, Some(0.5));
        assert_eq!(used(), [row(1, Some(4), 10), row(2, None, 20)]);
        // A later summary of the same submission replaces the earlier one.
        database.execute_batch(&summary(1, 30)).unwrap();
        assert_eq!(used(), [row(1, Some(4), 30), row(2, None, 20)]);
        database.execute_batch("DELETE FROM telemetry WHERE submission = 1").unwrap();
        assert_eq!(used(), [row(2, None, 20)]);
    }

    #[test]
    fn the_time_of_a_turn_is_that_from_its_start_to_its_end() {
        let database = before(DURATIONS);
        database.pragma_update(None, "foreign_keys", false).unwrap();
        let submission = |number: u32, kind: &str, body: &str| {
            format!(
                "INSERT INTO submissions (submission, id, stream, event, kind, hidden, state, open, place, recorded_from)
                   VALUES ({number}, 's{number}', 4, {number}, '{kind}', 0, 'completed', 0, 0, 0);
                 INSERT INTO telemetry VALUES ({number}, 86401500, '{body}');"
            )
        };
        let started = r#"{"started_at":"1970-01-02T00:00:00.123Z"}"#;
        let old =
            submission(1, "prompt", started) + &submission(2, "workflow", started) + &submission(3, "prompt", "{}");
        database.execute_batch(&old).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {DURATIONS} COMMIT")).unwrap();
        database.execute_batch(&submission(4, "compact", started)).unwrap();
        let mut durations = database.prepare("SELECT duration FROM usage ORDER BY submission").unwrap();
        let durations = durations.query_map([], |row| row.get::<_, Option<i64>>(0)).unwrap();
        assert_eq!(durations.map(Result::unwrap).collect::<Vec<_>>(), [Some(1377), None, None, Some(1377)]);
    }

    #[test]
    fn keys_of_openai_keep_what_was_accepted_with_them() {
        let database = before(OPENAI_KEYS);
        let old = r#"INSERT INTO keys (id, key, body, seed, at, status, answer) VALUES
                       (1, 'done', 'b', 's', 0, NULL, NULL), (2, 'refused', 'b', 's', 0, NULL, NULL), (3, 'open', 'b', 's', 0, NULL, NULL),
                       (4, 'gone', 'b', 's', 0, 410, NULL), (5, 'kept', 'b', 's', 0, 201, 'kept');
                     INSERT INTO events (id, kind, text, received_at, answer) VALUES
                       ('openai-key:done', 'x', '', 0, '{"session":{"id":"a","title":"\"refused\":"}}'),
                       ('openai-key:refused', 'x', '', 0, '{"refused":{"code":"busy"}}'),
                       ('openai-key:gone', 'x', '', 0, '{}'), ('openai-key:kept', 'x', '', 0, '{}');"#;
        database.execute_batch(old).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {OPENAI_KEYS} COMMIT")).unwrap();
        let mut keys = database.prepare("SELECT status, answer FROM keys ORDER BY id").unwrap();
        let keys = keys.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let keys: Vec<(Option<u16>, Option<String>)> = keys.map(Result::unwrap).collect();
        let done = r#"{"session":{"id":"a","title":"\"refused\":"}}"#.to_owned();
        let expected = [
            (Some(200), Some(done)),
            (None, None),
            (None, None),
            (Some(410), None),
            (Some(201), Some("kept".to_owned())),
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn what_became_of_a_result_is_taken_from_its_message() {
        let database = before(SCHEDULES_OF_SESSIONS);
        database.pragma_update(None, "foreign_keys", false).unwrap();
        let run = |id: &str, delivery: &str| {
            format!(
                "INSERT INTO schedule_runs (id, schedule, generation, status, active, attempt, not_before, timeout_ms, delivery)
                   VALUES ('{id}', 1, 1, 'ok', 0, 1, 0, 0, '{delivery}');"
            )
        };
        let states = ["sent", "failed", "unknown", "pending", "sending"];
        let message = |state: &str| {
            format!(
                "INSERT INTO outbox (key, connector, chat, body, state, due_at, created_at)
                   VALUES ('schedule:{state}', 'messenger', '7', '{{}}', '{state}', 0, 0);"
            )
        };
        let of_states: String = states.iter().map(|state| run(state, "pending") + &message(state)).collect();
        let others = run("old", "pending") + &run("none", "none") + &run("here", "sent");
        database.execute_batch(&(of_states + &others)).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEDULES_OF_SESSIONS} COMMIT")).unwrap();
        let mut runs = database.prepare("SELECT delivery FROM schedule_runs ORDER BY run").unwrap();
        let runs = runs.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let expected = ["sent", "failed", "unknown", "pending", "pending", "unknown", "none", "sent"];
        assert_eq!(runs.map(Result::unwrap).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn deletions_that_were_under_way_go_on() {
        let left = |phases: &[i64]| {
            let database = before(PURGE_PASS);
            database.pragma_update(None, "foreign_keys", false).unwrap();
            for (stream, phase) in (1_i64..).zip(phases) {
                database
                    .execute("INSERT INTO purges (stream, phase, reached) VALUES (?1, ?2, 7)", (stream, phase))
                    .unwrap();
            }
            database.execute_batch(&format!("BEGIN IMMEDIATE; {PURGE_PASS} COMMIT")).unwrap();
            let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
            let pass = "SELECT count(*) FROM facts WHERE name = 'purges.pass' AND value ->> '$.phase' = 'events'";
            (one("SELECT count(*) FROM purges"), one(pass))
        };
        assert_eq!(left(&[]), (0, 0));
        assert_eq!(left(&[0, 0]), (2, 0));
        assert_eq!(left(&[0, 1, 3]), (1, 1));
    }

    #[test]
    fn a_copy_is_migrated_only_if_sessions_are_being_deleted_from_it() {
        let purge = "PRAGMA foreign_keys = OFF; INSERT INTO purges (stream, phase, reached) VALUES (1, 3, 7)";
        for (next, sql, is_migrated) in [(PURGES, "", false), (PURGE_PASS, "", false), (PURGE_PASS, purge, true)] {
            let database = before(next);
            let earlier = STEPS.iter().position(|step| *step == next).unwrap();
            database.pragma_update(None, "user_version", earlier as u32).unwrap();
            database.execute_batch(sql).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let [from, to] = ["from.db", "to.db"].map(|name| folder.path().join(name));
            database.execute("VACUUM INTO ?1", [from.to_str()]).unwrap();
            let mut calls = 0;
            let delete = |_: &dyn Tables| {
                calls += 1;
                Ok(calls < 2)
            };
            Sqlite::copy(&from, &to, delete).unwrap();
            let version = |file: &Path| {
                let file = Connection::open(file).unwrap();
                file.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0)).unwrap() as usize
            };
            let expected = if is_migrated { (earlier, VERSION, 2) } else { (earlier, earlier, 0) };
            assert_eq!((version(&from), version(&to), calls), expected);
        }
    }

    #[test]
    fn indexes_of_words_become_indexes_of_stems() {
        let database = before(STEMS);
        let old = "INSERT INTO knowledge (entry, id, title, content, source, actor, tags, created_by, created_at, updated_at)
                     VALUES (7, 'k', 'Deployments', 'Backed up nightly', 'api', 'ann', '[\"ops\"]', 'api', 0, 0);
                   INSERT INTO scopes (scope, key, connector, actor, conversation) VALUES (1, 'x', 'web', 'ann', 'c');
                   INSERT INTO streams (stream, name, kind, content_type, created_at)
                     VALUES (1, 'agents/orchestrator/i', 'agent', 'application/json', 0);
                   INSERT INTO events (event, id, scope, kind, text, received_at, answer)
                     VALUES (1, 'e1', 1, 'text', 'Which valves?', 0, ''), (2, 'e2', 1, 'text', 'no', 0, '');
                   INSERT INTO submissions (submission, id, stream, event, kind, hidden, state, open, place, recorded_from)
                     VALUES (1, 's1', 1, 1, 'prompt', 0, 'completed', 0, 0, 0), (2, 's2', 1, 2, 'prompt', 1, 'completed', 0, 0, 0);
                   INSERT INTO exchanges (submission, stream, answer, ended_at, settled_at)
                     VALUES (1, 1, 'The red one leaks.', 0, 0), (2, 1, 'valve', 0, 0);";
        database.execute_batch(old).unwrap();
        database.execute_batch(&format!("BEGIN IMMEDIATE; {STEMS} COMMIT")).unwrap();
        let all = |sql: &str, expression: String| -> Vec<i64> {
            let mut statement = database.prepare(sql).unwrap();
            let found = statement.query_map([expression], |row| row.get(0)).unwrap();
            found.map(Result::unwrap).collect()
        };
        let knowledge = "SELECT rowid FROM knowledge_index WHERE knowledge_index MATCH ?1";
        let scope = scope_words::of_entry(Some("ann"), None);
        for word in ["deploy", "back", "ops"] {
            assert_eq!(all(knowledge, format!("scope : {scope} AND {{title tags content}} : {word}")), [7], "{word}");
        }
        let memory = "SELECT rowid FROM memory_index WHERE memory_index MATCH ?1";
        let scope = scope_words::of_memory("web", "ann", "c");
        for word in ["valv", "leak"] {
            assert_eq!(all(memory, format!("scope : {scope} AND {{prompt answer}} : {word}")), [1], "{word}");
        }
    }
}
