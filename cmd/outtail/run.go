package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/admin"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/control"
	"github.com/outtail/outtail/metrics"
	"github.com/outtail/outtail/pipeline"
)

func newRun(c *cli) *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the pipelines of a configuration",
		Long: `Runs until SIGTERM or SIGINT, then stops reading, waits up to drain_timeout for the broker's acks and saves the position.
A second signal ends at once. Nothing depends on a clean stop: SIGKILL at any instant loses nothing.

Exit codes: 0 stopped; 1 a pipeline failed; 2 configuration; 3 the source, or the port of admin.listen, cannot be used;
4 a person must decide; 5 another process uses data_dir; 130, 143 second signal.`,
		Example: "  outtail run -c outtail.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if profile == "" {
				return c.run(cmd.Context())
			}
			f, err := os.Create(profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
			return c.run(cmd.Context())
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&profile, "cpu-profile", "", "write a CPU profile to this file (for go tool pprof)")
	_ = cmd.Flags().MarkHidden("cpu-profile") // for test/bench
	return cmd
}

func (c *cli) run(ctx context.Context) error {
	cfg, err := config.Load(c.configFile, os.LookupEnv)
	if err != nil {
		return err
	}
	name := "P"
	if len(cfg.Pipelines) == 1 {
		name = cfg.Pipelines[0].Name
	}
	log := slog.New(exactHandler{Handler: newLogger(c.stderr, cfg.Log.Level, cfg.Log.Format).Handler(), complete: c.complete, pipeline: name})
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "code", w.Code, "finding", w.String())
	}
	ctx, stopSignals := c.signals(ctx, log)
	defer stopSignals()
	if err := c.serve(ctx, cfg, log); err != nil {
		c.tellFailure(cfg, log, c.exact(err, name))
		return silent{err}
	}
	return nil
}

