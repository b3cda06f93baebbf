-- stream: the session with which a schedule ends. What became of a result was looked up at each read before.
ALTER TABLE schedules ADD COLUMN stream bigint;
CREATE INDEX schedules_by_stream ON schedules (stream) WHERE stream IS NOT NULL;
UPDATE schedule_runs SET delivery = coalesce(
  (SELECT CASE WHEN state IN ('sent', 'failed', 'unknown') THEN state ELSE 'pending' END FROM outbox WHERE key = 'schedule:' || schedule_runs.id),
  'unknown') WHERE delivery = 'pending';
