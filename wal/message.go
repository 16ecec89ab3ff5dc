package wal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/outtail/outtail/event"
)

const (
	// MessagePrefix is the prefix of logical messages that are events.
	MessagePrefix = "outtail"
	// heartbeatPrefix differs, so that a heartbeat is nobody's event.
	heartbeatPrefix = "outtail.heartbeat"
	// messageTable stands where an event of a table has its table.
	messageTable = "message " + MessagePrefix
	// ignoredMessage is the reason under which messages are counted that no transaction holds together.
	ignoredMessage = "message_not_transactional"
)

// logical takes a logical message (14: protocol-logicalrep-message-formats, "Message"). One with our prefix that belongs to
// a transaction is an event in its place between the rows. One that does not was sent whether or not its transaction
// committed, so it is none (I2); it is counted.
func (d *decoder) logical(l *load, w *wire) *event.Fault {
	flags := w.byte()
	w.u64() // its LSN, not a position
	prefix := w.text()
	content := w.take(int(int32(w.u32())))
	if w.bad {
		return d.malformed('M')
	}
	if d.messages == nil || string(prefix) != MessagePrefix {
		return nil
	}
	if flags&1 == 0 {
		d.ignored()
		return nil
	}
	if !d.inTx {
		return d.malformed('M')
	}
	if skip, f := d.admit(d.messages); skip || f != nil {
		return f
	}
	e := d.open(l, d.messages)
	own := l.grab(len(content))
	copy(own, content)
	if text := readMessage(&e.Row, own); text != "" {
		e.Err = faultRow(CodeMessage, d.rowPlace(e), text, messageHint)
	}
	d.close(e, len(content))
	return nil
}

const messageHint = "write messages with the function that `outtail init --source postgres --messages` prints; docs/CONFIGURATION.md has their form"

// readMessage reads a JSON object whose fields are named as roles into row, and says what is wrong with it, without
// quoting it (I10). Values are cut from b where they stand in it as they are; what has escapes is copied.
func readMessage(row *event.Row, b []byte) (wrong string) {
	if !utf8.Valid(b) {
		return "the message's content is not UTF-8"
	}
	if !json.Valid(b) {
		return "the message's content is no JSON"
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "the message's content is no JSON object"
	}
	var seen [event.RoleCount]bool
	for n := 1; dec.More(); n++ {
		key, err := dec.Token()
		if err != nil {
			return "the message's content is no JSON"
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return "the message's content is no JSON"
		}
		role, ok := event.ParseRole(key.(string))
		switch {
		case !ok:
			return fmt.Sprintf("field %d of the message is named as no role", n)
		case seen[role]:
			return fmt.Sprintf("the message has %s twice", role)
		}
		seen[role] = true
		end := int(dec.InputOffset())
		v, wrong := messageValue(role, b[end-len(raw):end:end])
		if wrong != "" {
			return wrong
		}
		row[role] = v
	}
	if !row[event.ID].Present() {
		return "the message has no id"
	}
	return ""
}

// messageValue makes the value of a role: the payload is the JSON as it was written, headers are an object as in a
// column, everything else is a text or a number.
func messageValue(role event.Role, raw []byte) (event.Value, string) {
	switch {
	case role == event.Payload:
		return event.Value{Set: true, Bytes: raw}, ""
	case string(raw) == "null":
		return event.Value{Set: true, Null: true}, ""
	case role == event.Headers:
		if raw[0] != '{' {
			return event.Value{}, "the message's headers are no JSON object"
		}
		return event.Value{Set: true, Bytes: raw}, ""
	}
	switch raw[0] {
	case '{', '[':
		return event.Value{}, fmt.Sprintf("the message's %s is neither a text nor a number", role)
	case '"':
		if bytes.IndexByte(raw, '\\') < 0 {
			return event.Value{Set: true, Bytes: raw[1 : len(raw)-1]}, ""
		}
		if loneSurrogate(raw) {
			return event.Value{}, fmt.Sprintf("the message's %s has half of a surrogate pair", role)
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return event.Value{}, fmt.Sprintf("the message's %s is no text", role)
		}
		return event.Value{Set: true, Bytes: []byte(s)}, ""
	}
	return event.Value{Set: true, Bytes: raw}, ""
}

// loneSurrogate finds an escape that no text can hold; the JSON library would put U+FFFD in its place.
func loneSurrogate(raw []byte) bool {
	high := false // the escape just before was the first half of a pair
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			if high {
				return true
			}
			continue
		}
		i++
		if raw[i] != 'u' {
			if high {
				return true
			}
			continue
		}
		unit := 0
		for _, c := range raw[i+1 : i+5] {
			unit = unit<<4 | int(c&15)
			if c > '9' {
				unit += 9
			}
		}
		i += 4
		switch isHigh, isLow := unit>>10 == 0xD800>>10, unit>>10 == 0xDC00>>10; {
		case high != isLow:
			return true
		default:
			high = isHigh
		}
	}
	return high
}

// largeMessage looks at the head of a message that does not fit the usual buffer; ours says that it is an event.
func (d *decoder) largeMessage(head []byte) (ours bool) {
	w := wire{b: head}
	flags := w.byte()
	w.u64()
	prefix := w.text()
	return !w.bad && d.messages != nil && string(prefix) == MessagePrefix && flags&1 != 0
}

// messageHead is what largeMessage looks at.
const messageHead = 1 + 8 + len(MessagePrefix) + 1

// hugeMessage makes the event of a message beyond the limit: it has its place, and nothing of it is kept.
func (d *decoder) hugeMessage(l *load, size int) *event.Fault {
	if !d.inTx {
		return d.malformed('M')
	}
	if skip, f := d.admit(d.messages); skip || f != nil {
		return f
	}
	e := d.open(l, d.messages)
	e.Size, e.Err = eventCost, d.tooLarge(e, size)
	return nil
}
