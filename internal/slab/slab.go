// Package slab reuses the memory that holds the bytes of events, so that a backlog of large payloads is not the garbage collector's
// work. What nobody has wanted for two collections goes back to the system.
package slab

import (
	"slices"
	"sync"
)

// sizes has four steps to each power of two: at most a fifth of a slab is lost.
var sizes = func() (all []int) {
	for n := smallest; n < largest; n *= 2 {
		all = append(all, n, n*5/4, n*6/4, n*7/4)
	}
	return append(all, largest)
}()

const (
	smallest = 4 << 10
	largest  = 1 << 20 // what is larger is rare, and not kept
)

var pools = make([]sync.Pool, len(sizes))

// Take gives an empty slice with room for n bytes, which are not zeroed.
func Take(n int) []byte {
	class, _ := slices.BinarySearch(sizes, n)
	if class == len(sizes) {
		return make([]byte, 0, n)
	}
	if b, ok := pools[class].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, sizes[class])
}

// Give takes one back that nothing refers to any more. One that Take did not give is left to the collector.
func Give(b []byte) {
	if class, ok := slices.BinarySearch(sizes, cap(b)); ok {
		b = b[:0]
		pools[class].Put(&b)
	}
}
