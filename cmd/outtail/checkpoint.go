package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/control"
	"github.com/outtail/outtail/pipeline"
	"github.com/outtail/outtail/sink/kafka"
	"github.com/outtail/outtail/wal"
)

func newCheckpoint(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Show, keep, move and restore the stored positions",
		Example: `  outtail checkpoint show -c outtail.yaml
  outtail checkpoint history -c outtail.yaml --pipeline orders
  outtail checkpoint rewind -c outtail.yaml --pipeline orders --to 2h --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheckpointShow(c), newCheckpointHistory(c), newCheckpointRewind(c), newCheckpointExport(c), newCheckpointImport(c), newCheckpointSet(c), newCheckpointAccept(c))
	return cmd
}

func newCheckpointShow(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show -c FILE",
		Short:   "Show the position of each pipeline",
		Long:    "Asks the running process; where none runs, reads the state file.",
		Example: "  outtail checkpoint show -c outtail.yaml\n  outtail checkpoint show -c outtail.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadWithoutSecrets(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			state, err := readState(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if asJSON {
				err = c.printJSON(state)
			} else {
				err = c.showState(cfg, state)
			}
			if err != nil || len(state.Pipelines) > 0 {
				return err
			}
			return c.nothing("show the positions", cfg, "")
		},
	}
	c.configFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) showState(cfg *config.Config, state checkpoint.State) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PIPELINE\tSAVED\tPOSITION\tEVENTS\tPARKED\tSINK")
	seen := map[string]bool{}
	for _, e := range state.Pipelines {
		seen[e.Pipeline] = true
		var prefix *event.Prefix
		if e.Prefix != nil {
			prefix = &event.Prefix{Tx: e.Prefix.Tx, Rows: e.Prefix.Rows}
		}
		at := reached(event.Position(e.Source), prefix)
		sink := strings.TrimSpace(e.Sink.Kind + " " + e.Sink.ClusterID)
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", e.Pipeline, e.SavedAt.UTC().Format(time.RFC3339), at, e.Events, e.Parked, sink)
	}
	for _, p := range cfg.Pipelines {
		if !seen[p.Name] {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t\n", p.Name, "never", "none", 0, 0)
		}
	}
	return w.Flush()
}

// change is what set and accept have in common.
type change struct {
	pipeline, reason string
}

func (ch *change) flags(c *cli, cmd *cobra.Command) {
	c.configFlag(cmd)
	cmd.Flags().StringVar(&ch.pipeline, "pipeline", "", "`NAME` of the pipeline (required)")
	cmd.Flags().StringVar(&ch.reason, "reason", "", "why; kept in the audit (required)")
	_ = cmd.MarkFlagRequired("pipeline")
	_ = cmd.MarkFlagRequired("reason")
}

// opened is a pipeline with the state that an act changes.
type opened struct {
	cfg   *config.Config
	p     config.Pipeline
	store *checkpoint.Store
	fresh bool // there is no state file yet, and store is what would be in it
}

// open finds the pipeline and takes the state file, which a running process holds: these acts are refused while it runs, and where
// there is none (op says what was to be done), since the folder may be the wrong one.
func (ch *change) open(c *cli, op string) (*opened, error) {
	o, err := ch.find(c)
	if err == nil {
		err = noState(op, o.cfg)
	}
	if err == nil {
		err = o.take()
	}
	return o, err
}

// openOrMake is open for acts that may come before the first start. What is missing is made by make, once it is certain that there is
// something to store: what is refused leaves nothing behind.
func (ch *change) openOrMake(c *cli) (*opened, error) {
	o, err := ch.find(c)
	if err != nil {
		return nil, err
	}
	if noState("", o.cfg) == nil {
		return o, o.take()
	}
	o.fresh = true
	o.store, err = checkpoint.OpenReadOnly(checkpoint.Options{Dir: o.cfg.DataDir, Version: version})
	return o, err
}

func (ch *change) find(c *cli) (*opened, error) {
	cfg, err := config.Load(c.configFile, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	p, err := pipelineNamed(cfg, ch.pipeline)
	return &opened{cfg: cfg, p: p}, err
}

func (o *opened) take() (err error) {
	o.store, err = checkpoint.Open(checkpoint.Options{Dir: o.cfg.DataDir, Version: version})
	var held *event.Fault
	if errors.Is(err, checkpoint.ErrLocked) && errors.As(err, &held) {
		told := *held
		told.Hint = "stop that process first: what is stored is changed only while nothing runs on the data_dir"
		err = &told
	}
	return err
}

// make makes the state file where there is none.
func (o *opened) make() error {
	if !o.fresh {
		return nil
	}
	if err := o.store.Close(); err != nil {
		return err
	}
	return o.take()
}

// made says where it was made, so that another folder than was meant is seen at once.
func (o *opened) made() string {
	if !o.fresh {
		return ""
	}
	return checkpoint.FileName + " was made in " + absolute(o.cfg.DataDir) + "\n"
}

func (o *opened) close() error {
	if o.store == nil {
		return nil
	}
	return o.store.Close()
}

func (ch *change) by() checkpoint.By {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if s := os.Getenv("SUDO_USER"); s != "" {
		name = s
	}
	return checkpoint.By{Operator: name, Reason: ch.reason}
}

func newCheckpointSet(c *cli) *cobra.Command {
	var ch change
	var to string
	cmd := &cobra.Command{
		Use:   "set -c FILE --pipeline P --to POSITION --reason R",
		Short: "Begin somewhere else at the next start",
		Long: `Stores another position. Whatever lies between the old and the new one is sent again, or not sent at all: the decision is
yours, and the audit keeps who made it and why. The server is asked whether it can serve the position. Refused while outtail runs.

--to  Postgres: an LSN (0/16B3748), slot (where the slot stands), now
      MySQL, MariaDB: a GTID set, FILE:POS (binlog.000012:4), earliest, now
      all: after:PLACE leaves out one halted event, with the place that the error printed`,
		Example: `  outtail checkpoint set -c outtail.yaml --pipeline orders --to slot --reason "slot recreated after restore"
  outtail checkpoint set -c outtail.yaml --pipeline orders --to 'after:postgres/outtail_orders/0/16B3748#3' --reason "test event"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o, err := ch.openOrMake(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, o.close()) }()
			ctx, cancel := context.WithTimeout(cmd.Context(), o.cfg.StartTimeout+30*time.Second)
			defer cancel()
			var cp event.Checkpoint
			if place, ok := strings.CutPrefix(to, "after:"); ok {
				if err := noState("set the position", o.cfg); err != nil { // nothing has halted here
					return err
				}
				cp, err = after(o.store, o.p, place)
			} else {
				cp, err = resolve(ctx, o.cfg, o.p, to)
			}
			if err != nil {
				return err
			}
			if err := o.make(); err != nil {
				return err
			}
			was, err := o.store.Load(o.p.Name)
			if err != nil {
				return err
			}
			if err := o.store.Set(ctx, o.p.Name, cp, ch.by()); err != nil {
				return err
			}
			before := "nothing was stored before"
			if !was.IsZero() {
				before = "it stood at " + reached(was.Position, was.Prefix)
			}
			return tell(c.stdout, fmt.Sprintf("pipeline %s begins at %s; %s\n", o.p.Name, reached(cp.Position, cp.Prefix), before)+o.made())
		},
	}
	ch.flags(c, cmd)
	cmd.Flags().StringVar(&to, "to", "", "`POSITION` (required)")
	_ = cmd.MarkFlagRequired("to")
	return cmd
}

