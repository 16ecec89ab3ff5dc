-- As the owner of the service's schema, in the service's database (encoding UTF8). It writes an event into the log, as part of
-- the transaction that calls it: no row, no table, nothing to clean up. The event exists only in the log: once it was sent,
-- and the slot has moved on, nobody can read it again.
CREATE FUNCTION outtail_emit(aggregate_type text, aggregate_id text, event_type text, payload json,
    headers json DEFAULT NULL, id uuid DEFAULT gen_random_uuid()) RETURNS pg_lsn LANGUAGE sql VOLATILE AS $$
  SELECT pg_logical_emit_message(true, 'outtail', concat('{"id":', to_json($6), ',"aggregate_type":', coalesce(to_json($1), 'null'),
    ',"aggregate_id":', coalesce(to_json($2), 'null'), ',"event_type":', coalesce(to_json($3), 'null'),
    ',"headers":' || $5::text, ',"occurred_at":', to_json(now()), ',"payload":' || $4::text, '}'))
$$;
-- BEGIN; UPDATE …; SELECT outtail_emit('order', '4711', 'order.created', '{"total": 12.50}'); COMMIT;

-- As a superuser. postgresql.conf needs wal_level = logical (a restart), and room in max_replication_slots and max_wal_senders:
CREATE ROLE outtail WITH LOGIN REPLICATION;

-- A stream needs a publication, also an empty one:
CREATE PUBLICATION outtail_orders WITH (publish = 'insert');

-- Left to do:
-- 1. The role has no password, so nobody can log in as it. Give it one, and outtail the same as PGPASSWORD:
--    ALTER ROLE outtail PASSWORD '…';   (in psql: \password outtail, which keeps it out of logs)
-- 2. Events are sent from the slot's creation on. outtail creates it at its first start (create: true). To have them sent from now on:
--    SELECT pg_create_logical_replication_slot('outtail_orders', 'pgoutput');
