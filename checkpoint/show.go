package checkpoint

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// stateVersion is the version of the JSON shape, not of the file.
const stateVersion = 1

// State is what `checkpoint show --json` prints; its shape is a promise (docs: state).
type State struct {
	Version   int     `json:"version"`
	Pipelines []Entry `json:"pipelines"`
}

// Entry is one pipeline of State.
type Entry struct {
	Pipeline string    `json:"pipeline"`
	SavedAt  time.Time `json:"saved_at"`
	Outtail  string    `json:"outtail"`
	Source   Source    `json:"source"`
	Prefix   *Prefix   `json:"prefix"`
	Sink     Sink      `json:"sink"`
	Events   uint64    `json:"events"`
	Parked   uint64    `json:"parked"`
}

// Prefix is how far inside the next transaction nothing needs sending.
type Prefix struct {
	Tx   string `json:"tx"`
	Rows uint64 `json:"rows"`
}

// Sink is what the sink is.
type Sink struct {
	Kind      string `json:"kind"`
	ClusterID string `json:"cluster_id"`
}

// Source is a position whose JSON has all the fields of its kind, empty or not, and no others.
type Source event.Position

// MarshalJSON writes the fields of the kind.
func (p Source) MarshalJSON() ([]byte, error) {
	switch p.Kind {
	case event.Postgres:
		return json.Marshal(struct {
			Kind     string    `json:"kind"`
			SystemID string    `json:"system_id"`
			Timeline uint32    `json:"timeline"`
			Slot     string    `json:"slot"`
			LSN      event.LSN `json:"lsn"`
		}{p.Kind, p.SystemID, p.Timeline, p.Slot, p.LSN})
	case event.MySQL:
		return json.Marshal(struct {
			Kind       string `json:"kind"`
			ServerUUID string `json:"server_uuid"`
			GTID       string `json:"gtid"`
			File       string `json:"file"`
			Pos        uint64 `json:"pos"`
		}{p.Kind, p.ServerUUID, p.GTID, p.File, p.Pos})
	case event.MariaDB:
		return json.Marshal(struct {
			Kind     string `json:"kind"`
			ServerID uint32 `json:"server_id"`
			GTID     string `json:"gtid"`
			File     string `json:"file"`
			Pos      uint64 `json:"pos"`
		}{p.Kind, p.ServerID, p.GTID, p.File, p.Pos})
	}
	return nil, fmt.Errorf("position of unknown kind %q", p.Kind)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Source) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*event.Position)(p)) }

// NewEntry is how a checkpoint is shown.
func NewEntry(pipeline string, cp event.Checkpoint, parked uint64) Entry {
	e := Entry{
		Pipeline: pipeline, SavedAt: cp.SavedAt.UTC(), Outtail: cp.Version, Source: Source(cp.Position),
		Sink: Sink(cp.Sink), Events: cp.Events, Parked: parked,
	}
	if cp.Prefix != nil {
		e.Prefix = &Prefix{Tx: cp.Prefix.Tx, Rows: cp.Prefix.Rows}
	}
	return e
}

// Show gives all stored pipelines, in order of their names. It may be called while a pipeline saves, and then shows what
// is on disk.
func (s *Store) Show() (State, error) {
	st := State{Version: stateVersion, Pipelines: []Entry{}}
	stored := map[string]event.Checkpoint{}
	err := s.view(func(tx *bbolt.Tx) (err error) {
		stored, err = all(tx)
		return err
	})
	if err != nil {
		return st, err
	}
	for _, name := range sortedKeys(stored) {
		parked, err := s.dead.Open(name)
		if err != nil {
			return st, err
		}
		st.Pipelines = append(st.Pipelines, NewEntry(name, stored[name], uint64(parked)))
	}
	return st, nil
}
