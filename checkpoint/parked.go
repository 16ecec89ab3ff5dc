package checkpoint

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// ParkedName is the second file in the data directory: what is large and waits (rows of prepared XA transactions). It is a
// file of its own so that the position's file stays a few pages; the two share no transaction, so whoever keeps something
// here orders its writes by what is stored there: kept before the position passes it, dropped after.
//
// It is made by the first write and not before. Its identity is a random number: what depends on the content stores it, so
// that a file that was lost or replaced is noticed (I5).
//
//	meta             format -> "1", id -> 16 hex digits
//	xa / <pipeline>  key -> CRC-32C of place and value, then the value
const ParkedName = "parked.db"

const (
	bucketXA     = "xa"
	keyID        = "id"
	parkedFormat = "1"
)

// Prepared keeps rows of prepared XA transactions of one pipeline: ordered keys with values, on disk when a write returns.
// Its methods may be called from any goroutine.
type Prepared struct {
	s        *Store
	pipeline string
}

// Prepared gives the place for a pipeline's prepared XA transactions.
func (s *Store) Prepared(pipeline string) *Prepared { return &Prepared{s, pipeline} }

// ID is the file's identity, "" where there is none yet.
func (p *Prepared) ID() (id string, err error) {
	err = p.view(func(tx *bbolt.Tx) error {
		id = string(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyID)))
		return nil
	})
	return id, err
}

// Create makes the file where there is none, and gives its identity.
func (p *Prepared) Create() (string, error) {
	if _, err := p.s.openParked(true); err != nil {
		return "", err
	}
	return p.ID()
}

