package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

func newDLQ(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, replay and skip parked events",
		Long: `Events that could not be delivered for their own sake wait in the dead-letter store, and with policy park everything of their
aggregates behind them. These commands ask the running process; where none runs they use the file, all but replay.`,
		Example: `  outtail dlq list -c outtail.yaml
  outtail dlq replay -c outtail.yaml --all --reason "limit raised"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQList(c), newDLQShow(c), newDLQReplay(c), newDLQStop(c), newDLQSkip(c), newDLQExport(c), newDLQForget(c))
	return cmd
}

// deadPick are the flags that pick parked events.
type deadPick struct {
	f            deadFilter
	since, until string
	all          bool
}

func (d *deadPick) flags(cmd *cobra.Command, otherwise string) {
	fl := cmd.Flags()
	fl.StringVar(&d.f.Pipeline, "pipeline", "", "`NAME` of the pipeline (default: "+otherwise+")")
	fl.StringVar(&d.f.ID, "id", "", "event `ID`")
	fl.Func("number", "`NUMBER` of the entry, as dlq list shows it: where an id is kept more than once, or there is none", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return errors.New("it is no number of an entry")
		}
		d.f.Number = &n
		return nil
	})
	fl.StringVar(&d.f.Aggregate, "aggregate", "", "`TYPE/ID`, or ID, of an aggregate")
	fl.StringVar(&d.f.Code, "code", "", "`CODE` of the error, such as OT5009")
	fl.StringVar(&d.f.Class, "class", "", "`CLASS` of the error")
	fl.StringVar(&d.f.Route, "route", "", "`TOPIC`, or glob of topics, that the route gave")
	fl.StringVar(&d.since, "since", "", "parked at or after this `TIME` (RFC 3339, or a duration ago: 2h)")
	fl.StringVar(&d.until, "until", "", "parked before this `TIME`")
}

// read takes the configuration and the times, and gives the pipelines that are meant.
func (d *deadPick) read(c *cli) (cfg *config.Config, names []string, err error) {
	if cfg, err = config.LoadWithoutSecrets(c.configFile, os.LookupEnv); err != nil {
		return nil, nil, err
	}
	if d.f.Since, err = moment(d.since, "--since"); err != nil {
		return nil, nil, err
	}
	if d.f.Until, err = moment(d.until, "--until"); err != nil {
		return nil, nil, err
	}
	if d.f.Pipeline != "" {
		p, err := pipelineNamed(cfg, d.f.Pipeline)
		return cfg, []string{p.Name}, err
	}
	for _, p := range cfg.Pipelines {
		names = append(names, p.Name)
	}
	return cfg, names, nil
}

// one is read for commands that change something: they are for one pipeline, and say so when everything is picked.
func (d *deadPick) one(c *cli, verb string) (*config.Config, error) {
	cfg, names, err := d.read(c)
	if err != nil {
		return nil, err
	}
	if len(names) != 1 {
		return nil, usageError{fmt.Errorf("name the pipeline: --pipeline %s", strings.Join(names, " | "))}
	}
	d.f.Pipeline = names[0]
	if d.f.everything() && !d.all {
		return nil, usageError{fmt.Errorf("nothing is picked out; to %s everything that is parked, say --all", verb)}
	}
	return cfg, nil
}

// moment reads a time, or how long ago it was.
func moment(s, flag string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return time.Time{}, usageError{fmt.Errorf("%s %q is no time (2026-03-01T12:00:00Z) and no duration (2h)", flag, s)}
	}
	return time.Now().Add(-d), nil
}

// onDead puts a request to the running process, or to the file where none runs: read-only unless it changes something.
func onDead[Q, A any](ctx context.Context, cfg *config.Config, request string, q Q, writes bool, file func(*deadLetters) (A, error)) (a A, err error) {
	open := checkpoint.OpenReadOnly
	if writes {
		open = func(o checkpoint.Options) (*checkpoint.Store, error) {
			if err := noState("change what is parked", cfg); err != nil { // Open would make an empty one
				return nil, err
			}
			return checkpoint.Open(o)
		}
	}
	err = withOpened(ctx, cfg, request, q, &a, open, func(store *checkpoint.Store) (err error) {
		a, err = file(newDeadLetters(store, nil))
		return err
	})
	return a, err
}

// each visits what is picked, page by page.
func (d *deadPick) each(ctx context.Context, cfg *config.Config, names []string, rows bool, visit func(*deadEntry) error) error {
	for _, name := range names {
		q := deadPage{deadFilter: d.f, From: -1 << 63, Rows: rows}
		q.Pipeline = name
		var free map[int64]bool // asked for where something waits
		for {
			a, err := onDead(ctx, cfg, requestDeadList, q, false, func(l *deadLetters) (deadAnswer, error) { return l.list(ctx, q) })
			if err != nil {
				return err
			}
			for i := range a.Entries {
				if a.Entries[i].Behind && free == nil {
					f, err := onDead(ctx, cfg, requestDeadFree, q.deadFilter, false, func(l *deadLetters) (deadFree, error) { return l.free(ctx, q.deadFilter) })
					if err != nil {
						return err
					}
					free = map[int64]bool{}
					for _, n := range f.Numbers {
						free[n] = true
					}
				}
				a.Entries[i].Free = a.Entries[i].Behind && free[a.Entries[i].Number]
				if err := visit(&a.Entries[i]); err != nil {
					return err
				}
			}
			if !a.More {
				break
			}
			q.From = a.Next
		}
	}
	return nil
}

func newDLQList(c *cli) *cobra.Command {
	var pick deadPick
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list -c FILE",
		Short:   "List parked events, in the order in which they wait",
		Example: "  outtail dlq list -c outtail.yaml\n  outtail dlq list -c outtail.yaml --aggregate order/4711 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, names, err := pick.read(c)
			if err != nil {
				return err
			}
			if asJSON {
				all := []deadEntry{}
				if err := pick.each(cmd.Context(), cfg, names, false, func(e *deadEntry) error {
					e.Hint = c.complete(e.Hint, e.Pipeline)
					all = append(all, *e)
					return nil
				}); err != nil {
					return err
				}
				if err := c.printJSON(all); err != nil || len(all) > 0 {
					return err
				}
				return c.nothing("list parked events", cfg, "")
			}
			return c.listDead(cmd.Context(), cfg, names, &pick)
		},
	}
	c.configFlag(cmd)
	pick.flags(cmd, "the only one, or all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) printJSON(v any) error {
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (c *cli) listDead(ctx context.Context, cfg *config.Config, names []string, pick *deadPick) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	n, behind, free := 0, 0, 0
	err := pick.each(ctx, cfg, names, false, func(e *deadEntry) error {
		if n == 0 {
			fmt.Fprintln(w, "PIPELINE\tNUMBER\tPARKED\tID\tAGGREGATE\tTOPIC\tTRIES\tWHY")
		}
		n++
		why := strings.TrimSpace(e.Code + " " + e.Text)
		switch {
		case e.Free:
			free++
			why = "free to be replayed: what it waited behind is gone"
		case e.Behind:
			behind++
			why = "waits behind another"
		}
		_, err := fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", e.Pipeline, e.Number, e.ParkedAt.UTC().Format(time.RFC3339), cell(e.ID), cell(e.Aggregate), cell(e.Topic), e.Tries, cell(why))
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n == 0 {
		return c.nothing("list parked events", cfg, "nothing is parked\n")
	}
	said := fmt.Sprintf("%d parked, %d of them only wait behind others", n, behind)
	if free > 0 {
		said += fmt.Sprintf(", %d wait behind nothing any more: outtail dlq replay sends them, and what waits behind them", free)
	}
	return tell(c.stderr, said+"\n")
}

// counted is a number with its noun.
func counted[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func newDLQShow(c *cli) *cobra.Command {
	var pick deadPick
	var payload bool
	cmd := &cobra.Command{
		Use:   "show -c FILE (--id ID | --number NUMBER)",
		Short: "Show one parked event",
		Long:  "Shows what is known of it. Its payload, headers and key, which may be confidential, are shown with --payload only; what is no UTF-8 is\nshown as base64:… then.",
		Example: `  outtail dlq show -c outtail.yaml --id 5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01
  outtail dlq show -c outtail.yaml --id 5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01 --payload`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, names, err := pick.read(c)
			if err != nil {
				return err
			}
			all := []shownEntry{}
			err = pick.each(cmd.Context(), cfg, names, true, func(e *deadEntry) error {
				e.Hint = c.complete(e.Hint, e.Pipeline)
				all = append(all, show(e, payload))
				return nil
			})
			if err != nil {
				return err
			}
			if len(all) == 0 {
				if err := noState("show a parked event", cfg); err != nil {
					return err
				}
				return &event.Fault{Code: "OT0015", Class: event.Usage, Op: "show a parked event", Place: pick.f.ID, Text: "no parked event is picked",
					Hint: "outtail dlq list shows those that there are"}
			}
			return c.printJSON(all)
		},
	}
	c.configFlag(cmd)
	pick.flags(cmd, "the only one, or all")
	cmd.Flags().BoolVar(&payload, "payload", false, "show payload, headers and key too")
	cmd.MarkFlagsOneRequired("id", "number")
	return cmd
}

// shownEntry is an entry whose key and row are text where they are text, and else base64, which is said in front of it.
type shownEntry struct {
	deadEntry
	Key *string            `json:"key,omitempty"`
	Row map[string]*string `json:"row"`
}

func show(e *deadEntry, payload bool) shownEntry {
	s := shownEntry{deadEntry: *e, Row: map[string]*string{}}
	if payload && e.Key != nil {
		s.Key = shownText(e.Key)
	}
	for role, v := range e.Row {
		secret := role == event.Payload.String() || role == event.Headers.String() || role == event.Key.String()
		switch {
		case v == nil:
			s.Row[role] = nil
		case secret && !payload:
			text := fmt.Sprintf("(%d bytes)", len(*v))
			s.Row[role] = &text
		default:
			s.Row[role] = shownText(*v)
		}
	}
	return s
}

func shownText(b []byte) *string {
	text := string(b)
	if !utf8.Valid(b) {
		text = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
	return &text
}

// act fills in who does something to what is picked, and why.
func act(pick *deadPick, reason string) deadAct {
	by := (&change{reason: reason}).by()
	return deadAct{deadFilter: pick.f, Operator: by.Operator, Reason: by.Reason}
}

func newDLQSkip(c *cli) *cobra.Command {
	var pick deadPick
	var reason string
	cmd := &cobra.Command{
		Use:   "skip -c FILE (--id ID | …) --reason R",
		Short: "Leave parked events out for good",
		Long: `They are not sent, and stay left out when a crash has their rows read again. What waited behind them waits on until it is
replayed. The audit keeps who did it and why.`,
		Example: `  outtail dlq skip -c outtail.yaml --id 5f0c3a52-5d8c-4a8f-9d7e-0c1f5f6f7a01 --reason "test event"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := pick.one(c, "skip")
			if err != nil {
				return err
			}
			q := act(&pick, reason)
			a, err := onDead(cmd.Context(), cfg, requestDeadSkip, q, true, func(l *deadLetters) (deadSkipped, error) { return l.skip(cmd.Context(), q) })
			if err != nil {
				return err
			}
			if err := tell(c.stdout, fmt.Sprintf("pipeline %s: %d skipped\n", q.Pipeline, a.Skipped)); err != nil {
				return err
			}
			for _, w := range a.Waiting {
				waits := "waits"
				if w.Events != 1 {
					waits = "wait"
				}
				if err := tell(c.stdout, fmt.Sprintf("%s of %s still %s; to send: outtail dlq replay -c %s --pipeline %s --aggregate %s --reason …\n",
					counted(w.Events, "event"), cell(w.Aggregate), waits, event.ShellWord(c.configFile), q.Pipeline, cell(event.ShellWord(w.Aggregate)))); err != nil {
					return err
				}
			}
			if a.More > 0 {
				return tell(c.stdout, fmt.Sprintf("so do events of %d more aggregates; outtail dlq list shows what is free to be replayed\n", a.More))
			}
			return nil
		},
	}
	c.configFlag(cmd)
	pick.flags(cmd, "the only one; required where there are several")
	cmd.Flags().BoolVar(&pick.all, "all", false, "skip everything that is parked")
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the audit (required)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

