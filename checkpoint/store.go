package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// FileName is the state file's name in the data directory.
const FileName = "outtail.db"

// migrations bring a file from format i+1 to i+2, each within the one transaction of the upgrade; doc.go describes the
// format behind the last of them. There has been only one format so far.
func migrations() []func(*bbolt.Tx) error { return nil }

const (
	bucketMeta      = "meta"
	bucketPipelines = "pipelines"
	bucketAudit     = "audit"
	bucketHistory   = "history"
	bucketDepends   = "depends"
	keyFormat       = "format"
	keyCurrent      = "current"
	keyStop         = "stop"
)

// readersGone is how long a writer waits for commands that read the file at this moment; they take milliseconds.
const readersGone = 5 * time.Second

// Options of a store.
type Options struct {
	// Dir is data_dir; it is made (0700) where it is missing.
	Dir string
	// Version of outtail, stored with each checkpoint that names none.
	Version string
	// Logger hears about what an operator should know at open. Nil: nobody.
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	// migrations stand in for the real ones in tests.
	migrations []func(*bbolt.Tx) error
}

// Store is the state file, open. Its methods may be called from any goroutine.
type Store struct {
	path     string
	version  string
	log      *slog.Logger
	now      func() time.Time
	opened   time.Time            // by now
	passed   func() time.Duration // since then, whatever the clock does
	steps    []func(*bbolt.Tx) error
	format   int // what this code writes
	readOnly bool

	lock *os.File // the data directory is ours while it is open; nil when read-only
	db   *bolt    // nil: read-only, and no state file exists yet

	parkedMu sync.Mutex
	parked   *bolt         // nil until it is needed
	parkedTx atomic.Uint64 // the newest transaction of that file that is certainly on disk
	dead     *DeadLetters

	mu      sync.Mutex
	lastRec map[string]time.Time // per pipeline, when its history last grew
	ran     map[string]bool      // pipelines that ever stored a position here
}

