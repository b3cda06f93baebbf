-- Several hosts work at the same time. leads: the one that has the duties of which each has one holder, see hosts.rs.
DROP INDEX hosts_active;
ALTER TABLE hosts ADD COLUMN leads bigint NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX hosts_leading ON hosts (leads) WHERE leads = 1;

-- The host whose agent holds the submission, if it is held. What has no host that works is released.
ALTER TABLE submissions ADD COLUMN holder text COLLATE "C";
CREATE INDEX submissions_held ON submissions (holder) WHERE live = 1 AND open = 0 AND state <> 'queued';

-- The host on which the session was begun. If the session is bound to a folder, that is a folder there.
ALTER TABLE sessions ADD COLUMN home text COLLATE "C";
ALTER TABLE sessions ALTER COLUMN home SET DEFAULT current_setting('ken.host', true);
