package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// The format of bbolt's pages (https://github.com/etcd-io/bbolt, internal/common). Integers are in the machine's order;
// bbolt files do not move between orders.
//
//	page header  id u64, flags u16, count u16, overflow u32
//	meta         magic, version, page size, flags u32; root page, root sequence, free list page, pages, transaction u64;
//	             FNV-1a of all that u64. Pages 0 and 1; the valid one with the higher transaction counts
//	branch       count times: key offset (from the element), key size u32; child page u64
//	leaf         count times: flags, key offset (from the element), key size, value size u32. Flag 1: the value is a bucket
//	bucket       root page, sequence u64; where the root is 0, a leaf page follows in the value itself
//	free list    count times a page u64; a count of 0xFFFF says that the first u64 is the count
const (
	pageHeader    = 16
	elementBytes  = 16
	bucketHeader  = 16
	metaBytes     = 64
	metaMagic     = 0xED0CDAED
	branchPage    = 0x01
	leafPage      = 0x02
	freelistPage  = 0x10
	bucketLeaf    = 0x01
	countFollows  = 0xFFFF
	noFreelist    = ^uint64(0)
	reservedPages = 2
)

var order = binary.NativeEndian

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

type boltMeta struct {
	pageSize, root, freelist, pages, tx uint64
}

func readMeta(r io.ReaderAt, at int64) (boltMeta, bool) {
	var b [metaBytes]byte
	if _, err := r.ReadAt(b[:], at+pageHeader); err != nil {
		return boltMeta{}, false
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaBytes-8])
	if order.Uint32(b[0:]) != metaMagic || order.Uint64(b[metaBytes-8:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	return boltMeta{
		pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), tx: order.Uint64(b[48:]),
	}, true
}

// newestMeta finds the meta page that bbolt will use.
func newestMeta(r io.ReaderAt) (boltMeta, bool) {
	newest, found := readMeta(r, 0)
	if found {
		if m, ok := readMeta(r, int64(newest.pageSize)); ok && m.tx > newest.tx {
			newest = m
		}
		return newest, true
	}
	// The first one may be torn: the second lies one page in, whatever the size of a page is.
	for size := int64(1 << 10); size <= 1<<16 && !found; size <<= 1 {
		newest, found = readMeta(r, size)
	}
	return newest, found
}

// pageCheck walks a file from its meta page. Each page is visited once, so it ends, whatever the file says.
type pageCheck struct {
	r    io.ReaderAt
	meta boltMeta
	seen map[uint64]bool
}

// checkPages proves that every page is in exactly one place (tree or free list), that every key is where bbolt will look
// for it, and that every record has the checksum of its text and place.
func checkPages(r io.ReaderAt, size int64) error {
	if size == 0 {
		return damaged("the file is empty")
	}
	meta, ok := newestMeta(r)
	if !ok {
		return damaged("no valid meta page")
	}
	if meta.pageSize < 1<<9 || meta.pageSize > 1<<20 || meta.pages > uint64(size)/meta.pageSize {
		return damaged("truncated, %d bytes instead of %d pages of %d", size, meta.pages, meta.pageSize)
	}
	c := &pageCheck{r: r, meta: meta, seen: map[uint64]bool{}}
	if err := c.walk(meta.root, nil, nil, nil); err != nil {
		return err
	}
	return c.freelist()
}

