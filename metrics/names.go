package metrics

// Metric is one row of the table from which the collectors and docs/METRICS.md are made.
type Metric struct {
	Name string
	Type string // counter, gauge or histogram
	// Labels beside pipeline, which all but outtail_build_info have.
	Labels []string
	Unit   string
	// Tells what it says (also the help text in the exposition), Do what to do about it.
	Tells, Do string
	Buckets   []float64 // of a histogram, in Unit
}

// The names. They are a promise to dashboards and alerts: none is renamed, none changes its meaning or unit.
const (
	buildInfo      = "outtail_build_info"
	pipelineState  = "outtail_pipeline_state"
	lagSeconds     = "outtail_source_lag_seconds"
	lagBytes       = "outtail_source_lag_bytes"
	retainedBytes  = "outtail_source_retained_bytes"
	retentionLeft  = "outtail_source_retention_left_seconds"
	reconnects     = "outtail_source_reconnects_total"
	eventsRead     = "outtail_events_read_total"
	eventsFiltered = "outtail_events_filtered_total"
	headersSkipped = "outtail_headers_skipped_total"
	timesReplaced  = "outtail_timestamps_replaced_total"
	messagesSent   = "outtail_messages_sent_total"
	messagesAcked  = "outtail_messages_acked_total"
	sendErrors     = "outtail_send_errors_total"
	sendUnknown    = "outtail_send_unknown_total"
	eventsParked   = "outtail_events_parked_total"
	parkedEvents   = "outtail_parked_events"
	parkedOldest   = "outtail_parked_oldest_seconds"
	inflightEvents = "outtail_inflight_events"
	inflightBytes  = "outtail_inflight_bytes"
	oldestUnacked  = "outtail_oldest_unacked_seconds"
	commitToAck    = "outtail_commit_to_ack_seconds"
	sendToAck      = "outtail_send_to_ack_seconds"
	saveSeconds    = "outtail_checkpoint_save_seconds"
	lastSave       = "outtail_checkpoint_last_save_timestamp_seconds"
	versionGaps    = "outtail_version_gaps_total"
	replayEvents   = "outtail_replay_events_total"
)

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Table lists all metrics of outtail's own, in the order of the documentation.
func Table() []Metric {
	// From a good disk or broker to an outage that was survived.
	latency := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	disk := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	return []Metric{
		{
			Name: buildInfo, Type: gauge, Labels: []string{"version"}, Unit: "1",
			Tells: "Always 1; the label says which version runs.",
			Do:    "Compare over hosts after an upgrade.",
		},
		{
			Name: pipelineState, Type: gauge, Labels: []string{"state"}, Unit: "0 or 1",
			Tells: "1 for the state the pipeline is in, 0 for the others: `starting` (connecting for the first time), `streaming`, `degraded` (alive, and something holds it up), `paused` (told to wait; nothing does so in this version), `draining` (told to stop, waits for acknowledgements), `stopped`, `failed`.",
			Do:    "starting for long: the source does not answer, /readyz says why. degraded: read the reason at /readyz. failed: a person must decide; the log's last Error names the ways out.",
		},
		{
			Name: lagSeconds, Type: gauge, Unit: "seconds",
			Tells: "How long ago the last event that was read had been committed while the source has more to read, 0 when caught up.",
			Do:    "Growing while events are read: the source produces more than flows; growing while none are: see state and send errors.",
		},
		{
			Name: lagBytes, Type: gauge, Unit: "bytes",
			Tells: "Log between what was read and the server's end, NaN where the server does not say.",
			Do:    "As for the lag in seconds; it also grows with foreign traffic, and must fall again.",
		},
		{
			Name: retainedBytes, Type: gauge, Unit: "bytes",
			Tells: "Log that the server keeps because outtail still needs it, NaN where unknown.",
			Do:    "Before the server's disk fills: mend what holds the pipeline, or limit it there (max_slot_wal_keep_size) and accept a safety stop.",
		},
		{
			Name: retentionLeft, Type: gauge, Unit: "seconds",
			Tells: "Time until the server purges log that outtail still needs, NaN where unknown.",
			Do:    "Raise the server's retention (binlog_expire_logs_seconds, max_slot_wal_keep_size) before it reaches 0: after that it is a safety stop.",
		},
		{
			Name: reconnects, Type: counter, Unit: "1",
			Tells: "Sessions with the source that were opened again after one had ended.",
			Do:    "A steady rate means a server, proxy or network that cuts: see the log's Warn lines.",
		},
		{
			Name: eventsRead, Type: counter, Unit: "events",
			Tells: "Committed outbox rows that were read, re-reads after a reconnect included.",
			Do:    "0 while the application writes: check tables and, on Postgres, the publication.",
		},
		{
			Name: eventsFiltered, Type: counter, Labels: []string{"reason"}, Unit: "events",
			Tells: "What is not sent: `dropped` by a rule; `skipped` by a policy or a person, `expired` by dead_letters.retention; rows of an outbox table that were `updated` (UPDATE, REPLACE, ON DUPLICATE KEY UPDATE) or `deleted` (MySQL, MariaDB); rows of the past of a versioned table, `history` (MariaDB).",
			Do:    "`dropped`, more than expected: read the routes with `outtail validate`. `updated`: whoever writes rewrites events instead of inserting them; see `on_update`.",
		},
		{
			Name: headersSkipped, Type: counter, Unit: "headers",
			Tells: "Headers of rows (role headers) that were left out of their messages, because outtail writes a header of that name itself (id, event_type, source and others).",
			Do:    "Above 0: whoever writes the outbox expects them in the message. Rename them there, or map the role whose header it is.",
		},
		{
			Name: messagesSent, Type: counter, Labels: []string{"topic"}, Unit: "messages",
			Tells: "Messages handed to the broker's client. Topics beyond the first 1,000 are counted under (other).",
			Do:    "Compare with the acked ones.",
		},
		{
			Name: messagesAcked, Type: counter, Labels: []string{"topic"}, Unit: "messages",
			Tells: "Messages that the broker acknowledged. Topics beyond the first 1,000 are counted under (other).",
			Do:    "Stands still while messages are sent: the broker does not answer; see /readyz.",
		},
		{
			Name: sendErrors, Type: counter, Labels: []string{"class"}, Unit: "1",
			Tells: "Errors of the sink by class: retry, record, config, environment, safety, internal.",
			Do:    "config asks for a change at the broker (topic, ACL, credentials), record is about one event; retry passes by itself.",
		},
		{
			Name: sendUnknown, Type: counter, Unit: "messages",
			Tells: "Messages whose outcome is not known (timeout, connection lost) and that are sent again.",
			Do:    "Each may be a duplicate for consumers; a steady rate asks for a look at broker and network.",
		},
		{
			Name: timesReplaced, Type: counter, Unit: "events",
			Tells: "Records that have the commit time for a timestamp, since their occurred_at is no time, before 1970, or more than an hour after the commit. What is sent again is counted again.",
			Do:    "The header occurred_at has the row's own. Many: a clock or a time zone of the service is wrong.",
		},
		{
			Name: eventsParked, Type: counter, Labels: []string{"reason"}, Unit: "events",
			Tells: "Events written to the dead-letter store instead of being sent.",
			Do:    "Look at them, mend the cause, replay.",
		},
		{
			Name: parkedEvents, Type: gauge, Unit: "events",
			Tells: "Events in the dead-letter store that wait for a person.",
			Do:    "Above 0, aggregates stand still: replay or skip them.",
		},
		{
			Name: parkedOldest, Type: gauge, Unit: "seconds",
			Tells: "Age of the oldest event that waits in the dead-letter store, 0 when none does.",
			Do:    "As for the parked events.",
		},
		{
			Name: inflightEvents, Type: gauge, Unit: "events",
			Tells: "Events admitted and not yet passed by the acked prefix.",
			Do:    "At limits.in_flight_events for long: the sink is the bottleneck, or one unacked event holds the rest.",
		},
		{
			Name: inflightBytes, Type: gauge, Unit: "bytes",
			Tells: "Bytes that these events keep alive.",
			Do:    "At limits.in_flight_bytes for long: as above; raise the limit only with memory to spare.",
		},
		{
			Name: oldestUnacked, Type: gauge, Unit: "seconds",
			Tells: "How long the oldest unacknowledged event has been in flight, 0 when none is.",
			Do:    "Growing: the broker does not take it; /readyz says why. The stored position waits behind it.",
		},
		{
			Name: commitToAck, Type: histogram, Unit: "seconds", Buckets: latency,
			Tells: "From the commit in the database to the broker's acknowledgement, by both machines' clocks.",
			Do:    "This is what users feel. Compare with the next one to see which side is slow.",
		},
		{
			Name: sendToAck, Type: histogram, Unit: "seconds", Buckets: latency,
			Tells: "From handing a message to the client to the broker's acknowledgement.",
			Do:    "High: broker, network, or many bytes in flight.",
		},
		{
			Name: saveSeconds, Type: histogram, Unit: "seconds", Buckets: disk,
			Tells: "How long storing the position took, with its fsync.",
			Do:    "Above 0.1 s: data_dir is on a slow or busy disk.",
		},
		{
			Name: lastSave, Type: gauge, Unit: "seconds since 1970",
			Tells: "When the position was last stored, 0 before the first time.",
			Do:    "Older than a minute while the state is streaming: look at the log, the disk of data_dir and the oldest unacked event.",
		},
		{
			Name: versionGaps, Type: counter, Unit: "1",
			Tells: "Times an aggregate's version did not follow the one before.",
			Do:    "Versions are the application's: look for rows that were not written, or not in order.",
		},
		{
			Name: replayEvents, Type: counter, Labels: []string{"result"}, Unit: "events",
			Tells: "Events of replays by result.",
			Do:    "failed ones stay where they were; see the replay's report.",
		},
	}
}
