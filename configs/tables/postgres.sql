-- The outbox table of preset outtail. Insert a row in the transaction that changes the business rows.
CREATE TABLE outbox (
  id             uuid PRIMARY KEY,
  aggregate_type text NOT NULL,
  aggregate_id   text NOT NULL,
  event_type     text NOT NULL,
  payload        jsonb,
  headers        jsonb,
  occurred_at    timestamptz NOT NULL DEFAULT now()
);
