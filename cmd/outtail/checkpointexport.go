package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

// requestStanding asks the running process where a pipeline stands, and what parked.db holds of it.
const requestStanding = "checkpoint/standing"

func newCheckpointExport(c *cli) *cobra.Command {
	var name, output string
	var leave, salvage bool
	cmd := &cobra.Command{
		Use:   "export -c FILE --pipeline P",
		Short: "Write a pipeline's position into a file",
		Long: `Writes one readable JSON object with a checksum: the position, how far the transaction behind it is done, and what both depend on (on MySQL
and MariaDB the columns of the tables there). It holds no payload and no secret. outtail checkpoint import takes it, here or on another host.

What waits in parked.db is not in it, although the position has passed it: parked events, and rows of prepared XA transactions. So export
is refused while something waits there: replay or skip it first, or take all of data_dir along while outtail is stopped. --leave-parked is for a
backup beside that data_dir.

--salvage reads a state file that is damaged: the newest position in it that is certainly this pipeline's. What was sent since is sent
again. Asks the running process; where none runs, reads the state file. Nothing is changed.`,
		Example: `  outtail checkpoint export -c outtail.yaml --pipeline orders --output orders.json
  outtail checkpoint export -c outtail.yaml --pipeline orders --salvage --output orders.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			p, err := pipelineNamed(cfg, name)
			if err != nil {
				return err
			}
			var s standing
			if salvage {
				s.Checkpoint, err = salvaged(cfg, p)
			} else if s, err = readStanding(cmd.Context(), cfg, p.Name); err == nil && s.Left.Any() && !leave {
				err = faultLeft(p.Name, s.Left)
			}
			if err != nil {
				return err
			}
			cp, left := s.Checkpoint, s.Left
			if cp.Position.Kind != event.Postgres {
				cp.Depends = binlog.Portable(cp.Depends, salvage || left.Prepared > 0)
			}
			b, err := checkpoint.NewExport(p.Name, version, time.Now(), cp, left).Encode()
			if err != nil {
				return err
			}
			if output == "" {
				return tell(c.stdout, string(b))
			}
			if err := writeFile(output, b); err != nil {
				return usageError{fmt.Errorf("--output: %w", err)}
			}
			return tell(c.stdout, fmt.Sprintf("pipeline %s at %s, saved %s, is in %s\n", p.Name, reached(cp.Position, cp.Prefix), cp.SavedAt.UTC().Format(time.RFC3339), output))
		},
	}
	c.configFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&name, "pipeline", "", "`NAME` of the pipeline (required)")
	_ = cmd.MarkFlagRequired("pipeline")
	fl.StringVar(&output, "output", "", "write to this `FILE` (default: stdout)")
	fl.BoolVar(&leave, "leave-parked", false, "export although something waits in parked.db, which stays there")
	fl.BoolVar(&salvage, "salvage", false, "read a damaged state file")
	return cmd
}

// standing is a pipeline's checkpoint and what waits beside it.
type standing struct {
	Checkpoint event.Checkpoint `json:"checkpoint"`
	Left       checkpoint.Left  `json:"left"`
}

func readStanding(ctx context.Context, cfg *config.Config, name string) (s standing, err error) {
	err = withState(ctx, cfg, requestStanding, name, &s, func(store *checkpoint.Store) (err error) {
		s, err = standingOf(store, name)
		return err
	})
	if err == nil && s.Checkpoint.IsZero() {
		if err = noState("export a position", cfg); err != nil {
			return s, err
		}
		err = faultNoPosition("export a position", name, "run it once; is data_dir the one that it ran with? A relative one follows the folder in which outtail is started")
	}
	return s, err
}

func standingOf(store *checkpoint.Store, name string) (s standing, err error) {
	if s.Checkpoint, err = store.Load(name); err != nil {
		return s, err
	}
	if s.Left.Parked, err = store.DeadLetters().Open(name); err != nil {
		return s, err
	}
	if s.Left.Prepared, err = binlog.Waiting(store.Prepared(name), s.Checkpoint.Position); err != nil {
		return s, err
	}
	s.Left.File, err = store.Prepared(name).ID()
	return s, err
}

// salvaged is the newest position that can still be read.
func salvaged(cfg *config.Config, p config.Pipeline) (event.Checkpoint, error) {
	if err := noState("salvage state", cfg); err != nil {
		return event.Checkpoint{}, err
	}
	found, err := checkpoint.Salvage(cfg.DataDir, p.Name)
	if err != nil {
		return event.Checkpoint{}, err
	}
	for _, cp := range found {
		if cp.Position.Kind == p.Source.Kind {
			return cp, nil
		}
	}
	return event.Checkpoint{}, &event.Fault{
		Code: "OT0022", Class: event.Safety, Op: "salvage state", Place: filepath.Join(cfg.DataDir, checkpoint.FileName),
		Text: "it holds no position of pipeline " + p.Name + " that is certainly one",
		Hint: "restore it from a backup; or move it away and say where to go on: outtail checkpoint set -c FILE --pipeline P --to POSITION|slot|now --reason R",
	}
}

// writeFile puts a file in place that is complete and on disk, for its owner to read.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

func newCheckpointImport(c *cli) *cobra.Command {
	var ch change
	var from string
	var force bool
	cmd := &cobra.Command{
		Use:   "import -c FILE --pipeline P --from FILE --reason R",
		Short: "Go on from an exported position",
		Long: `Stores the position of a file that outtail checkpoint export wrote, once its checksum, the kind of source and the pipeline's name were
compared. The next start compares server, slot, log and cluster as after any restart. Refused while outtail runs.

Without --force refused too: over another position (the text says which of them is ahead), of a pipeline of another name, and where
something waits in a parked.db that is not this one.`,
		Example: `  outtail checkpoint import -c outtail.yaml --pipeline orders --from orders.json --reason "moved to another host"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			e, err := readExport(from)
			if err != nil {
				return err
			}
			o, err := ch.openOrMake(c)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, o.close()) }()
			p := o.p
			cp, err := importable(o.store, p, e, force)
			if err != nil {
				return err
			}
			if err := o.make(); err != nil {
				return err
			}
			if o.fresh { // somebody else may have made it by now, and stored another position
				if cp, err = importable(o.store, p, e, force); err != nil {
					return err
				}
			}
			detail := fmt.Sprintf("exported %s by outtail %s, sha256 %s", e.ExportedAt.Format(time.RFC3339), e.Outtail, e.Sum)
			if err := o.store.Import(cmd.Context(), p.Name, cp, detail, ch.by()); err != nil {
				return err
			}
			return tell(c.stdout, fmt.Sprintf("pipeline %s begins at %s, saved %s\n", p.Name, reached(cp.Position, cp.Prefix), e.Checkpoint.SavedAt.UTC().Format(time.RFC3339))+o.made())
		},
	}
	ch.flags(c, cmd)
	cmd.Flags().StringVar(&from, "from", "", "exported `FILE` (required)")
	_ = cmd.MarkFlagRequired("from")
	cmd.Flags().BoolVar(&force, "force", false, "replace another position, take one of another pipeline, leave behind what is parked elsewhere")
	return cmd
}

