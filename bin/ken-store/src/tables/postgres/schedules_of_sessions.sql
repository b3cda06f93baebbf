-- stream: the session with which a schedule ends.
ALTER TABLE schedules ADD COLUMN stream bigint;
CREATE INDEX schedules_by_stream ON schedules (stream) WHERE stream IS NOT NULL;
