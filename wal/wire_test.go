package wal

import (
	"encoding/binary"
	"sync"

	"github.com/outtail/outtail/event"
)

// message writes pgoutput messages for tests, as a server would.
type message []byte

func msg(kind byte) message              { return message{kind} }
func (m message) u8(v ...byte) message   { return append(m, v...) }
func (m message) u16(v int) message      { return binary.BigEndian.AppendUint16(m, uint16(v)) }
func (m message) u32(v uint32) message   { return binary.BigEndian.AppendUint32(m, v) }
func (m message) u64(v uint64) message   { return binary.BigEndian.AppendUint64(m, v) }
func (m message) text(s string) message  { return append(append(m, s...), 0) }
func (m message) value(s string) message { return append(m.u8('t').u32(uint32(len(s))), s...) }
func (m message) null() message          { return m.u8('n') }

func begin(final uint64) message { return msg('B').u64(final).u64(1_000_000).u32(7) }
func commit(final, end uint64) message {
	return msg('C').u8(0).u64(final).u64(end).u64(1_000_000)
}

type column struct {
	name string
	typ  uint32
}

func relationMsg(id uint32, schema, table string, cols ...column) message {
	m := msg('R').u32(id).text(schema).text(table).u8('d').u16(len(cols))
	for _, c := range cols {
		m = m.u8(1).text(c.name).u32(c.typ).u32(^uint32(0))
	}
	return m
}

func insertMsg(id uint32, n int) message { return msg('I').u32(id).u8('N').u16(n) }

// data wraps a pgoutput message as the connection carries it.
func data(m message) []byte {
	body := msg('w').u64(0).u64(0).u64(2_000_000)
	body = append(body, m...)
	return append(message{'d'}.u32(uint32(len(body)+4)), body...)
}

func keepaliveFrame(end uint64, reply byte) []byte {
	return message{'d'}.u32(22).u8('k').u64(end).u64(0).u8(reply)
}

// outboxColumns maps what outbox rows of the tests have.
func outboxColumns() event.Columns {
	var c event.Columns
	c[event.ID] = event.Mapping{Column: "id"}
	c[event.Payload] = event.Mapping{Column: "payload"}
	c[event.EventType] = event.Mapping{Constant: "order", IsConst: true}
	return c
}

var outboxRelation = relationMsg(60, "public", "outbox", column{"id", 25}, column{"noise", 25}, column{"payload", 25}, column{"more", 25})

func outboxRow(id, payload string) message {
	return insertMsg(60, 4).value(id).value("noise").value(payload).null()
}

func testDecoder(columns event.Columns, limit int) *decoder {
	o := &Options{Slot: "s", Host: "h", Port: 1, Database: "d", RowLimit: limit, Columns: columns}
	return newDecoder(o, []target{{text: "public.outbox", name: name{"public", "outbox"}, relid: 60, domains: map[uint32]bool{900: true}}}, 10, nil)
}

func testLoad() *load {
	p := &sync.Pool{}
	p.New = func() any { return newLoad(p) }
	return p.Get().(*load)
}
