-- A key of a request to /v1 keeps what was accepted. Before, only an event with the name of the key said so.
UPDATE keys SET status = 200, answer = (SELECT e.answer FROM events AS e WHERE e.id = 'openai-key:' || keys.key)
  WHERE answer IS NULL AND status IS NULL
    AND EXISTS (SELECT 1 FROM events AS e WHERE e.id = 'openai-key:' || keys.key AND e.answer NOT LIKE '%"refused":%');
