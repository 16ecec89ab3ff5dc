package checkpoint

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// markerName is a small file beside the state file that names the pipelines that stored a position here. It survives the
// state file's loss, and then shows that a pipeline without a position is not a first start (I5).
const markerName = "outtail.ran"

const markerHead = "# Pipelines that stored a position in this data_dir, one a line. outtail reads this when outtail.db is gone."

// RanBefore reports whether the pipeline ever stored a position in this data directory, even if the state file has none.
func (s *Store) RanBefore(pipeline string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[pipeline]
}

// Others lists the checkpoints of all pipelines but the given ones: records whose names the configuration no longer has.
// One that has the source identity and tables of a pipeline without a position is a renamed pipeline.
func (s *Store) Others(configured ...string) (map[string]event.Checkpoint, error) {
	out := map[string]event.Checkpoint{}
	err := s.view(func(tx *bbolt.Tx) (err error) {
		out, err = all(tx)
		return err
	})
	for _, name := range configured {
		delete(out, name)
	}
	return out, err
}

// learnRan fills in what the state file knows: who ran here, and when their history last grew.
func (s *Store) learnRan() error {
	var names []string
	last := map[string]time.Time{}
	if err := s.view(func(tx *bbolt.Tx) error {
		stored, err := all(tx)
		if err != nil {
			return err
		}
		names = sortedKeys(stored)
		for _, name := range names {
			history := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(name)).Bucket([]byte(bucketHistory))
			if history == nil {
				continue
			}
			if k, _ := history.Cursor().Last(); k != nil {
				if last[name], err = keyTime(k); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRec = last
	s.markRan(names)
	return nil
}

// markRan notes the pipelines in memory and, where one is new, in the marker file. A marker that cannot be written costs
// evidence, not events: the state file has it too, so it is only logged. mu is held.
func (s *Store) markRan(names []string) {
	fresh := false
	for _, name := range names {
		if !s.ran[name] {
			s.ran[name], fresh = true, true
		}
	}
	if !fresh || s.readOnly {
		return
	}
	if err := writeMarker(filepath.Dir(s.path), s.ran); err != nil {
		s.log.Warn("the note of which pipelines ran here could not be written", "file", markerName, "err", err)
	}
}

func readMarker(dir string) map[string]bool {
	ran := map[string]bool{}
	f, err := os.Open(filepath.Join(dir, markerName))
	if err != nil {
		return ran
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name := strings.TrimSpace(lines.Text()); name != "" && !strings.HasPrefix(name, "#") {
			ran[name] = true
		}
	}
	return ran
}

func writeMarker(dir string, ran map[string]bool) error {
	path := filepath.Join(dir, markerName)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(markerHead + "\n" + strings.Join(sortedKeys(ran), "\n") + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(dir)
}
