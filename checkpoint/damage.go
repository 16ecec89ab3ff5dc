package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"
	"strconv"

	"go.etcd.io/bbolt"
)

// bbolt maps its file into memory and trusts it: a truncated file ends in SIGBUS, a wild page number in SIGSEGV or a
// panic. So the file's length is compared with its meta pages before it is mapped, faults and panics inside bbolt come
// back as errors, and the whole tree is walked once at open (it is a few hundred records).

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

// bbolt's meta page (https://github.com/etcd-io/bbolt, internal/common): 16 bytes page header, then magic, version, page
// size and flags (32 bits each), root page and its sequence, free list page, number of pages, transaction (64 bits each),
// and an FNV-1a of all that. Integers are in the machine's order, and bbolt files are not portable between orders.
const (
	pageHeader = 16
	metaBytes  = 64
	metaMagic  = 0xED0CDAED
)

type boltMeta struct {
	pageSize, pages, tx uint64
}

func readMeta(f io.ReaderAt, at int64) (boltMeta, bool) {
	var b [metaBytes]byte
	if _, err := f.ReadAt(b[:], at+pageHeader); err != nil {
		return boltMeta{}, false
	}
	order := binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56])
	if order.Uint32(b[0:]) != metaMagic || order.Uint64(b[56:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	return boltMeta{pageSize: uint64(order.Uint32(b[8:])), pages: order.Uint64(b[40:]), tx: order.Uint64(b[48:])}, true
}

// checkLength proves that the file is as long as its newest meta page says. It reads two pages.
func checkLength(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if info.Size() == 0 {
		return fmt.Errorf("%w: the file is empty", errDamaged)
	}
	newest, found := readMeta(f, 0)
	if found {
		if m, ok := readMeta(f, int64(newest.pageSize)); ok && m.tx > newest.tx {
			newest = m
		}
	} else {
		// The first meta page may be torn: the second one lies one page in, whatever the size of a page is.
		for size := int64(1 << 10); size <= 1<<16 && !found; size <<= 1 {
			newest, found = readMeta(f, size)
		}
	}
	if !found {
		return fmt.Errorf("%w: no valid meta page", errDamaged)
	}
	if want := newest.pages * newest.pageSize; uint64(info.Size()) < want {
		return fmt.Errorf("%w: truncated, %d bytes of %d", errDamaged, info.Size(), want)
	}
	return nil
}

// checkContent walks every bucket and record, then lets bbolt compare its pages with its free list. The walk comes first
// and in this goroutine: bbolt's check uses one of its own, where a memory fault could not be caught.
func checkContent(db *bbolt.DB) error {
	return guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			if err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				if string(name) == bucketMeta {
					return nil
				}
				return checkBucket(b)
			}); err != nil {
				return err
			}
			var first error
			for err := range tx.Check() {
				if first == nil {
					first = fmt.Errorf("%w: %w", errDamaged, err)
				}
			}
			return first
		})
	})
}

func checkBucket(b *bbolt.Bucket) error {
	return b.ForEach(func(k, v []byte) error {
		if v != nil {
			_, err := recordText(k, v)
			return err
		}
		child := b.Bucket(k)
		if child == nil {
			return fmt.Errorf("%w: bucket %q has no root", errDamaged, k)
		}
		return checkBucket(child)
	})
}

// readFormat gives the file's format version.
func readFormat(db *bbolt.DB) (format int, err error) {
	err = guard(func() error {
		return db.View(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucketMeta))
			if b == nil {
				return fmt.Errorf("%w: not a state file of outtail", errDamaged)
			}
			format, err = strconv.Atoi(string(b.Get([]byte(keyFormat))))
			if err != nil || format < 1 {
				return fmt.Errorf("%w: no format version", errDamaged)
			}
			return nil
		})
	})
	return format, err
}
