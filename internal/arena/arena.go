// Package arena hands out small pieces of memory cut from larger blocks, so that making a few short values per event
// costs an allocation per hundreds of events. Nothing is ever reused: a block lives as long as anything refers to a piece
// of it and is then collected, so pieces stay valid without any bookkeeping.
package arena

import "unsafe"

// blockSize is the largest size that the runtime serves from its per-processor caches.
const blockSize = 32 << 10

// Arena is used by one goroutine. The zero value is ready.
type Arena struct {
	free []byte
}

// Take gives n bytes, not to be appended to beyond their capacity.
func (a *Arena) Take(n int) []byte {
	if n > len(a.free) {
		if n > blockSize/8 {
			return make([]byte, n) // a long piece of its own, rather than a wasted rest of a block
		}
		a.free = make([]byte, blockSize)
	}
	b := a.free[:n:n]
	a.free = a.free[n:]
	return b
}

// Copy gives a copy of b; it is never nil, so that an empty value stays different from none.
func (a *Arena) Copy(b []byte) []byte {
	c := a.Take(len(b))
	copy(c, b)
	if c == nil {
		return []byte{}
	}
	return c
}

// String gives a copy of b as a string.
func (a *Arena) String(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	c := a.Copy(b)
	// c is referred to by nobody else and never written again.
	return unsafe.String(unsafe.SliceData(c), len(c))
}

// View is b as a string without a copy: b must never be written again.
func View(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