// signals ends the context at the first SIGINT or SIGTERM, and the process at the second.
func (c *cli) signals(ctx context.Context, log *slog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() { // ends with stop
		for n := 0; ; n++ {
			select {
			case s := <-got:
				if n > 0 {
					code := 130
					if s == syscall.SIGTERM {
						code = 143
					}
					os.Exit(code)
				}
				log.Info("stopping; a second signal ends at once", "signal", s.String())
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		cancel()
	}
}

// serve runs all pipelines until ctx ends or none is left, and gives their errors joined.
func (c *cli) serve(ctx context.Context, cfg *config.Config, log *slog.Logger) (err error) {
	store, err := checkpoint.Open(checkpoint.Options{Dir: cfg.DataDir, Version: version, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.DeadLetters().Check(); err != nil {
		return err
	}
	if err := checkRenamed(cfg, store, log); err != nil {
		return err
	}
	if err := checkLost(cfg, store); err != nil {
		return err
	}

	var maxInterval = cfg.Pipelines[0].Checkpoint.Interval
	for _, p := range cfg.Pipelines {
		maxInterval = min(maxInterval, p.Checkpoint.Interval)
	}
	paceCollector()
	names := make([]string, len(cfg.Pipelines))
	for i, pc := range cfg.Pipelines {
		names[i] = pc.Name
	}
	m := metrics.New(metrics.Options{Version: version, Pipelines: names})
	p := &process{cfg: cfg, store: store, observer: m, log: log, stdout: c.stdout}
	p.committer = pipeline.NewCommitter(store, maxInterval, log, p.observer)
	pipelines := make([]*pipeline.Pipeline, len(cfg.Pipelines))
	beside := []func(context.Context){calmMemory} // what runs beside the pipelines
	for i, pc := range cfg.Pipelines {
		if pipelines[i], err = p.build(pc); err != nil {
			return err
		}
		mirror, err := p.mirror(pc, pipelines[i])
		if err != nil {
			return err
		}
		if mirror != nil {
			beside = append(beside, mirror)
		}
	}
	letters := newDeadLetters(store, pipelines)
	letters.log = log
	defer letters.wait.Wait()
	for _, pc := range cfg.Pipelines {
		if keep := pc.DeadLetters.Retention; keep > 0 {
			beside = append(beside, func(ctx context.Context) { letters.expire(ctx, pc.Name, keep, log.With("pipeline", pc.Name)) })
		}
	}

	committing, stopCommitter := context.WithCancel(context.WithoutCancel(ctx))
	var committer, running sync.WaitGroup
	committer.Go(func() { p.committer.Run(committing) })
	defer committer.Wait()
	defer stopCommitter()

	closeServers, err := c.listen(cfg, letters, m, pipelines, log)
	if err != nil {
		return err
	}
	defer closeServers()

	var aside sync.WaitGroup
	asideCtx, stopAside := context.WithCancel(ctx)
	defer aside.Wait()
	defer stopAside()
	for _, run := range beside {
		aside.Go(func() { run(asideCtx) }) // ends with the pipelines
	}

	log.Info("outtail starts", "version", version, "pipelines", len(pipelines), "data_dir", cfg.DataDir)
	results := make([]error, len(pipelines))
	for i, pl := range pipelines {
		running.Go(func() { // ends with ctx or with the pipeline's failure
			results[i] = c.exact(pl.Run(ctx), pl.Name())
			keepStop(store, pl.Name(), results[i], log)
			if results[i] != nil && len(pipelines) > 1 { // at once: the others go on
				c.tellFailure(cfg, log.With("pipeline", pl.Name()), results[i])
				results[i] = silent{results[i]}
			}
		})
	}
	running.Wait()
	return errors.Join(results...)
}

// keepStop stores what a pipeline stopped at before anybody is told, so that `checkpoint accept` knows it.
func keepStop(store *checkpoint.Store, name string, err error, log *slog.Logger) {
	f := event.AsFault(err)
	if f == nil || f.Class != event.Safety {
		return
	}
	if err := store.Stopped(name, checkpoint.Stop{Code: f.Code, Place: f.Place, At: time.Now().UTC()}); err != nil {
		log.Warn("what the pipeline stopped at could not be stored", "pipeline", name, "code", f.Code, "error", err)
	}
}

// requestShow is what `checkpoint show` asks the running process.
const requestShow = "checkpoint/show"

// requestLoad asks the running process for all that is stored of a pipeline.
const requestLoad = "checkpoint/load"

// requestAudit is what `audit` asks it.
const requestAudit = "audit"

// listen opens the admin listener and the control socket; the returned function closes both.
func (c *cli) listen(cfg *config.Config, letters *deadLetters, m *metrics.Metrics, ps []*pipeline.Pipeline, log *slog.Logger) (func(), error) {
	store, handles := letters.store, letters.handles()
	handles[requestShow] = func(context.Context, json.RawMessage) (any, error) { return store.Show() }
	handles[requestLoad] = asked(func(_ context.Context, name string) (event.Checkpoint, error) { return store.Load(name) })
	handles[requestHistory] = asked(func(_ context.Context, name string) ([]checkpoint.Past, error) { return store.History(name) })
	handles[requestStanding] = asked(func(_ context.Context, name string) (standing, error) { return standingOf(store, name) })
	handles[requestAudit] = func(context.Context, json.RawMessage) (any, error) { return store.Audits() }
	ctl, err := control.Serve(control.ServerOptions{Dir: cfg.DataDir, Version: version, Logger: log, Handles: handles})
	if err != nil {
		return nil, err
	}
	adm, err := admin.Serve(admin.Options{
		Listen: cfg.Admin.Listen, Version: version, Metrics: m.Handler(), Logger: log,
		Status: func() []admin.PipelineStatus { return c.statuses(ps) },
	})
	closing := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := adm.Shutdown(ctx); err != nil {
			log.Debug("closing the admin listener", "error", err)
		}
		if err := ctl.Close(ctx); err != nil {
			log.Debug("closing the control socket", "error", err)
		}
	}
	if err != nil {
		closing()
		return nil, err
	}
	return closing, nil
}

// statuses is what /readyz says: ready is who streams, or waits as a standby.
func (c *cli) statuses(ps []*pipeline.Pipeline) []admin.PipelineStatus {
	out := make([]admin.PipelineStatus, len(ps))
	for i, p := range ps {
		state, _, why := p.State()
		s := admin.PipelineStatus{Name: p.Name(), State: state.String(), Ready: state == pipeline.Streaming}
		standby := len(why) > 0
		for _, r := range why {
			standby = standby && r.Fault.Standby
			s.Reasons = append(s.Reasons, admin.Reason{Code: r.Fault.Code, Text: r.Fault.Error(), Since: r.Since, Hint: c.complete(r.Fault.Hint, p.Name())})
		}
		s.Ready = s.Ready || (standby && state == pipeline.Degraded)
		out[i] = s
	}
	return out
}

// exact puts the configuration's file and the pipeline's name into the commands that a fault prints, so that they can be
// copied; only the reason is left to the person (I5).
func (c *cli) exact(err error, name string) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		if event.AsFault(err) == nil {
			return err
		}
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, c.exact(e, name))
		}
		return errors.Join(all...)
	}
	f, ok := err.(*event.Fault) //nolint:errorlint // what wraps a fault stays as it is: its own text counts
	if !ok || c.configFile == "" {
		return err
	}
	g := *f
	g.Hint = c.complete(f.Hint, name)
	return &g
}

// complete puts them into one text.
func (c *cli) complete(text, pipeline string) string {
	if c.configFile == "" {
		return text
	}
	text = placeholderFile.ReplaceAllLiteralString(text, " -c "+event.ShellWord(c.configFile))
	return placeholderPipeline.ReplaceAllLiteralString(text, " --pipeline "+pipeline)
}

// What stands in commands for what the fault's maker did not know, as a word of its own.
var (
	placeholderFile     = regexp.MustCompile(` -c FILE\b`)
	placeholderPipeline = regexp.MustCompile(` --pipeline P\b`)
)

// tellFailure says why something ended, for good.
func (c *cli) tellFailure(cfg *config.Config, log *slog.Logger, err error) {
	logError(log, err)
	if forPeople(c.stderr, cfg.Log.Format) {
		printHints(c.stderr, err)
	}
}

// logError tells a fault with the fields that a person acts on.
func logError(log *slog.Logger, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			logError(log, e)
		}
		return
	}
	if _, told := err.(silent); told { //nolint:errorlint // the tree is walked here, one error at a time
		return
	}
	if f := event.AsFault(err); f != nil {
		log.Error(f.Error(), "code", f.Code, "class", f.Class.String(), "place", f.Place, "hint", f.Hint)
		return
	}
	log.Error(err.Error())
}

// printHints repeats hints of several lines as they are: in a log's line they are escaped, and commands are there to be
// copied.
func printHints(w io.Writer, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			printHints(w, e)
		}
		return
	}
	if _, told := err.(silent); told { //nolint:errorlint // the tree is walked here, one error at a time
		return
	}
	if f := event.AsFault(err); f != nil && strings.Contains(f.Hint, "\n") {
		fmt.Fprintf(w, "%s: %s\n", f.Code, f.Hint)
	}
}