// page reads a page with its overflow.
func (c *pageCheck) page(id uint64) (b []byte, flags, count int, err error) {
	if id < reservedPages || id >= c.meta.pages {
		return nil, 0, 0, damaged("page %d does not exist", id)
	}
	var head [pageHeader]byte
	if _, err := c.r.ReadAt(head[:], int64(id*c.meta.pageSize)); err != nil {
		return nil, 0, 0, fmt.Errorf("read page %d: %w", id, err)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if got := order.Uint64(head[0:]); got != id || id+overflow >= c.meta.pages {
		return nil, 0, 0, damaged("page %d says that it is %d with %d more", id, got, overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if c.seen[i] {
			return nil, 0, 0, damaged("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	b = make([]byte, (overflow+1)*c.meta.pageSize)
	if _, err := c.r.ReadAt(b, int64(id*c.meta.pageSize)); err != nil {
		return nil, 0, 0, fmt.Errorf("read page %d: %w", id, err)
	}
	return b, int(order.Uint16(b[8:])), int(order.Uint16(b[10:])), nil
}

// walk checks the tree below a page, whose keys must lie in [low, high); nil is no bound. path names its bucket.
func (c *pageCheck) walk(id uint64, path, low, high []byte) error {
	b, flags, count, err := c.page(id)
	if err != nil {
		return err
	}
	switch flags {
	case leafPage:
		return c.leaf(b, count, path, low, high)
	case branchPage:
		return c.branch(b, id, count, path, low, high)
	}
	return damaged("page %d has the flags %#x", id, flags)
}

func (c *pageCheck) branch(b []byte, id uint64, count int, path, low, high []byte) error {
	if count == 0 || pageHeader+count*elementBytes > len(b) {
		return damaged("page %d has %d branches", id, count)
	}
	keys, children := make([][]byte, count), make([]uint64, count)
	for i := range count {
		at := pageHeader + i*elementBytes
		key, _, err := span(b, at, count, order.Uint32(b[at:]), order.Uint32(b[at+4:]), 0)
		if err != nil {
			return err
		}
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 {
			return damaged("page %d is not in order", id)
		}
		keys[i], children[i] = key, order.Uint64(b[at+8:])
	}
	for i, child := range children {
		from, to := low, high
		if i > 0 { // what lies below the first key is looked for in the first child
			from = keys[i]
		}
		if i+1 < count {
			to = keys[i+1]
		}
		if err := c.walk(child, path, from, to); err != nil {
			return err
		}
	}
	return nil
}

func (c *pageCheck) leaf(b []byte, count int, path, low, high []byte) error {
	if pageHeader+count*elementBytes > len(b) {
		return damaged("a page has %d leaves", count)
	}
	last := low
	for i := range count {
		at := pageHeader + i*elementBytes
		key, value, err := span(b, at, count, order.Uint32(b[at+4:]), order.Uint32(b[at+8:]), order.Uint32(b[at+12:]))
		if err != nil {
			return err
		}
		if cmp := bytes.Compare(last, key); (last != nil && (cmp > 0 || cmp == 0 && i > 0)) || (high != nil && bytes.Compare(key, high) >= 0) {
			return damaged("key %q is not where it belongs", key)
		}
		last = key
		below := place(path, key)
		switch {
		case order.Uint32(b[at:])&bucketLeaf != 0:
			err = c.bucket(value, below)
		case bytes.HasPrefix(below, []byte("/"+bucketMeta+"/")):
		default:
			_, err = recordText(below, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *pageCheck) bucket(value, path []byte) error {
	if len(value) < bucketHeader {
		return damaged("bucket %q has %d bytes", path, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return c.walk(root, path, nil, nil)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || order.Uint16(inline[8:]) != leafPage {
		return damaged("bucket %q has no page", path)
	}
	return c.leaf(inline, int(order.Uint16(inline[10:])), path, nil, nil)
}

// span cuts key and value of the element at a place out of a page, behind its count elements.
func span(b []byte, at, count int, offset, keyBytes, valueBytes uint32) (key, value []byte, err error) {
	from := uint64(at) + uint64(offset)
	mid := from + uint64(keyBytes)
	to := mid + uint64(valueBytes)
	if from < uint64(pageHeader+count*elementBytes) || to > uint64(len(b)) {
		return nil, nil, damaged("an element reaches beyond its page")
	}
	return b[from:mid:mid], b[mid:to:to], nil
}

// freelist checks that what is neither tree nor meta is free, and nothing else: a page that is both would be overwritten.
func (c *pageCheck) freelist() error {
	if c.meta.freelist == noFreelist {
		return nil
	}
	b, flags, count, err := c.page(c.meta.freelist)
	if err != nil {
		return err
	}
	ids, n := b[pageHeader:], uint64(count)
	if n == countFollows {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if flags != freelistPage || n > uint64(len(ids)/8) {
		return damaged("the free list has the flags %#x and %d pages", flags, n)
	}
	for i := range n {
		id := order.Uint64(ids[i*8:])
		if id < reservedPages || id >= c.meta.pages || c.seen[id] {
			return damaged("page %d is free and used", id)
		}
		c.seen[id] = true
	}
	if lost := c.meta.pages - reservedPages - uint64(len(c.seen)); lost != 0 {
		return damaged("%d pages are neither used nor free", lost)
	}
	return nil
}
