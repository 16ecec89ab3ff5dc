package binlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// loopConn repeats a piece of log for ever.
type loopReader struct {
	head, body []byte
	at         int
}

func (l *loopReader) Read(b []byte) (int, error) {
	if len(l.head) > 0 {
		n := copy(b, l.head)
		l.head = l.head[n:]
		return n, nil
	}
	n := copy(b, l.body[l.at:])
	l.at = (l.at + n) % len(l.body)
	return n, nil
}

// jsonDocument is a binary JSON object whose text has about 450 bytes.
func jsonDocument() string {
	keys := []string{"id", "sku", "note", "price"}
	values := []string{strings.Repeat("i", 36), strings.Repeat("s", 100), strings.Repeat("n", 250), strings.Repeat("9", 20)}
	var entries, data []byte
	at := 4 + len(keys)*4 + len(keys)*3
	for _, k := range keys {
		entries = append(entries, byte(at), byte(at>>8), byte(len(k)), 0)
		data = append(data, k...)
		at += len(k)
	}
	for _, v := range values {
		entries = append(entries, jsonString, byte(at), byte(at>>8))
		size := []byte{byte(len(v))}
		if len(v) > 127 {
			size = []byte{byte(len(v)) | 0x80, byte(len(v) >> 7)}
		}
		data = append(append(data, size...), v...)
		at += len(size) + len(v)
	}
	doc := []byte{jsonSmallObject, byte(len(keys)), 0, byte(at), byte(at >> 8)}
	return string(append(append(doc, entries...), data...))
}

// BenchmarkStream reads rows of a JSON payload of 450 bytes; the log is in memory, so that decoding and assembling are measured.
func BenchmarkStream(b *testing.B) {
	for _, perTx := range []int{1, 10} {
		b.Run(fmt.Sprintf("%d rows per transaction", perTx), func(b *testing.B) {
			head := &logWriter{}
			head.file("binlog.000001")
			w := &logWriter{pos: 1000}
			doc := jsonDocument()
			n := int64(0)
			for range 1000 {
				n++
				w.gtid(n)
				w.query("BEGIN")
				w.tableMap(9, "shop", "outbox", []byte{typeLongLong, typeJSON}, []byte{4})
				for range perTx {
					w.rows(uint64(n), doc)
				}
				w.xid()
			}
			s, _ := feed(b, &loopReader{head: bytes.Clone(head.Bytes()), body: bytes.Clone(w.Bytes())}, io.EOF)
			for _, k := range s.known {
				k.proved[1].Type = "json"
			}
			b.SetBytes(int64(w.Len() / 1000 / perTx))
			b.ReportAllocs()
			b.ResetTimer()
			for got := 0; got < b.N; {
				batch, err := s.Read(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				for _, bound := range batch.Bounds[max(len(batch.Bounds)-1, 0):] {
					s.ledger.Load().fold(bound.At)
				}
				got += len(batch.Events)
				if batch.Release != nil {
					batch.Release()
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	b.Run("foreign rows", func(b *testing.B) {
		head := &logWriter{}
		head.file("binlog.000001")
		w := &logWriter{pos: 1000}
		row := append([]byte{8, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff}, make([]byte, 450)...)
		for n := range int64(1000) {
			w.gtid(n + 1)
			w.query("BEGIN")
			w.tableMap(8, "shop", "orders", []byte{typeLongLong, typeJSON}, []byte{4})
			w.event(evWriteRows, 0, row)
			w.xid()
		}
		_, st := feed(b, &loopReader{head: bytes.Clone(head.Bytes()), body: bytes.Clone(w.Bytes())}, io.EOF)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N * 5 {
			if err := st.step(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transactions/s")
	})
}