// maxExport is how large a file is read; definitions of tables make most of it.
const maxExport = 64 << 20

func readExport(path string) (checkpoint.Export, error) {
	f, err := os.Open(path)
	if err != nil {
		return checkpoint.Export{}, usageError{fmt.Errorf("--from: %w", err)}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxExport))
	if err != nil {
		return checkpoint.Export{}, usageError{fmt.Errorf("--from: %w", err)}
	}
	e, err := checkpoint.ParseExport(b)
	if err != nil {
		return e, &event.Fault{Code: "OT0023", Class: event.Usage, Op: "import a position", Place: path, Text: err.Error(),
			Hint: "export it again: outtail checkpoint export -c FILE --pipeline P --output FILE"}
	}
	return e, nil
}

// importable compares an export with the pipeline and what is stored of it.
func importable(store *checkpoint.Store, p config.Pipeline, e checkpoint.Export, force bool) (event.Checkpoint, error) {
	cp := e.Checkpoint
	refuse := func(text, hint string) (event.Checkpoint, error) {
		return cp, &event.Fault{Code: "OT0024", Class: event.Usage, Op: "import a position", Place: "pipeline " + p.Name, Text: text, Hint: hint}
	}
	if cp.Position.Kind != p.Source.Kind {
		return refuse(fmt.Sprintf("the file holds a position of %s, and the pipeline reads %s", cp.Position.Kind, p.Source.Kind), "import it into the pipeline that it is of: "+e.Pipeline)
	}
	now, err := store.Load(p.Name)
	if err != nil {
		return cp, err
	}
	if cp.Position.Kind != event.Postgres {
		is := cp.Depends
		if !now.IsZero() {
			is = now.Depends
		}
		cp.Depends = binlog.Rewound(cp.Depends, is)
	}
	if force {
		return cp, nil
	}
	if e.Pipeline != p.Name {
		return refuse("the file is of pipeline "+e.Pipeline, "--pipeline "+e.Pipeline+"; or, if it was renamed, --force")
	}
	id, err := store.Prepared(p.Name).ID()
	if err != nil {
		return cp, err
	}
	if e.Left.Any() && e.Left.File != id {
		return refuse(fmt.Sprintf("%s stayed in the parked.db beside the exported position, which has passed them, and that file is not here", waits(e.Left)),
			"bring parked.db along (while outtail is stopped on both sides); --force leaves them behind")
	}
	if now.IsZero() {
		return cp, nil
	}
	back := rewinding{p: p, now: now, target: cp}
	c, err := back.compare(cp.Position, now.Position)
	at, stood := reached(cp.Position, cp.Prefix), reached(now.Position, now.Prefix)
	switch {
	case err != nil:
		return refuse(fmt.Sprintf("another position is stored: %s, saved %s, and %s", stood, now.SavedAt.UTC().Format(time.RFC3339), err), "--force replaces it; it goes into the history")
	case c == 0 && rowsOf(cp.Prefix) == rowsOf(now.Prefix):
		return cp, nil
	case c < 0 || c == 0 && rowsOf(cp.Prefix) < rowsOf(now.Prefix):
		return refuse(fmt.Sprintf("what is stored is newer: %s, saved %s. What lies between %s and that would be sent again", stood, now.SavedAt.UTC().Format(time.RFC3339), at),
			"--force replaces it; it goes into the history")
	}
	return refuse(fmt.Sprintf("the file is ahead of what is stored: %s, saved %s. What lies between that and %s would not be sent from here", stood, now.SavedAt.UTC().Format(time.RFC3339), at),
		"--force replaces it, where that was sent from elsewhere")
}

// waits names what waits in a parked.db.
func waits(l checkpoint.Left) string {
	switch {
	case l.Prepared == 0:
		return fmt.Sprintf("%d parked events", l.Parked)
	case l.Parked == 0:
		return fmt.Sprintf("rows of %d prepared XA transactions", l.Prepared)
	}
	return fmt.Sprintf("%d parked events and rows of %d prepared XA transactions", l.Parked, l.Prepared)
}

func faultLeft(name string, l checkpoint.Left) *event.Fault {
	return &event.Fault{Code: "OT0021", Class: event.Usage, Op: "export a position", Place: "pipeline " + name,
		Text: waits(l) + " wait in parked.db: the position has passed them, and they are not in an export",
		Hint: "replay or skip what is parked, and decide prepared transactions, first; or stop outtail and take all of data_dir; or --leave-parked, for a backup beside this data_dir"}
}
