package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// bbolt maps its file into memory and trusts it: a truncated file ends in SIGBUS, a wild page number in SIGSEGV or a
// panic, a cycle of pages in a loop without end. So the file is checked page by page before bbolt sees it (pages.go), and
// should it be damaged while in use, faults and panics inside bbolt come back as errors.

// guard runs f, which uses bbolt, and turns a panic or a memory fault of this goroutine into a panicked error, which is errDamaged.
func guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = panicked{r}
		}
	}()
	return f()
}

type panicked struct{ cause any }

func (p panicked) Error() string { return fmt.Sprintf("%v: %v", errDamaged, p.cause) }
func (p panicked) Unwrap() error { return errDamaged }

// bolt is a bbolt file that is open. A panic inside of bbolt may leave bbolt's own locks held, and whoever uses or closes the file then
// waits for ever. So the first panic is the last use: everybody after it gets its error at once.
type bolt struct {
	db      *bbolt.DB
	file    *os.File
	writing sync.Mutex // whoever waits to write waits here, since a panic gives this one back
	lost    atomic.Pointer[panicked]
}

// openBolt opens a file that exists and was checked. Where it fails, the error is judgeOpen's.
func openBolt(path string, o bbolt.Options) (*bolt, error) {
	b := &bolt{}
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		// Never created here: that is done in one piece, under another name.
		b.file, err = os.OpenFile(name, flag&^os.O_CREATE, mode)
		return b.file, err
	}
	err := guard(func() (err error) {
		b.db, err = bbolt.Open(path, 0o600, &o)
		return err
	})
	if _, ok := errors.AsType[panicked](err); ok && b.file != nil {
		abandon(b.file) // bbolt does not when it panics, and its lock would stay
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bolt) use(f func() error) error {
	if p := b.lost.Load(); p != nil {
		return *p
	}
	err := guard(f)
	if p, ok := errors.AsType[panicked](err); ok {
		b.lost.CompareAndSwap(nil, &p)
	}
	return err
}

func (b *bolt) view(f func(*bbolt.Tx) error) error {
	return b.use(func() error { return b.db.View(f) })
}

func (b *bolt) update(f func(*bbolt.Tx) error) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.use(func() error { return b.db.Update(f) })
}

func (b *bolt) close() error {
	if b.lost.Load() != nil {
		abandon(b.file)
		return nil
	}
	return b.db.Close()
}

var errNotRegular = errors.New("not a regular file")

// checkFile reads the whole file (it is a few pages) and proves that bbolt can use it. Nobody writes meanwhile: a writer
// calls it with the data directory locked, a reader with a shared lock on f.
func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errNotRegular
	}
	return guard(func() error { return checkPages(f, info.Size()) })
}

// readFormat gives the file's format version, and sees to it that the buckets are there.
func readFormat(db *bolt) (format int, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketMeta, bucketPipelines, bucketAudit} {
			if tx.Bucket([]byte(name)) == nil {
				return fmt.Errorf("%w: not a state file of outtail, it has no bucket %q", errDamaged, name)
			}
		}
		format, err = strconv.Atoi(string(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyFormat))))
		if err != nil || format < 1 {
			return fmt.Errorf("%w: no format version", errDamaged)
		}
		return nil
	})
	return format, err
}
