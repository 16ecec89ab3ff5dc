package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/outtail/outtail/event"
)

// exportFormat is the version of an exported file.
const exportFormat = 1

// Export is one pipeline's checkpoint in a file of its own, for a restore or another host. It holds the position, how far the
// transaction behind it is done, and what both depend on; no payloads, no secrets and nothing of what is parked, of which Left tells.
type Export struct {
	Format     int              `json:"outtail_checkpoint"`
	Pipeline   string           `json:"pipeline"`
	ExportedAt time.Time        `json:"exported_at"`
	Outtail    string           `json:"outtail"`
	Checkpoint event.Checkpoint `json:"checkpoint"`
	Left       Left             `json:"left"`
	// Sum is the SHA-256 of all of the above: of this object as compact JSON with an empty sum, so that a file that was laid out anew
	// is still good.
	Sum string `json:"sha256"`
}

// Left is what stays in parked.db although the position has passed it. File is that file's identity.
type Left struct {
	File     string `json:"file,omitempty"`
	Parked   int64  `json:"parked"`
	Prepared int64  `json:"prepared"`
}

// Any reports whether anything is left behind.
func (l Left) Any() bool { return l.Parked+l.Prepared > 0 }

// NewExport makes one of a checkpoint; what a person has accepted belongs to the next start here and does not go with it.
func NewExport(pipeline, version string, now time.Time, cp event.Checkpoint, left Left) Export {
	cp.Accepted = nil
	return Export{Format: exportFormat, Pipeline: pipeline, ExportedAt: now.UTC().Round(0), Outtail: version, Checkpoint: cp, Left: left}
}

func (e Export) sum() (string, error) {
	e.Sum = ""
	b, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Encode seals it and lays it out for people.
func (e Export) Encode() ([]byte, error) {
	var err error
	if e.Sum, err = e.sum(); err != nil {
		return nil, fmt.Errorf("encode the checkpoint: %w", err)
	}
	b, err := json.MarshalIndent(e, "", "  ")
	return append(b, '\n'), err
}

// ParseExport reads what Encode wrote, and nothing else.
func ParseExport(b []byte) (Export, error) {
	var head struct {
		Format int `json:"outtail_checkpoint"`
	}
	var e Export
	if err := json.Unmarshal(b, &head); err != nil {
		return e, fmt.Errorf("it is no JSON: %w", err)
	}
	switch {
	case head.Format == 0:
		return e, errors.New("it is no exported checkpoint")
	case head.Format > exportFormat:
		return e, fmt.Errorf("it has format %d, this outtail knows formats up to %d", head.Format, exportFormat)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, fmt.Errorf("it is not understood: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("something follows the checkpoint")
	}
	switch sum, err := e.sum(); {
	case err != nil:
		return e, err
	case sum != e.Sum:
		return e, errors.New("its checksum is wrong: it was changed or cut")
	case e.Checkpoint.IsZero():
		return e, errors.New("it holds no position")
	}
	return e, nil
}
