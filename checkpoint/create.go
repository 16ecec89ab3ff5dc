package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
)

// makeDir makes the data directory, for nobody else to read, and has its name on disk.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return errors.New("not a directory")
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(dir)))
}

// createFile makes an empty state file.
func createFile(path string, format int) error {
	return createWhole(path, func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketMeta, bucketPipelines, bucketAudit} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(strconv.Itoa(format)))
	})
}

// createWhole makes a file, which has its name only once its content is on disk, so that a crash in between leaves nothing (I5: see
// doc.go).
func createWhole(path string, fill func(*bbolt.Tx) error) error {
	draft := path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(draft, 0o600, &bbolt.Options{Timeout: time.Nanosecond})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(fill), db.Close()); err != nil {
		_ = os.Remove(draft)
		return err
	}
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir has the names in a directory on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