// resolve asks the server what a position means, and whether it can serve it.
func resolve(ctx context.Context, cfg *config.Config, p config.Pipeline, to string) (event.Checkpoint, error) {
	log := newLogger(os.Stderr, cfg.Log.Level, "text")
	if p.Source.Kind == event.Postgres {
		return wal.CheckSet(ctx, walOptions(p, log), to)
	}
	return binlog.CheckSet(ctx, binlogOptions(cfg, p, log), to)
}

// after gives the checkpoint that leaves out one event: the stored position, and as many rows of the transaction behind
// it. The transaction must be that one, since everything before the halted event was acked and saved.
func after(store *checkpoint.Store, p config.Pipeline, place string) (event.Checkpoint, error) {
	cp, err := store.Load(p.Name)
	if err != nil {
		return cp, err
	}
	head, row, ok := cutLast(place, "#")
	n, err := strconv.ParseUint(row, 10, 63)
	tx := txOf(head, p.Source.Kind)
	if !ok || err != nil || tx == "" {
		return cp, usageError{fmt.Errorf("--to after:%s: the place of an event is KIND/…#ROW, as the error printed it", place)}
	}
	if cp.IsZero() {
		return cp, faultNoPosition("set the position", p.Name, "run it once, or name a position with --to")
	}
	done := uint64(0)
	if cp.Prefix != nil && cp.Prefix.Tx == tx {
		done = cp.Prefix.Rows
	}
	if (cp.Prefix != nil && cp.Prefix.Tx != tx) || done != n {
		return cp, faultNotNext(p.Name, place, cp)
	}
	cp.Prefix = &event.Prefix{Tx: tx, Rows: n + 1, Selection: cp.Selection}
	return cp, nil
}

