package binlog

import (
	"encoding/json"

	"github.com/outtail/outtail/event"
)

// depends is what is stored with a position beside it: whose log it is in, which incarnation of the file, and the definitions
// that hold there.
type depends struct {
	ServerUUID string                `json:"server_uuid,omitempty"`
	ServerID   uint32                `json:"server_id,omitempty"`
	File       string                `json:"file,omitempty"`
	Stamp      uint32                `json:"stamp,omitempty"`
	Tables     map[string]definition `json:"tables,omitempty"`
	// Claimed is what DDL made of a definition and no catalogue confirmed so far; Charsets are the tables' default character sets.
	Claimed  map[string]definition `json:"claimed,omitempty"`
	Charsets map[string]string     `json:"charsets,omitempty"`
	Vouched  map[string]*vouched   `json:"vouched,omitempty"` // not reached yet
	Token    string                `json:"token,omitempty"`   // by which our own sessions are known, see lock.go
	XA       *xaMark               `json:"xa,omitempty"`      // what was prepared before
}

func parseDepends(raw json.RawMessage) depends {
	var d depends
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &d) // what cannot be read proves nothing, which is the careful reading of it
	}
	return d
}

// dependsNow is what is to be stored from the stream's place on.
func (s *Source) dependsNow(st *stream) []byte {
	d := depends{ServerUUID: s.server.uuid, ServerID: s.server.id, Token: s.token, XA: s.mark}
	if st != nil && st.file != nil {
		d.File, d.Stamp = st.file.name, st.file.stamp
	}
	for t, k := range s.known {
		name := t.schema + "." + t.table
		if k.proved != nil {
			d.Tables = put(d.Tables, name, k.proved)
		} else if k.claimed != nil {
			d.Claimed = put(d.Claimed, name, k.claimed)
		}
		if k.charset != "" {
			d.Charsets = put(d.Charsets, name, k.charset)
		}
		if k.word != nil {
			d.Vouched = put(d.Vouched, name, k.word)
		}
	}
	return encodeDepends(d)
}

func put[V any](m map[string]V, key string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[key] = v
	return m
}

func encodeDepends(d depends) []byte {
	b, err := json.Marshal(d)
	if err != nil {
		return nil // strings and numbers always encode
	}
	return b
}

// position fills an event.Position.
func (s *Source) position(f folded) event.Position { return s.positionOf(s.server, f) }

func (s *Source) positionOf(sv *server, f folded) event.Position {
	p := event.Position{Kind: s.o.Kind, Pos: f.pos, Mark: f.seen.String()}
	if s.o.Kind == event.MariaDB {
		p.ServerID = sv.id
		if f.maria != nil {
			p.GTID = f.maria.String()
		}
	} else {
		p.ServerUUID = sv.uuid
		if f.set != nil {
			p.GTID = f.set.String()
		}
	}
	if f.file != nil {
		p.File = f.file.name
	}
	return p
}
