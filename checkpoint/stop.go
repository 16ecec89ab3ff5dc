package checkpoint

import (
	"time"

	"go.etcd.io/bbolt"
)

// Stopped keeps the safety finding that a pipeline stopped at, until a position of it is stored again.
func (s *Store) Stopped(pipeline string, stop Stop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.update("store the stop", func(tx *bbolt.Tx) error {
		b, err := tx.Bucket([]byte(bucketPipelines)).CreateBucketIfNotExists([]byte(pipeline))
		if err != nil {
			return err
		}
		v, err := encodeRecord(placeStop(pipeline), stop)
		if err != nil {
			return err
		}
		return b.Put([]byte(keyStop), v)
	})
}

// LastStop gives it; the zero value where the pipeline went on since, or did not stop at one.
func (s *Store) LastStop(pipeline string) (stop Stop, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline))
		if b == nil {
			return nil
		}
		v := b.Get([]byte(keyStop))
		if v == nil {
			return nil
		}
		return decodeRecord(placeStop(pipeline), v, &stop)
	})
	return stop, err
}

// Stop is the safety finding that a pipeline stopped at, and where.
type Stop struct {
	Code  string    `json:"code"`
	Place string    `json:"place"`
	At    time.Time `json:"at"`
}

func dropStop(tx *bbolt.Tx, pipeline string) error {
	b := tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline))
	if b.Get([]byte(keyStop)) == nil {
		return nil
	}
	return b.Delete([]byte(keyStop))
}
