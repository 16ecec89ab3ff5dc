package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"

	"go.etcd.io/bbolt"
)

// bbolt maps its file into memory and trusts it: a truncated file ends in SIGBUS, a wild page number in SIGSEGV or a
// panic, a cycle of pages in a loop without end. So the file is checked page by page before bbolt sees it (pages.go), and
// should it be damaged while in use, faults and panics inside bbolt come back as errors.

// guard runs f, which uses bbolt, and turns a panic or a memory fault of this goroutine into errDamaged.
func guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return f()
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
func readFormat(db *bbolt.DB) (format int, err error) {
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
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
	})
	return format, err
}