func newDLQExport(c *cli) *cobra.Command {
	var pick deadPick
	cmd := &cobra.Command{
		Use:     "export -c FILE",
		Short:   "Write parked events with their rows as lines of JSON",
		Long:    "One object per line; row holds each role's bytes in base64, null for NULL. The output holds payloads: keep it as you keep those.",
		Example: "  outtail dlq export -c outtail.yaml --pipeline orders > parked.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, names, err := pick.read(c)
			if err != nil {
				return err
			}
			enc, n := json.NewEncoder(c.stdout), 0
			err = pick.each(cmd.Context(), cfg, names, true, func(e *deadEntry) error { n++; return enc.Encode(e) })
			if err != nil || n > 0 {
				return err
			}
			return c.nothing("export parked events", cfg, "")
		},
	}
	c.configFlag(cmd)
	pick.flags(cmd, "the only one, or all")
	return cmd
}

func newDLQForget(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "forget -c FILE --reason R",
		Short: "Give up the events of a parked.db that was lost",
		Long: `A start stops where the file in which events were parked is gone (OT4014) or is an older copy of it (OT4015): the position has passed
what is missing, so it would be lost without a word. Restore the file, or give them up with this command. Refused while outtail runs;
where nothing is missing it changes nothing.`,
		Example: `  outtail dlq forget -c outtail.yaml --reason "disk lost, events re-created by hand"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := config.Load(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			// Where only parked.db is left there is something to give up; where there is nothing at all, this is another folder.
			if _, err := os.Stat(cfg.DataDir); errors.Is(err, fs.ErrNotExist) {
				return noState("give up parked events", cfg)
			}
			store, err := checkpoint.Open(checkpoint.Options{Dir: cfg.DataDir, Version: version})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			// Forgetting what is there would take away what notices its loss.
			if store.DeadLetters().Check() == nil {
				return tell(c.stdout, "nothing that was parked is missing, and nothing was changed; outtail dlq skip leaves out what is there\n")
			}
			if err := store.DeadLetters().Forget(cmd.Context(), (&change{reason: reason}).by()); err != nil {
				return err
			}
			return tell(c.stdout, "the next start does not ask for the lost events any more\n")
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the audit (required)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}