// Write puts values and then drops all keys that begin with one of drops, in one transaction that is on disk when it
// returns nil, and not at all when it does not.
func (p *Prepared) Write(puts map[string][]byte, drops []string) error {
	db, err := p.s.openParked(len(puts) > 0)
	if err != nil || db == nil {
		return err
	}
	path := p.s.parkedPath()
	err = p.s.commitParked(db, func(tx *bbolt.Tx) error {
		all, err := tx.CreateBucketIfNotExists([]byte(bucketXA))
		if err != nil {
			return err
		}
		b, err := all.CreateBucketIfNotExists([]byte(p.pipeline))
		if err != nil {
			return err
		}
		for _, key := range sortedKeys(puts) {
			if err := b.Put([]byte(key), sealed(p.place(key), puts[key])); err != nil {
				return err
			}
		}
		for _, prefix := range drops {
			if err := dropPrefix(b, []byte(prefix)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return faultWrite("keep prepared XA transactions", path, err)
	}
	return nil
}

func dropPrefix(b *bbolt.Bucket, prefix []byte) error {
	c := b.Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Seek(prefix) {
		if err := b.Delete(bytes.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// Get gives a copy of a value, nil where there is none.
func (p *Prepared) Get(key string) (value []byte, err error) {
	err = p.view(func(tx *bbolt.Tx) error {
		b := p.bucket(tx)
		if b == nil {
			return nil
		}
		v := b.Get([]byte(key))
		if v == nil {
			return nil
		}
		v, err := recordText(p.place(key), v)
		value = slices.Clone(v)
		return err
	})
	return value, err
}

// Each visits the keys that begin with prefix, in order, and their values, which are valid only during the visit.
func (p *Prepared) Each(prefix string, visit func(key string, value []byte) error) error {
	return p.view(func(tx *bbolt.Tx) error {
		b := p.bucket(tx)
		if b == nil {
			return nil
		}
		c := b.Cursor()
		for k, v := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
			v, err := recordText(p.place(string(k)), v)
			if err == nil {
				err = visit(string(k), v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *Prepared) bucket(tx *bbolt.Tx) *bbolt.Bucket {
	if all := tx.Bucket([]byte(bucketXA)); all != nil {
		return all.Bucket([]byte(p.pipeline))
	}
	return nil
}

func (p *Prepared) place(key string) []byte {
	return place([]byte("/"+bucketXA+"/"+p.pipeline), []byte(key))
}

// sealed is a value with its checksum in front, as recordText reads it.
func sealed(place, value []byte) []byte {
	out := make([]byte, sumBytes, sumBytes+len(value))
	binary.BigEndian.PutUint32(out, recordSum(place, value))
	return append(out, value...)
}

func (p *Prepared) view(f func(*bbolt.Tx) error) error { return p.s.viewParked(f) }

// viewParked reads in a transaction; without a file there is nothing to show.
func (s *Store) viewParked(f func(*bbolt.Tx) error) error {
	db, err := s.openParked(false)
	if err != nil || db == nil {
		return err
	}
	err = db.view(f)
	if errors.Is(err, errDamaged) {
		return faultParkedDamaged(s.parkedPath(), err)
	}
	if err != nil && event.AsFault(err) == nil {
		return faultUnusable("read parked events", s.parkedPath(), err)
	}
	return err
}

// updateParked writes in a transaction that is on disk when it returns nil. It makes the file where there is none.
func (s *Store) updateParked(op string, f func(*bbolt.Tx) error) error {
	db, err := s.openParked(true)
	if err != nil {
		return err
	}
	if err := s.commitParked(db, f); err != nil {
		switch {
		case event.AsFault(err) != nil:
			return err
		case errors.Is(err, errDamaged):
			return faultParkedDamaged(s.parkedPath(), err)
		}
		return faultWrite(op, s.parkedPath(), err)
	}
	return nil
}

// commitParked writes in a transaction, and remembers its number once it is on disk. A reader's number is none to remember: it may
// be that of a transaction whose end is not on disk yet.
func (s *Store) commitParked(db *bolt, f func(*bbolt.Tx) error) error {
	var n uint64
	err := db.update(func(tx *bbolt.Tx) error {
		n = uint64(tx.ID())
		return f(tx)
	})
	for was := s.parkedTx.Load(); err == nil && n > was && !s.parkedTx.CompareAndSwap(was, n); {
		was = s.parkedTx.Load()
	}
	return err
}

// noteParked stores, with whatever is stored in the first file, how far the second one is, so that an older copy of it is noticed.
func noteParked(tx *bbolt.Tx, at uint64) error {
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil || meta.Get([]byte(keyParkedID)) == nil || at <= parkedNoted(meta) {
		return nil
	}
	return meta.Put([]byte(keyParkedTx), strconv.AppendUint(nil, at, 10))
}

// parkedNoted is what noteParked stored last, 0 where it never did.
func parkedNoted(meta *bbolt.Bucket) uint64 {
	n, _ := strconv.ParseUint(string(meta.Get([]byte(keyParkedTx))), 10, 64)
	return n
}

func (s *Store) parkedPath() string { return filepath.Join(filepath.Dir(s.path), ParkedName) }

// openParked opens the file once; nil where there is none and none is to be made. The data directory's lock covers it.
func (s *Store) openParked(create bool) (*bolt, error) {
	s.parkedMu.Lock()
	defer s.parkedMu.Unlock()
	if s.parked != nil {
		return s.parked, nil
	}
	path := s.parkedPath()
	const op = "open parked events"
	if s.readOnly && create {
		return nil, faultWrite(op, path, fs.ErrPermission)
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist) && !create:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		if err := createParked(path); err != nil {
			return nil, faultWrite("create the file of parked events", path, err)
		}
	case err != nil:
		return nil, faultUnusable(op, path, err)
	case !info.Mode().IsRegular(): // checkFile says so; it is not ours to change
	case info.Mode().Perm()&0o077 != 0 && !s.readOnly:
		if err := os.Chmod(path, 0o600); err != nil {
			s.log.Warn("others can read or write the file of parked events", "file", path, "mode", info.Mode().Perm(), "err", err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, faultUnusable(op, path, err)
	}
	defer f.Close()
	if err := checkFile(f); err != nil {
		if errors.Is(err, errDamaged) {
			return nil, faultParkedDamaged(path, err)
		}
		return nil, faultUnusable(op, path, err)
	}
	db, err := openBolt(path, bbolt.Options{Timeout: readersGone, ReadOnly: s.readOnly, NoStatistics: true, FreelistType: bbolt.FreelistMapType})
	if err == nil {
		err = db.view(checkParkedFormat)
		if err == nil && !s.readOnly {
			err = db.db.Sync() // a process that was killed may have left its last transaction to the kernel
		}
		if err == nil {
			err = db.view(func(tx *bbolt.Tx) error {
				s.parkedTx.Store(uint64(tx.ID()))
				return nil
			})
		}
		if err == nil {
			s.parked = db
			return db, nil
		}
		_ = db.close()
	}
	switch judgeOpen(err) {
	case openedLocked:
		return nil, faultLocked(filepath.Dir(path), "")
	case openedDamaged:
		return nil, faultParkedDamaged(path, err)
	default:
		return nil, faultUnusable(op, path, err)
	}
}

func checkParkedFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil || len(meta.Get([]byte(keyID))) == 0 {
		return damaged("it has no identity")
	}
	if v := string(meta.Get([]byte(keyFormat))); v != parkedFormat {
		return damaged("its format is %q, this outtail knows %q", v, parkedFormat)
	}
	return nil
}

// createParked makes an empty file with an identity.
func createParked(path string) error {
	var id [8]byte
	_, _ = rand.Read(id[:])
	return createWhole(path, func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucket([]byte(bucketMeta))
		if err != nil {
			return err
		}
		if err := meta.Put([]byte(keyFormat), []byte(parkedFormat)); err != nil {
			return err
		}
		return meta.Put([]byte(keyID), []byte(hex.EncodeToString(id[:])))
	})
}

func faultParkedDamaged(path string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeParkedDamaged, Class: event.Safety, Op: "open parked events", Place: path, Text: "the file of parked events is damaged", Err: err,
		Hint: "outtail never replaces it by itself. From one backup of both files:\n" +
			"  cp BACKUP/outtail.db BACKUP/parked.db " + filepath.Dir(path) + "/\n" +
			"Or read again what was parked, as far back as the server has it; what cannot be read again is given up:\n" +
			"  mv " + path + " " + path + ".damaged\n" +
			"  outtail dlq forget -c FILE --reason R\n" +
			"  outtail checkpoint rewind -c FILE --pipeline P --to TIME --reason R",
	}
}