func newStore(o Options) *Store {
	s := &Store{
		path: filepath.Join(o.Dir, FileName), version: o.Version, log: o.Logger, now: o.Now,
		steps: o.migrations, lastRec: map[string]time.Time{},
	}
	if s.steps == nil {
		s.steps = migrations()
	}
	s.format = 1 + len(s.steps)
	s.dead = &DeadLetters{s: s, kept: map[string]*keptTotals{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
		began := time.Now()
		s.passed = func() time.Duration { return time.Since(began) }
	}
	s.opened = s.now()
	if s.passed == nil {
		s.passed = func() time.Duration { return s.now().Sub(s.opened) }
	}
	return s
}

// Open takes the data directory for this process and opens its state file, which is made where there is none. A second
// process gets ErrLocked at once; a file that is not sound a fault of class Safety.
func Open(o Options) (_ *Store, err error) {
	if err := makeDir(o.Dir); err != nil {
		return nil, faultUnusable("create data_dir", o.Dir, err)
	}
	s := newStore(o)
	if s.lock, err = lockDir(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	s.ran = readMarker(o.Dir)

	switch info, statErr := os.Stat(s.path); {
	case errors.Is(statErr, fs.ErrNotExist):
		if len(s.ran) > 0 {
			s.log.Warn("the state file is gone although pipelines ran with this data_dir before", "file", s.path, "pipelines", sortedKeys(s.ran))
		}
		if err := createFile(s.path, s.format); err != nil {
			return nil, faultUnusable("create state file", s.path, err)
		}
	case statErr != nil:
		return nil, faultUnusable("open state", s.path, statErr)
	case !info.Mode().IsRegular(): // openFile says so; it is not ours to change
	case info.Mode().Perm()&0o077 != 0: // restored from a backup, say
		if err := os.Chmod(s.path, 0o600); err != nil {
			s.log.Warn("others can read or write the state file", "file", s.path, "mode", info.Mode().Perm(), "err", err)
		}
	}
	if err := s.openFile(); err != nil {
		return nil, err
	}
	if err := s.upgrade(); err != nil {
		return nil, err
	}
	return s, s.learnRan()
}

// OpenReadOnly opens the state file for a command while no process runs; without a file the store is empty. While one
// runs the result is ErrLocked: ask it through its socket.
func OpenReadOnly(o Options) (_ *Store, err error) {
	s := newStore(o)
	s.readOnly = true
	s.ran = readMarker(o.Dir)
	switch _, statErr := os.Stat(s.path); {
	case errors.Is(statErr, fs.ErrNotExist):
		return s, nil
	case statErr != nil:
		return nil, faultUnusable("open state", s.path, statErr)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if err := s.openFile(); err != nil {
		return nil, err
	}
	switch format, err := readFormat(s.db); {
	case err != nil:
		return nil, faultDamaged(s.path, err)
	case format > s.format:
		return nil, faultNewerFormat(s.path, format, s.format)
	case format < s.format:
		return nil, faultOldFormat(s.path, format, s.format)
	}
	return s, s.learnRan()
}

// Close gives the file and the data directory back. A second Close does nothing.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.db.close()
	}
	s.parkedMu.Lock()
	defer s.parkedMu.Unlock()
	if s.parked != nil {
		err = errors.Join(err, s.parked.close())
		s.parked = nil
	}
	if s.lock != nil {
		_ = s.lock.Close()
		s.lock = nil
	}
	return err
}

// Path is where the state file is.
func (s *Store) Path() string { return s.path }

func (s *Store) openFile() error {
	// Before it is opened: to open a pipe waits for its other end.
	if info, err := os.Stat(s.path); err == nil && !info.Mode().IsRegular() {
		return faultUnusable("open state", s.path, errNotRegular)
	}
	before, err := os.Open(s.path)
	if err != nil {
		return faultUnusable("open state", s.path, err)
	}
	defer before.Close()
	if s.readOnly {
		switch free, err := lockShared(before); {
		case err != nil:
			return faultUnusable("open state", s.path, err)
		case !free:
			return faultLocked(filepath.Dir(s.path), "")
		}
	}
	if err := checkFile(before); err != nil {
		if errors.Is(err, errDamaged) {
			return faultDamaged(s.path, err)
		}
		return faultUnusable("open state", s.path, err)
	}
	opts := bbolt.Options{Timeout: readersGone, ReadOnly: s.readOnly, NoStatistics: true}
	if s.readOnly {
		opts.Timeout = time.Nanosecond // tried once
	}
	db, err := openBolt(s.path, opts)
	if err == nil {
		s.db = db
		return nil
	}
	switch judgeOpen(err) {
	case openedLocked:
		return faultLocked(filepath.Dir(s.path), "")
	case openedDamaged:
		return faultDamaged(s.path, err)
	default:
		return faultUnusable("open state", s.path, err)
	}
}

// upgrade brings an older file to this format: all steps in one transaction, so that it is the old or the new one.
func (s *Store) upgrade() error {
	format, err := readFormat(s.db)
	switch {
	case err != nil:
		return faultDamaged(s.path, err)
	case format > s.format:
		return faultNewerFormat(s.path, format, s.format)
	case format == s.format:
		return nil
	}
	err = s.db.update(func(tx *bbolt.Tx) error {
		for from := format; from < s.format; from++ {
			if err := s.steps[from-1](tx); err != nil {
				return fmt.Errorf("from format %d: %w", from, err)
			}
		}
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(strconv.Itoa(s.format)))
	})
	if err != nil {
		return faultMigration(s.path, format, s.format, err)
	}
	s.log.Info("state file brought to a newer format", "file", s.path, "from", format, "to", s.format)
	return nil
}

// view reads in a transaction; a store without a file has nothing to show.
func (s *Store) view(f func(*bbolt.Tx) error) error {
	if s.db == nil {
		return nil
	}
	err := s.db.view(f)
	if errors.Is(err, errDamaged) {
		return faultDamaged(s.path, err)
	}
	if err != nil && event.AsFault(err) == nil {
		return faultUnusable("read state", s.path, err)
	}
	return err
}

// update writes in a transaction that is on disk when it returns nil.
func (s *Store) update(op string, f func(*bbolt.Tx) error) error {
	if s.readOnly {
		return faultWrite(op, s.path, fs.ErrPermission)
	}
	if err := s.db.update(func(tx *bbolt.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		return noteParked(tx, s.parkedTx.Load())
	}); err != nil {
		return faultWrite(op, s.path, err)
	}
	return nil
}
