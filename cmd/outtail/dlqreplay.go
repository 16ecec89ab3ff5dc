package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/control"
)

func newDLQReplay(c *cli) *cobra.Command {
	var pick deadPick
	var q deadAct
	var reason, edit string
	cmd := &cobra.Command{
		Use:   "replay -c FILE (--id ID | --aggregate A | --all | …) --reason R",
		Short: "Send parked events again, in order",
		Long: `Goes through the running pipeline, so that order holds: of those that wait for each other an event goes only when no earlier
one is left, and what was kept behind a delivered one follows it. Events keep their ids; topic, key and format are those that the
configuration gives now. What is refused again stays where it is. Exit 0 when all that was picked
was delivered, as far as --canary lets it; 1 when something of it was refused (OT0016), or waits behind what was not picked (OT0031).
A pick that matches nothing is refused (OT0025, exit 2); --all of nothing is done.

With --edit the one event that is picked goes with another payload, FILE's bytes; one line break at the end of FILE, as editors put it,
is left out where the payload that is kept ends without one. What its topic would not take, and what is no JSON where the payload
that is kept is JSON, is refused before anything is changed (OT0026, exit 2).

Ctrl-C ends the replay; so does outtail dlq stop, from anywhere. What was not delivered until then waits as before.`,
		Example: `  outtail dlq replay -c outtail.yaml --code OT6101 --canary 1 --reason "route added"
  outtail dlq replay -c outtail.yaml --all --rate 200 --reason "limit raised"
  outtail dlq replay -c outtail.yaml --id 5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01 --edit payload.json --reason "broken by release 1.2"
  outtail dlq replay -c outtail.yaml --id 5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01 --number 17 --edit payload.json --reason "kept twice"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := pick.one(c, "replay")
			if err != nil {
				return err
			}
			a := act(&pick, reason)
			a.Canary, a.Rate, a.Topic, a.NotJSON = q.Canary, q.Rate, q.Topic, q.NotJSON
			if a.Canary < 0 || !(a.Rate >= 0) || math.IsInf(a.Rate, 1) {
				return usageError{errors.New("--canary and --rate are positive numbers")}
			}
			if a.NotJSON && edit == "" {
				return usageError{errors.New("--not-json is said of a new payload: --edit FILE --not-json")}
			}
			if edit != "" {
				a.Edit = true
				if a.Payload, err = os.ReadFile(edit); err != nil {
					return usageError{fmt.Errorf("--edit: %w", err)}
				}
			}
			return c.replayDead(cmd.Context(), cfg, a)
		},
	}
	c.configFlag(cmd)
	pick.flags(cmd, "the only one; required where there are several")
	fl := cmd.Flags()
	fl.BoolVar(&pick.all, "all", false, "replay everything that is parked")
	fl.IntVar(&q.Canary, "canary", 0, "send only the first `N`, then stop")
	fl.Float64Var(&q.Rate, "rate", 0, "events per second; 0 is unlimited")
	fl.StringVar(&q.Topic, "topic", "", "send to this `TOPIC` instead of the route's")
	fl.StringVar(&edit, "edit", "", "replace the payload of the one event that is picked by the content of `FILE`")
	fl.BoolVar(&q.NotJSON, "not-json", false, "with --edit: the new payload may be no JSON although the old one is")
	fl.StringVar(&reason, "reason", "", "why; kept in the audit (required)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// replayDead begins a replay and watches it. Whoever gives up, by Ctrl-C, ends it; a second Ctrl-C ends the command at once.
func (c *cli) replayDead(ctx context.Context, cfg *config.Config, q deadAct) error {
	var s replayState
	err := control.Ask(ctx, cfg.DataDir, requestDeadReplay, q, &s)
	if errors.Is(err, control.ErrNotRunning) {
		if err = noState("replay parked events", cfg); err == nil {
			err = faultReplayNeedsRun(q.Pipeline)
		}
	}
	ctx, over := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer over()
	job := replayQuestion{Pipeline: q.Pipeline, Job: s.Job}
	before := s.Open
	people := forPeople(c.stderr, "auto")
	for err == nil && !s.Done {
		if people {
			_ = tell(c.stderr, fmt.Sprintf("\r%d of %d parked events are left ", s.Open, before))
		}
		select {
		case <-time.After(200 * time.Millisecond):
			s, err = askReplay(context.WithoutCancel(ctx), cfg, requestDeadState, job)
		case <-ctx.Done():
			over()
			s, err = askReplay(context.WithoutCancel(ctx), cfg, requestDeadStop, job)
			s.Done = true
		}
	}
	if people {
		_ = tell(c.stderr, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	return c.tellReplay(q.Pipeline, s)
}

// askReplay asks for a replay that was begun.
func askReplay(ctx context.Context, cfg *config.Config, request string, job replayQuestion) (s replayState, err error) {
	for try := 0; ; try++ {
		err = control.Ask(ctx, cfg.DataDir, request, job, &s)
		if errors.Is(err, control.ErrNotRunning) {
			err = faultReplayGone(job.Pipeline)
		}
		// A process that ends while it is asked does not answer; asked again it is gone.
		if f := event.AsFault(err); f == nil || f.Code != control.CodeNoAnswer || try == 2 {
			return s, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// tellReplay says how a replay ended.
func (c *cli) tellReplay(name string, s replayState) error {
	if err := tell(c.stdout, fmt.Sprintf("pipeline %s: %d delivered, %d that waited behind them delivered too, %d refused, %d still wait behind others; %d parked now\n",
		name, s.Acked, s.Drained, s.Failed, s.Waiting, s.Open)); err != nil {
		return err
	}
	if s.Ahead != "" {
		if err := tell(c.stdout, fmt.Sprintf("the first that waits is behind event %s: replay or skip that one first\n", cell(s.Ahead))); err != nil {
			return err
		}
	}
	switch {
	case s.Stopped:
		return faultReplayStopped(name)
	case s.Failed > 0:
		id := event.ShellWord(cmp.Or(s.FirstID, "ID"))
		return &event.Fault{Code: "OT0016", Class: event.Record, Op: "replay parked events", Place: "pipeline " + name, Text: "refused again: " + s.First,
			Hint: "mend what it names and replay again, or leave the event out: outtail dlq skip -c FILE --pipeline " + name + " --id " + id + " --reason R"}
	case s.Waiting > 0: // a script must not take it for done
		return &event.Fault{Code: "OT0031", Class: event.Record, Op: "replay parked events", Place: "pipeline " + name,
			Text: fmt.Sprintf("%d of what was picked were not sent: they wait behind others, which were not picked", s.Waiting),
			Hint: "replay or skip first what they wait behind; a pick by --aggregate takes all of an aggregate: outtail dlq replay -c FILE --pipeline " + name + " --aggregate TYPE/ID --reason R"}
	}
	return nil
}

func newDLQStop(c *cli) *cobra.Command {
	var pick deadPick
	cmd := &cobra.Command{
		Use:   "stop -c FILE",
		Short: "End a replay that runs",
		Long: `Whoever began it: its command ends, too, and says what was delivered until now. What was not delivered waits as before, and what
waited in vain for a topic that is missing is taken back. The audit has it as stopped.`,
		Example: "  outtail dlq stop -c outtail.yaml --pipeline orders",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, names, err := pick.read(c)
			if err != nil {
				return err
			}
			if len(names) != 1 {
				return usageError{fmt.Errorf("name the pipeline: --pipeline %s", strings.Join(names, " | "))}
			}
			job := replayQuestion{Pipeline: names[0]}
			var s replayState
			err = control.Ask(cmd.Context(), cfg.DataDir, requestDeadStop, job, &s)
			if errors.Is(err, control.ErrNotRunning) {
				err = faultReplayNone(job.Pipeline)
			}
			if err != nil {
				return err
			}
			err = c.tellReplay(job.Pipeline, s)
			if s.Stopped {
				return nil // as asked
			}
			return err
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&pick.f.Pipeline, "pipeline", "", "`NAME` of the pipeline (default: the only one; required where there are several)")
	return cmd
}

func faultReplayStopped(name string) *event.Fault {
	return &event.Fault{Code: "OT0028", Class: event.Retry, Op: "replay parked events", Place: "pipeline " + name, Text: "somebody ended it before its end",
		Hint: "what was not delivered waits as before; the same command goes on with it"}
}

func faultReplayNone(name string) *event.Fault {
	return &event.Fault{Code: "OT0029", Class: event.Usage, Op: "end a replay", Place: "pipeline " + name, Text: "no replay of it runs",
		Hint: "outtail audit -c FILE shows how the last one ended"}
}

func faultReplayRuns(op, name string) *event.Fault {
	return &event.Fault{Code: "OT0012", Class: event.Usage, Op: op, Place: "pipeline " + name, Text: "another replay of it runs",
		Hint: "wait for its end, or end it: outtail dlq stop -c FILE --pipeline " + name}
}

func faultReplayGone(name string) *event.Fault {
	return &event.Fault{Code: "OT0027", Class: event.Retry, Op: "replay parked events", Place: "pipeline " + name,
		Text: "the process that sent them has ended: how far it came is not known here",
		Hint: "what was not delivered waits as before, and some of what was may wait, too: give the same command again; what comes twice has the same id"}
}
