package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

func newRun(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Run the pipelines of a configuration",
		Long: `Runs until SIGTERM or SIGINT, then stops reading, waits up to drain_timeout for the broker's acks and saves the position.
A second signal ends at once. Nothing depends on a clean stop: SIGKILL at any instant loses nothing.

Exit codes: 0 stopped; 1 a pipeline failed; 2 configuration; 3 the source cannot be used; 4 a person must decide;
5 another process uses data_dir; 130, 143 second signal.`,
		Example: "  outtail run -c outtail.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context())
		},
	}
	c.configFlag(cmd)
	return cmd
}

func (c *cli) run(ctx context.Context) error {
	cfg, err := config.Load(c.configFile, os.LookupEnv)
	if err != nil {
		return err
	}
	log := newLogger(c.stderr, cfg.Log.Level, cfg.Log.Format)
	for _, w := range cfg.Warnings {
		log.Warn("configuration", "code", w.Code, "finding", w.String())
	}
	ctx, stopSignals := c.signals(ctx, log)
	defer stopSignals()
	if err := c.serve(ctx, cfg, log); err != nil {
		logError(log, err)
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
	if err := checkRenamed(cfg, store, log); err != nil {
		return err
	}

	var maxInterval = cfg.Pipelines[0].Checkpoint.Interval
	for _, p := range cfg.Pipelines {
		maxInterval = min(maxInterval, p.Checkpoint.Interval)
	}
	p := &process{cfg: cfg, store: store, observer: observer, log: log, stdout: c.stdout}
	p.committer = pipeline.NewCommitter(store, maxInterval, log, p.observer)
	pipelines := make([]*pipeline.Pipeline, len(cfg.Pipelines))
	for i, pc := range cfg.Pipelines {
		if pipelines[i], err = p.build(pc); err != nil {
			return err
		}
	}

	committing, stopCommitter := context.WithCancel(context.WithoutCancel(ctx))
	var committer, running sync.WaitGroup
	committer.Go(func() { p.committer.Run(committing) })
	defer committer.Wait()
	defer stopCommitter()

	log.Info("outtail starts", "version", version, "pipelines", len(pipelines), "data_dir", cfg.DataDir)
	results := make([]error, len(pipelines))
	for i, pl := range pipelines {
		running.Go(func() { // ends with ctx or with the pipeline's failure
			if results[i] = pl.Run(ctx); results[i] != nil && len(pipelines) > 1 {
				logError(log.With("pipeline", pl.Name()), results[i])
			}
		})
	}
	running.Wait()
	return errors.Join(results...)
}

// logError tells a fault with the fields that a person acts on.
func logError(log *slog.Logger, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			logError(log, e)
		}
		return
	}
	if f := event.AsFault(err); f != nil {
		log.Error(f.Error(), "code", f.Code, "class", f.Class.String(), "place", f.Place, "hint", f.Hint)
		return
	}
	log.Error(err.Error())
}