// reached is a position for a person, with what is done of the transaction behind it.
func reached(at event.Position, prefix *event.Prefix) string {
	switch {
	case prefix == nil:
		return at.String()
	case prefix.Rows == 1:
		return fmt.Sprintf("%s and 1 row of %s", at, prefix.Tx)
	}
	return fmt.Sprintf("%s and %d rows of %s", at, prefix.Rows, prefix.Tx)
}

// txOf is the transaction's id in a place: "postgres/<slot>/<LSN>", "mysql/<GTID>", "mysql/<file>:<pos>".
func txOf(head, kind string) string {
	rest, ok := strings.CutPrefix(head, kind+"/")
	if !ok {
		return ""
	}
	if kind == event.Postgres {
		_, lsn, ok := strings.Cut(rest, "/")
		if !ok {
			return ""
		}
		return lsn
	}
	return rest
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func faultNoPosition(op, name, hint string) *event.Fault {
	return &event.Fault{Code: "OT0001", Class: event.Usage, Op: op, Place: "pipeline " + name, Text: "it has no position yet", Hint: hint}
}

func faultNotNext(name, place string, cp event.Checkpoint) *event.Fault {
	return &event.Fault{Code: "OT0002", Class: event.Usage, Op: "set the position", Place: "pipeline " + name,
		Text: fmt.Sprintf("the event at %s is not the next one: everything up to %s is done, and leaving out an event further on would leave out others", place, reached(cp.Position, cp.Prefix)),
		Hint: "start the pipeline; when it halts at that event everything before it is saved, and this command works"}
}

func newCheckpointAccept(c *cli) *cobra.Command {
	var ch change
	var code string
	var unseen bool
	cmd := &cobra.Command{
		Use:   "accept -c FILE --pipeline P --code OT… --reason R",
		Short: "Accept a safety finding once",
		Long: `The next start passes over the finding once and says so in the log. Read its text first: what lies in the gap that it names is
not sent. Refused while outtail runs, of findings that would only come again, and of one that is not the one that the
pipeline stopped at.`,
		Example: `  outtail checkpoint accept -c outtail.yaml --pipeline orders --code OT6003 --reason "moved to the new cluster"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o, err := ch.open(c, "accept a finding")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, o.close()) }()
			p, store := o.p, o.store
			code = atStart(code)
			if err := helps(p, code); err != nil {
				return err
			}
			if !unseen {
				if err := seen(store, p.Name, code); err != nil {
					return err
				}
			}
			if err := store.Accept(cmd.Context(), p.Name, code, ch.by()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "pipeline %s: %s is accepted at the next start, once\n", p.Name, code)
			return err
		},
	}
	ch.flags(c, cmd)
	cmd.Flags().StringVar(&code, "code", "", "`CODE` that the stop printed (required)")
	cmd.Flags().BoolVar(&unseen, "unseen", false, "accept it although the pipeline stopped at another finding")
	_ = cmd.MarkFlagRequired("code")
	return cmd
}

// seen refuses to accept another finding than the one that the pipeline stopped at. The state file does not have one where the process
// was killed, or what was stored since shows that it went on.
func seen(store *checkpoint.Store, name, code string) error {
	stop, err := store.LastStop(name)
	if err != nil || stop.Code == "" || atStart(stop.Code) == code {
		return err
	}
	return &event.Fault{Code: "OT0006", Class: event.Usage, Op: "accept a finding", Place: "pipeline " + name,
		Text: fmt.Sprintf("it stopped at %s (%s, %s), not at %s", stop.Code, stop.Place, stop.At.Format(time.RFC3339), code),
		Hint: "accept the one that it stopped at, or start it, to see what it stops at now; --unseen accepts " + code + " all the same"}
}

// atStart is the code under which a start would tell the finding that stopped a pipeline while it ran.
func atStart(code string) string {
	if code == kafka.CodeClusterChanged {
		return pipeline.CodeOtherCluster
	}
	return code
}

// helps refuses what accepting cannot mend: a finding that would come again at the next start, one of another kind of source, a slip of the
// finger. What waits as accepted and is never met would let a later finding pass that nobody read.
func helps(p config.Pipeline, code string) error {
	can := append([]string{codeRenamed, codeLost}, pipeline.Acceptable()...)
	if p.Source.Kind == event.Postgres {
		can = append(can, wal.Acceptable()...)
	} else {
		can = append(can, binlog.Acceptable()...)
	}
	if slices.Contains(can, code) {
		return nil
	}
	slices.Sort(can)
	return &event.Fault{Code: "OT0006", Class: event.Usage, Op: "accept a finding", Place: "pipeline " + p.Name, Text: "accepting " + code + " would not let the pipeline go on",
		Hint: "take a way out that the stop printed; docs/ERRORS.md has the codes. A pipeline of kind " + p.Source.Kind + " can accept: " + strings.Join(can, ", ")}
}

// readState is what `checkpoint show` prints.
func readState(ctx context.Context, cfg *config.Config) (state checkpoint.State, err error) {
	err = withState(ctx, cfg, requestShow, nil, &state, func(store *checkpoint.Store) (err error) {
		state, err = store.Show()
		return err
	})
	return state, err
}

// withState asks the running process, and has the state file read where none runs.
func withState(ctx context.Context, cfg *config.Config, name string, request, result any, read func(*checkpoint.Store) error) error {
	return withOpened(ctx, cfg, name, request, result, checkpoint.OpenReadOnly, read)
}

// withOpened asks the running process, and has the state file used, by act, where none runs. A process that starts holds the file for
// a moment before it answers, so both are tried again for some seconds.
func withOpened(ctx context.Context, cfg *config.Config, name string, request, result any,
	open func(checkpoint.Options) (*checkpoint.Store, error), act func(*checkpoint.Store) error) error {
	for deadline := time.Now().Add(5 * time.Second); ; {
		err := control.Ask(ctx, cfg.DataDir, name, request, result)
		if !errors.Is(err, control.ErrNotRunning) {
			return err
		}
		store, err := open(checkpoint.Options{Dir: cfg.DataDir, Version: version})
		if err == nil {
			err = act(store)
			if cerr := store.Close(); err == nil {
				err = cerr
			}
			return err
		}
		if !errors.Is(err, checkpoint.ErrLocked) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
