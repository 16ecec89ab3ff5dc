package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/wal"
)

func newCheckpointRewind(c *cli) *cobra.Command {
	var ch change
	var to string
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "rewind -c FILE --pipeline P --to TIME|POSITION|ENTRY --reason R",
		Short: "Go back, and send again what lies between",
		Long: `Puts the pipeline back to a position of its past. What lies between that and now is sent again at the next start, in order, with the ids
that it had; parked events stay parked. The server is asked whether it still has the log, and the position of now goes into the
history, so that it can be found again. Refused while outtail runs; --dry-run changes nothing and may be used then, too.

--to  ENTRY     of outtail checkpoint history
      TIME      2026-03-01T12:00:00Z, or how long ago (2h): the newest entry that is not younger
      POSITION  an LSN, a GTID set, FILE:POS: exactly there. An entry knows more (the columns of its time), so prefer one

On Postgres a slot goes back no further than its confirmed position: rewind_window holds it back.`,
		Example: `  outtail checkpoint rewind -c outtail.yaml --pipeline orders --to 2h --dry-run
  outtail checkpoint rewind -c outtail.yaml --pipeline orders --to 2026-03-01T12:00:00Z --reason "consumer lost its database"
  outtail checkpoint rewind -c outtail.yaml --pipeline orders --to hd5prj7bzj0w --reason "topic was truncated"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			var w rewinding
			if dryRun {
				err = w.read(cmd.Context(), c, ch.pipeline)
			} else {
				if strings.TrimSpace(ch.reason) == "" {
					return usageError{errors.New("a reason is required: --reason R; it is kept in the audit (--dry-run only shows)")}
				}
				var o *opened
				if o, err = ch.open(c, "rewind"); err == nil {
					defer func() { err = errors.Join(err, o.close()) }()
					w.cfg, w.p = o.cfg, o.p
					err = w.load(o.store)
				}
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), w.cfg.StartTimeout+30*time.Second)
			defer cancel()
			if err := w.find(ctx, to, time.Now()); err != nil {
				return err
			}
			if !dryRun {
				counts := map[string]int64{"log_bytes": w.out.LogBytes, "parked_between": w.out.Parked}
				if w.out.Events != nil {
					counts["events"] = *w.out.Events
				}
				if err := w.store.Rewind(ctx, w.p.Name, w.target, w.taken(), counts, ch.by()); err != nil {
					return err
				}
			}
			w.out.DryRun = dryRun
			if asJSON {
				return c.printJSON(w.out)
			}
			return tell(c.stdout, w.text())
		},
	}
	ch.flags(c, cmd)
	delete(cmd.Flags().Lookup("reason").Annotations, cobra.BashCompOneRequiredFlag) // not for a dry run
	cmd.Flags().StringVar(&to, "to", "", "`PLACE` to go back to (required)")
	_ = cmd.MarkFlagRequired("to")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be sent again, and change nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// rewound is what `checkpoint rewind --json` prints.
type rewound struct {
	Pipeline string            `json:"pipeline"`
	DryRun   bool              `json:"dry_run"`
	From     checkpoint.Source `json:"from"`
	To       checkpoint.Source `json:"to"`
	Entry    string            `json:"entry,omitempty"`
	StoredAt time.Time         `json:"stored_at,omitzero"`
	// Events is about how many events are sent again, null where nobody knows; LogBytes how much log they lie in, of all that was
	// written there, -1 where nobody knows.
	Events   *int64 `json:"events"`
	LogBytes int64  `json:"log_bytes"`
	Parked   int64  `json:"parked_between"`
}

// horizon is what a source's server says about going back.
type horizon interface {
	Serves(context.Context, event.Checkpoint) error
	Oldest() string
	Between(from, to event.Position) int64
	Close()
}

// rewinding finds out where a pipeline goes back to, and what that means.
type rewinding struct {
	cfg   *config.Config
	p     config.Pipeline
	store *checkpoint.Store // nil in a dry run

	now    event.Checkpoint
	past   []checkpoint.Past
	parked []event.Parked // what is kept and not ended, without rows

	target event.Checkpoint
	entry  *checkpoint.Past
	floor  *checkpoint.Past // the newest entry at or before the target
	out    rewound
}

// load takes what the state file says.
func (w *rewinding) load(store *checkpoint.Store) (err error) {
	w.store = store
	if w.now, err = store.Load(w.p.Name); err != nil {
		return err
	}
	if w.past, err = store.History(w.p.Name); err != nil {
		return err
	}
	return store.DeadLetters().Each(w.p.Name, -1<<63, func(e *event.Parked) error {
		if e.Ended == event.Open {
			w.parked = append(w.parked, *e)
		}
		return nil
	})
}

// read takes it from the running process, or from the file where none runs.
func (w *rewinding) read(ctx context.Context, c *cli, name string) (err error) {
	if w.cfg, err = config.Load(c.configFile, os.LookupEnv); err != nil {
		return err
	}
	if w.p, err = pipelineNamed(w.cfg, name); err != nil {
		return err
	}
	err = withState(ctx, w.cfg, requestLoad, name, &w.now, func(store *checkpoint.Store) (err error) {
		w.now, err = store.Load(name)
		return err
	})
	if err != nil {
		return err
	}
	if w.past, err = readHistory(ctx, w.cfg, name); err != nil {
		return err
	}
	pick := deadPick{f: deadFilter{Pipeline: name}}
	return pick.each(ctx, w.cfg, []string{name}, false, func(e *deadEntry) error {
		w.parked = append(w.parked, event.Parked{Tx: e.Tx, Index: e.Index})
		return nil
	})
}

// find fills in the target and what lies between.
func (w *rewinding) find(ctx context.Context, to string, now time.Time) error {
	if w.now.IsZero() {
		if err := noState("rewind", w.cfg); err != nil {
			return err
		}
		return faultNoPosition("rewind", w.p.Name, "run it once; is data_dir the one that it ran with? A relative one follows the folder in which outtail is started")
	}
	if err := w.choose(to, now); err != nil {
		return err
	}
	if w.entry == nil { // a position that the history does not have
		cp, err := w.resolve(ctx, to)
		if err != nil {
			return w.beyond(ctx, err)
		}
		w.target = cp
	}
	if err := w.isBack(); err != nil {
		return err
	}
	w.target = w.asOfThen(w.target)
	h, err := w.lookBack(ctx)
	if err != nil {
		return err
	}
	defer h.Close()
	if w.entry != nil || w.store == nil {
		if err := h.Serves(ctx, w.target); err != nil {
			return w.oldest(ctx, h, err)
		}
	}
	return w.measure(h)
}

// resolve asks the server what a position means. A dry run may be beside a running process, whose slot is in use.
func (w *rewinding) resolve(ctx context.Context, to string) (event.Checkpoint, error) {
	if at, err := event.ParseLSN(to); err == nil && w.store == nil && w.p.Source.Kind == event.Postgres {
		cp := w.now
		cp.Position.LSN, cp.Prefix = at, nil
		return cp, nil
	}
	return resolve(ctx, w.cfg, w.p, to)
}

// choose finds the entry that is meant; none where it is a position that the history does not have.
func (w *rewinding) choose(to string, now time.Time) error {
	to = strings.TrimSpace(to)
	at, err := time.Parse(time.RFC3339, to)
	if d, derr := time.ParseDuration(to); derr == nil && d >= 0 {
		at, err = now.Add(-d), nil
	}
	for i := len(w.past) - 1; i >= 0 && w.entry == nil; i-- {
		p := &w.past[i]
		found := p.EntryID() == to || to == setForm(p.Checkpoint.Position) && p.Checkpoint.Prefix == nil
		if err == nil {
			found = !p.At.After(at)
		}
		if found {
			w.entry, w.target = p, p.Checkpoint
		}
	}
	switch {
	case w.entry != nil:
		return nil
	case err == nil:
		return w.faultNoEntry("the history has no entry as old as " + at.UTC().Format(time.RFC3339))
	case !w.isPosition(to):
		return w.faultNoEntry(fmt.Sprintf("%q is no entry of the history, no time and no position of %s", to, w.p.Source.Kind))
	}
	return nil
}

func (w *rewinding) isPosition(to string) bool {
	if w.p.Source.Kind == event.Postgres {
		_, err := event.ParseLSN(to)
		return err == nil
	}
	start, err := binlog.ParseTo(w.p.Source.Kind, to)
	return err == nil && (start.GTID != "" || start.File != "")
}

// compare tells which of two positions of the pipeline's source comes first.
func (w *rewinding) compare(a, b event.Position) (int, error) {
	if w.p.Source.Kind == event.Postgres {
		return wal.Compare(a, b)
	}
	return binlog.Compare(a, b)
}

// isBack refuses to go forward, which would leave out what lies between.
func (w *rewinding) isBack() error {
	c, err := w.compare(w.target.Position, w.now.Position)
	if err == nil && c == 0 {
		c = cmp.Compare(rowsOf(w.target.Prefix), rowsOf(w.now.Prefix))
	}
	switch {
	case err != nil:
		return faultNotBack(w.p.Name, err.Error())
	case c == 0:
		return faultNotBack(w.p.Name, "it stands at "+reached(w.now.Position, w.now.Prefix)+" already")
	case c > 0:
		return faultNotBack(w.p.Name, fmt.Sprintf("%s lies ahead of %s, where it stands: what lies between would not be sent", reached(w.target.Position, w.target.Prefix), reached(w.now.Position, w.now.Prefix)))
	}
	for i := range w.past {
		p := &w.past[i]
		c, err := w.compare(p.Checkpoint.Position, w.target.Position)
		if err != nil || c > 0 || c == 0 && rowsOf(p.Checkpoint.Prefix) > rowsOf(w.target.Prefix) {
			continue
		}
		if w.floor == nil || w.floor.Checkpoint.Events <= p.Checkpoint.Events {
			w.floor = p
		}
	}
	if w.entry != nil {
		w.floor = w.entry
	}
	return nil
}

func rowsOf(p *event.Prefix) uint64 {
	if p == nil {
		return 0
	}
	return p.Rows
}

// asOfThen makes a checkpoint of the past one from which the next start goes on. What a position on Postgres depended on is compared with
// what a person has accepted since, so that is kept; the binlog's definitions are those of the position.
func (w *rewinding) asOfThen(cp event.Checkpoint) event.Checkpoint {
	cp.Accepted = w.now.Accepted
	if w.p.Source.Kind == event.Postgres {
		cp.Depends = w.now.Depends
	} else {
		cp.Depends = binlog.Rewound(cp.Depends, w.now.Depends)
	}
	if w.floor != nil {
		cp.Events = w.floor.Checkpoint.Events
	} else {
		cp.Events = w.now.Events
	}
	return cp
}

func (w *rewinding) lookBack(ctx context.Context) (horizon, error) {
	log := newLogger(os.Stderr, w.cfg.Log.Level, "text")
	if w.p.Source.Kind == event.Postgres {
		return wal.LookBack(ctx, walOptions(w.p, log))
	}
	return binlog.LookBack(ctx, binlogOptions(w.cfg, w.p, log))
}

// measure says what would be sent again, as far as it is known.
func (w *rewinding) measure(h horizon) error {
	w.out = rewound{
		Pipeline: w.p.Name, From: checkpoint.Source(w.now.Position), To: checkpoint.Source(w.target.Position),
		LogBytes: h.Between(w.target.Position, w.now.Position),
	}
	if w.entry != nil {
		w.out.Entry, w.out.StoredAt = w.entry.EntryID(), w.entry.At
	}
	if w.floor != nil && w.floor.Checkpoint.Events <= w.now.Events {
		n := int64(w.now.Events - w.floor.Checkpoint.Events)
		w.out.Events = &n
	}
	if w.target.Position.GTID == "" && w.now.Position.GTID != "" && len(w.parked) > 0 {
		return faultParkedUnknown(w.p.Name, len(w.parked))
	}
	for i := range w.parked {
		if !w.covers(w.target, &w.parked[i]) && w.covers(w.now, &w.parked[i]) {
			w.out.Parked++
		}
	}
	return nil
}

func (w *rewinding) covers(cp event.Checkpoint, e *event.Parked) bool {
	if x := cp.Prefix; x != nil && x.Tx == e.Tx && e.Index < x.Rows {
		return true
	}
	if w.p.Source.Kind == event.Postgres {
		return wal.Covers(cp.Position, e.Tx)
	}
	return binlog.Covers(cp.Position, e.Tx)
}

// beyond completes the refusal of a position by what would be possible.
func (w *rewinding) beyond(ctx context.Context, err error) error {
	f := event.AsFault(err)
	if f == nil || f.Class == event.Environment && !f.Immediate || f.Class == event.Retry {
		return err // the server could not be asked
	}
	h, herr := w.lookBack(ctx)
	if herr != nil {
		return err
	}
	defer h.Close()
	return w.oldest(ctx, h, err)
}

// oldest says why the server cannot send from a position, and from where it can: the entry of the lowest position that it still serves. Lower
// ones go first, so that it is found by halving. In the history they need not be first: somebody may have gone back before.
func (w *rewinding) oldest(ctx context.Context, h horizon, err error) error {
	f := event.AsFault(err)
	if f == nil || f.Class == event.Environment && !f.Immediate || f.Class == event.Retry {
		return err
	}
	past := slices.Clone(w.past)
	slices.SortStableFunc(past, func(a, b checkpoint.Past) int {
		c, cerr := w.compare(a.Checkpoint.Position, b.Checkpoint.Position)
		if cerr != nil {
			return 0 // they stay in the order of time
		}
		return c
	})
	var oldest *checkpoint.Past
	if i := sort.Search(len(past), func(i int) bool { return h.Serves(ctx, w.asOfThen(past[i].Checkpoint)) == nil }); i < len(past) {
		if c, cerr := w.compare(past[i].Checkpoint.Position, w.now.Position); cerr == nil && c < 0 {
			oldest = &past[i]
		}
	}
	return faultBeyond(w.p, f, oldest, h.Oldest())
}

// taken tells which place was taken.
func (w *rewinding) taken() string {
	if w.entry == nil {
		return ""
	}
	return fmt.Sprintf("entry %s, stored %s", w.entry.EntryID(), w.entry.At.Format(time.RFC3339))
}

// text is the answer for a person.
func (w *rewinding) text() string {
	var b strings.Builder
	verb := "goes back"
	if w.out.DryRun {
		verb = "would go back"
	}
	fmt.Fprintf(&b, "pipeline %s %s to %s", w.p.Name, verb, reached(w.target.Position, w.target.Prefix))
	if t := w.taken(); t != "" {
		fmt.Fprintf(&b, " (%s)", t)
	}
	fmt.Fprintf(&b, ", from %s\nsent again: ", reached(w.now.Position, w.now.Prefix))
	switch {
	case w.out.Events == nil:
		b.WriteString("nobody knows how many events")
	case w.entry == nil:
		b.WriteString("at most " + counted(*w.out.Events, "event"))
	default:
		b.WriteString("about " + counted(*w.out.Events, "event"))
	}
	if w.out.LogBytes >= 0 {
		fmt.Fprintf(&b, ", within %d bytes of log", w.out.LogBytes)
	}
	b.WriteString("\n")
	if w.out.Parked > 0 {
		fmt.Fprintf(&b, "%d parked events lie between and stay parked\n", w.out.Parked)
	}
	if !w.out.DryRun {
		fmt.Fprintf(&b, "the position of now is kept: outtail checkpoint history\n")
	}
	return b.String()
}

func (w *rewinding) faultNoEntry(text string) *event.Fault {
	if n := len(w.past); n > 0 {
		text += fmt.Sprintf("; the oldest is %s of %s", w.past[0].EntryID(), w.past[0].At.Format(time.RFC3339))
	}
	return &event.Fault{Code: "OT0017", Class: event.Usage, Op: "rewind", Place: "pipeline " + w.p.Name, Text: text,
		Hint: "outtail checkpoint history lists the entries; --to also takes a time, a duration (2h), an LSN, a GTID set or FILE:POS"}
}

func faultNotBack(name, text string) *event.Fault {
	return &event.Fault{Code: "OT0018", Class: event.Usage, Op: "rewind", Place: "pipeline " + name, Text: text,
		Hint: "rewind only goes back; outtail checkpoint set -c FILE --pipeline P --to POSITION --reason R goes anywhere, and what it passes over is not sent"}
}

func faultBeyond(p config.Pipeline, why *event.Fault, oldest *checkpoint.Past, server string) *event.Fault {
	text := fmt.Sprintf("the server cannot send from there (%s): %s", why.Code, why.Text)
	hint := "no entry of the history can be served; "
	if oldest != nil {
		text += fmt.Sprintf("; the oldest entry that it still has is %s of %s", oldest.EntryID(), oldest.At.Format(time.RFC3339))
		hint = "--to " + oldest.EntryID() + " goes back as far as possible; "
	}
	if server != "" && !strings.Contains(text, server) { // which the reason may say
		text += "; the server begins at " + server
	}
	switch s := p.Source.Postgres; {
	case s != nil && s.RewindWindow == 0 && s.RewindWindowBytes == 0:
		hint += "rewind_window is off (0s): set, it holds the slot back from the next start on; "
	case s != nil:
		hint += "rewind_window is " + window(s) + ": it holds the slot back by no more than that, and by nothing that was confirmed before it was set; "
	default:
		hint += "the server's binlog_expire_logs_seconds says how long it keeps its log; "
	}
	return &event.Fault{Code: "OT0019", Class: event.Usage, Op: "rewind", Place: "pipeline " + p.Name, Text: text,
		Hint: hint + "what lies before can be inserted again from the table (docs/OPERATIONS.md, sending rows again)"}
}

// window is the rewind_window that is configured.
func window(s *config.Postgres) string {
	if s.RewindWindow > 0 {
		return s.RewindWindow.String()
	}
	return fmt.Sprintf("%d bytes", s.RewindWindowBytes)
}

func faultParkedUnknown(name string, n int) *event.Fault {
	return &event.Fault{Code: "OT0020", Class: event.Usage, Op: "rewind", Place: "pipeline " + name,
		Text: fmt.Sprintf("%d events are parked under GTIDs, and a file and offset do not say which of them lie behind it", n),
		Hint: "name an entry of outtail checkpoint history, a time, or a GTID set"}
}
