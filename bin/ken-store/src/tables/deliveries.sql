-- The record of a run says what became of its result. Before, that was looked up at each read.
UPDATE schedule_runs SET delivery = coalesce(
  (SELECT CASE WHEN state IN ('sent', 'failed', 'unknown') THEN state ELSE 'pending' END FROM outbox WHERE key = 'schedule:' || schedule_runs.id),
  'unknown') WHERE delivery = 'pending';
