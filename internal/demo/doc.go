// Package demo shows the main job on one machine with nothing to install: a real Postgres, a broker that speaks the
// Kafka protocol, a small order service, outtail as a process of its own that is killed over and over, and a consumer
// that checks every aggregate's sequence.
//
//	shop ──INSERT──► Postgres ──WAL──► outtail (killed by SIGKILL) ──► broker ──► consumer + checker
//	 └────────────── committed (aggregate, number, id) ─────────────────────────────────┘
//
// Only Postgres and outtail are processes; shop, broker, consumer and screen live in the demo's own process, so that
// they survive outtail's deaths. The verdict does not trust the service's own book-keeping: it compares what was
// delivered with what the outbox table holds at the end.
//
// Whoever reads this for the first time starts at Run (run.go), then Checker (checker.go).
package demo
