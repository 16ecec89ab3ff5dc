package demo

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// lookEvery is how often the state is looked at, drawEvery how often it is drawn.
	lookEvery = 50 * time.Millisecond
	drawEvery = 300 * time.Millisecond
	// drainPatience is how long nothing may arrive before what is missing counts as lost. Generous: a loaded machine is
	// slow, and outtail's backoff towards a broker reaches some ten seconds.
	drainPatience = 60 * time.Second
	// caughtUp is the lag below which outtail has recovered from a kill.
	caughtUp = 100 * time.Millisecond
)

// Run brings everything up, runs it until it is interrupted or Options.Duration has passed, takes it down and prints the
// verdict. The error is nil only where nothing was lost, out of order, invented or changed. Whatever happens, no process
// and no folder is left behind.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	i := catchInterrupts(ctx)
	defer i.close()
	s := &stage{options: o, interrupts: i, checker: NewChecker(), passed: map[int32]int64{}, failed: make(chan error, 1)}
	return s.run()
}

// stage is one run of the demo.
type stage struct {
	options    Options
	interrupts *interrupts
	folder     string
	nursery    *nursery
	postgres   *postgres
	broker     *broker
	connector  *connector
	checker    *Checker
	shop       *shop
	consumer   *consumer

	crew   sync.WaitGroup // the goroutines of go
	failed chan error     // the first failure of one of them

	mu     sync.Mutex
	passed map[int32]int64 // next offset to read by partition

	rates rates
	notes []string
	kills int
}

func (s *stage) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicFault("main", v)
		}
	}()
	s.folder, err = os.MkdirTemp("", "outtail-demo-")
	if err != nil {
		return workspaceFault(err)
	}
	defer s.removeFolder()
	// Others may pass through it, to what is theirs, but not look around.
	if err := os.Chmod(s.folder, 0o711); err != nil {
		return workspaceFault(err)
	}
	s.nursery = newNursery()
	defer s.nursery.close()

	// Goroutines end before what they use is taken down.
	crewContext, dismiss := context.WithCancelCause(s.interrupts.now)
	defer s.takeDown()
	defer s.crew.Wait()
	defer dismiss(ErrInterrupted)

	if err := s.bringUp(crewContext); err != nil {
		return err
	}
	verdict, err := s.play(crewContext)
	if err != nil {
		return err
	}
	screen := newScreen(s.options.Out, s.options.Getenv)
	for _, line := range verdict.Lines(screen.paint) {
		fmt.Fprintln(s.options.Out, line)
	}
	if !verdict.Good() {
		return verdictFault(verdict)
	}
	return nil
}

func (s *stage) removeFolder() {
	if s.options.Getenv("DEMO_KEEP") == "1" {
		fmt.Fprintf(s.options.Notes, "  kept       %s (DEMO_KEEP=1)\n", s.folder)
		return
	}
	err := os.RemoveAll(s.folder)
	for try := 0; err != nil && try < 20; try++ {
		// Processes of a Postgres that was killed live a moment longer and may still write.
		time.Sleep(50 * time.Millisecond)
		err = os.RemoveAll(s.folder)
	}
	if err != nil {
		fmt.Fprintf(s.options.Notes, "  %s could not be removed: %v\n", s.folder, err)
	}
}

// takeDown ends what is still there, in the reverse order of its beginning.
func (s *stage) takeDown() {
	quietly := s.interrupts.now.Err() == nil
	if s.connector != nil && s.connector.life != nil {
		s.connector.kill()
	}
	if s.consumer != nil {
		s.consumer.close()
	}
	if s.broker != nil {
		s.broker.close()
	}
	if s.postgres != nil {
		s.postgres.stop(quietly)
	}
}

// bringUp starts everything but the shop: the first order is committed only when outtail is ready, since it begins at
// "now".
func (s *stage) bringUp(crew context.Context) (err error) {
	ctx, arrived := s.interrupts.onTheWayUp()
	defer arrived()
	defer func() { err = interruptedOr(ctx, err) }()
	say := func(what, text string, a ...any) {
		fmt.Fprintf(s.options.Notes, "  %-10s %s\n", what, fmt.Sprintf(text, a...))
	}
	b, err := findBinaries(ctx, s.options, cacheFolder())
	if err != nil {
		return err
	}
	say("postgres", "starting %s", b.origin)
	if s.postgres, err = startPostgres(ctx, s.nursery, b, s.folder); err != nil {
		return err
	}
	if err := createShop(ctx, s.postgres); err != nil {
		return err
	}
	say("postgres", "%s is ready on 127.0.0.1:%d", s.postgres.version, s.postgres.port)

	if s.broker, err = startBroker(); err != nil {
		return err
	}
	say("broker", "kafka protocol on %s", s.broker.address)
	if s.consumer, err = newConsumer(s.broker, s.checker); err != nil {
		return err
	}
	s.goes("consumer", func() error { return s.consumer.run(crew, s.note) })

	if s.connector, err = newConnector(s.nursery, s.options.Binary, s.folder, s.postgres, s.broker); err != nil {
		return err
	}
	if err := s.connector.start(); err != nil {
		return err
	}
	say("outtail", "starting, pid %d", s.connector.life.pid())
	if err := s.connector.awaitReady(ctx); err != nil {
		return err
	}
	say("outtail", "is ready, %s after its start", span(time.Since(s.connector.life.started)))
	s.shop = &shop{postgres: s.postgres, checker: s.checker, rate: s.options.Rate}
	return nil
}

// interruptedOr prefers the reason why ctx ended to what failed because of it.
func interruptedOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// cacheFolder is where fetched binaries stay.
func cacheFolder() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir() // no home: fetched anew when the folder was emptied
	}
	return filepath.Join(base, "outtail")
}

// goes runs f as one of the crew; a failure, and a panic too, ends the run.
func (s *stage) goes(name string, f func() error) {
	s.crew.Go(func() {
		err := guarded(name, f)
		if err == nil {
			return
		}
		select {
		case s.failed <- err:
		default: // the first one tells enough
		}
	})
}

func guarded(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicFault(name, v)
		}
	}()
	return f()
}

func (s *stage) note(partition int32, next int64) {
	s.mu.Lock()
	s.passed[partition] = next
	s.mu.Unlock()
}

// readToTheEnd reports whether the consumer has read all that the broker holds.
func (s *stage) readToTheEnd() bool {
	s.mu.Lock()
	passed := maps.Clone(s.passed)
	s.mu.Unlock()
	for partition, end := range s.broker.ends() {
		if passed[partition] < end {
			return false
		}
	}
	return true
}
