// Package harness is what the tests against real servers stand on: MySQL, Postgres and Kafka in containers whose ports
// survive a kill, a proxy that cuts connections, the real binary as a process of its own, and a checker that compares
// what committed with what a consumer saw (I1, I2, I3).
//
// Servers cost seconds and memory, so a test binary starts each kind once and gives every test its own database or topic:
//
//	var servers harness.Pool
//
//	func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
//
//	func TestX(t *testing.T) {
//		pg, kafka := servers.Postgres(t, harness.NewestPostgres()), servers.Kafka(t)
//		db, topic := pg.NewDatabase(t), kafka.NewTopic(t, 6)
//		…
//	}
//
// A test that hurts its server for others (kills it, sets globals) takes one of its own with StartPostgres and so on.
// Without OUTTAIL_SERVERS (see test/images/setup.sh) these tests are skipped; with it a server that does not start fails.
package harness
