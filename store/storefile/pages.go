package storefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"
)

// bbolt trusts the pages of its file: with a damaged one it reads wild memory or
// panics in a goroutine of its own, which cannot be recovered. So the structure is
// checked before bbolt opens the file. The file consists of pages of 4096 bytes,
// with integers in the byte order of the machine:
//
//	 0  u64  page id
//	 8  u16  kind: 1 branch, 2 leaf, 4 meta, 16 free list
//	10  u16  count of elements
//	12  u32  overflow: how many following pages belong to this one
//	16       elements of 16 bytes, then keys and values in the same order
//
//	leaf element:   u32 flags (1 = the value is a bucket), u32 pos, u32 key size, u32 value size
//	branch element: u32 pos, u32 key size, u64 page id of the child
//	meta page:      u32 magic, u32 version, u32 page size, u32 flags, u64 root, u64 sequence,
//	                u64 free list, u64 pages in use, u64 transaction, u64 FNV-1a of these
//
// pos counts from the element itself. A bucket's value is u64 root page and u64
// sequence; with root 0 the bucket is a page that follows in the value.
const (
	pageHeader  = 16
	pageElement = 16
	bucketValue = 16

	pageBranch   = 1
	pageLeaf     = 2
	pageFreelist = 16

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = ^uint64(0)
	maxDepth    = 64
)

var ne = binary.NativeEndian

// PageChecker walks the tree of a bbolt file.
type PageChecker struct {
	f     *os.File
	path  Path
	Pages uint64   // in use by the file
	Size  int64    // bytes of the file
	seen  pageSet  // pages that something refers to
	tree  pageSet  // of these, all but the list of free pages and its pages
	Used  uint64   // pages of seen
	Torn  bool     // one of the two meta pages is damaged
	spare [][]byte // buffers to reuse

	// report, unless nil, is called for every fault, and the walk continues beside
	// it. Otherwise the first fault ends the walk.
	report func(*CorruptError)
	where  [][]byte // keys of the parent buckets
}

func (c *PageChecker) bad(page uint64, format string, args ...any) error {
	e := &CorruptError{File: string(c.path), Part: "page", Offset: int64(page) * PageSize, Reason: fmt.Sprintf(format, args...)}
	ours := func(b []byte) bool { return bytes.Equal(b, c.where[0]) }
	if len(c.where) > 0 && (ours(BucketHistory) || slices.ContainsFunc(buckets, ours)) {
		e.Part += " of " + string(c.where[0])
	}
	if len(c.where) > 1 && len(c.where[1]) == 8 {
		e.Segment = be.Uint64(c.where[1])
	}
	return e
}

// aside reports a fault if it does not end the walk.
func (c *PageChecker) aside(err error) error {
	var ce *CorruptError
	if c.report == nil || !errors.As(err, &ce) {
		return err
	}
	c.report(ce)
	return nil
}

// large is the size of a file that takes seconds to read from a slow disk.
const large = 256 << 20

// checkFile checks the structure of a bbolt file and reads it into the page cache of
// the system.
func (c *PageChecker) checkFile(f *os.File, log *slog.Logger) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() == 0 {
		// A new store gets its name when it is complete, so this file was truncated.
		return fmt.Errorf("%w: %s is empty; restore a backup, or remove it to begin with nothing", ErrNotStore, c.path)
	}
	c.f, c.Size = f, fi.Size()
	root, freelist, err := c.meta(log)
	if err != nil {
		return err
	}
	if int64(c.Pages)*PageSize > c.Size {
		return &CorruptError{
			File: string(c.path), Part: "file", Offset: c.Size,
			Reason: fmt.Sprintf("cut short: %d bytes of %d", c.Size, int64(c.Pages)*PageSize),
		}
	}
	if c.Size >= large {
		log.Info("store: reading and checking the file", "file", string(c.path), "bytes", c.Size)
	}
	if err := readAhead(f, int64(c.Pages)*PageSize); err != nil {
		return fmt.Errorf("reading %s: %w", c.path, err)
	}
	c.seen = make(pageSet, c.Pages/64+1)
	c.seen[0], c.Used = 3, 2 // the meta pages
	if err := c.subtree(root, 0, nil, nil); err != nil {
		return err
	}
	c.tree = c.seen
	if freelist != noFreelist {
		c.tree = slices.Clone(c.seen)
		return c.aside(c.freelist(freelist))
	}
	return nil
}

// meta reads both meta pages and returns root and free list of the newer one.
func (c *PageChecker) meta(log *slog.Logger) (root, freelist uint64, err error) {
	m, other, err := readMetas(c.f)
	if err != nil {
		return 0, 0, err
	}
	c.Pages = m.pages
	switch {
	case !m.valid:
		return 0, 0, fmt.Errorf("%w: %s has no valid meta page", ErrNotStore, c.path)
	case m.version != boltVersion || m.size != PageSize:
		return 0, 0, fmt.Errorf("%w: %s is of bbolt version %d with pages of %d bytes", ErrNotStore, c.path, m.version, m.size)
	case c.Pages > 1<<40:
		return 0, 0, c.bad(0, "%d pages in use", c.Pages)
	}
	if c.Torn = !other.valid; c.Torn {
		// A commit that was cut off while it wrote its meta page looks like this, and
		// was not confirmed. A page that was damaged later looks the same.
		log.Warn("store: one of two meta pages is damaged, using the other; the last commit may be missing", "file", string(c.path))
	}
	return m.root, m.freelist, nil
}

// load reads n bytes from offset from of a page with its overflow.
func (c *PageChecker) load(id uint64, from, n int64) ([]byte, error) {
	return c.loadInto(make([]byte, n), id, from)
}

func (c *PageChecker) loadInto(b []byte, id uint64, from int64) ([]byte, error) {
	if _, err := c.f.ReadAt(b, int64(id)*PageSize+from); err != nil {
		return nil, c.bad(id, "reading: %v", err)
	}
	return b, nil
}

// claim notes that pages [id, id+n) are in use.
func (c *PageChecker) claim(id, n uint64) error {
	if id < 2 || id >= c.Pages || n > c.Pages-id {
		return c.bad(id, "outside of the file (%d pages)", c.Pages)
	}
	for i := id; i < id+n; i++ {
		if c.seen.has(i) {
			return c.bad(i, "used twice")
		}
		c.seen.add(i)
		c.Used++
	}
	return nil
}

// subtree checks a page and the pages below it. Their keys must be at least low and,
// unless that is nil, below high.
func (c *PageChecker) subtree(id uint64, depth int, low, high []byte) error {
	return c.aside(c.page(id, depth, low, high))
}

func (c *PageChecker) page(id uint64, depth int, low, high []byte) error {
	if depth > maxDepth {
		return c.bad(id, "tree is too deep")
	}
	if err := c.claim(id, 1); err != nil {
		return err
	}
	var b []byte
	if n := len(c.spare); n > 0 {
		b, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		b = make([]byte, PageSize)
	}
	defer func(b []byte) { c.spare = append(c.spare, b) }(b) // its keys are the bounds of the pages below
	b, err := c.loadInto(b, id, 0)
	if err != nil {
		return err
	}
	over := uint64(ne.Uint32(b[12:]))
	if ne.Uint64(b) != id {
		return c.bad(id, "says it is page %d", ne.Uint64(b))
	}
	if over > 0 {
		if err := c.claim(id+1, over); err != nil {
			return err
		}
	}
	size := int64(over+1) * PageSize
	end, err := c.elements(id, 0, b, size, depth, low, high)
	if err != nil {
		return err
	}
	if (end+PageSize-1)/PageSize != int64(over)+1 {
		return c.bad(id, "%d bytes in %d pages", end, over+1)
	}
	return nil
}

// elements checks the elements of a page that begins with b and is size bytes
// long, at offset at of page id (not 0 for an inline bucket). It returns the end of
// the last value. Elements have no gaps between them, so a wrong count or length
// is noticed.
func (c *PageChecker) elements(id uint64, at int64, b []byte, size int64, depth int, low, high []byte) (int64, error) {
	kind, count := ne.Uint16(b[8:]), int64(ne.Uint16(b[10:]))
	if kind != pageLeaf && kind != pageBranch {
		return 0, c.bad(id, "is of kind %d", kind)
	}
	pos := pageHeader + count*pageElement
	if pos > size {
		return 0, c.bad(id, "%d elements in %d bytes", count, size)
	}
	if kind == pageBranch && count == 0 {
		return 0, c.bad(id, "branch without children")
	}
	if pos > int64(len(b)) { // the table continues in the overflow
		var err error
		if b, err = c.load(id, at, pos); err != nil {
			return 0, err
		}
	}
	last := low
	var down []childPage
	for i := range count {
		off := pageHeader + i*pageElement
		e := b[off : off+pageElement]
		var p, ks, vs int64
		var flags uint32
		var child uint64
		if kind == pageLeaf {
			flags = ne.Uint32(e)
			p, ks, vs = int64(ne.Uint32(e[4:])), int64(ne.Uint32(e[8:])), int64(ne.Uint32(e[12:]))
		} else {
			p, ks, child = int64(ne.Uint32(e)), int64(ne.Uint32(e[4:])), ne.Uint64(e[8:])
		}
		if off+p != pos || flags > 1 || ks == 0 || pos+ks+vs > size {
			return 0, c.bad(id, "element %d is broken", i)
		}
		key, err := c.span(id, at, b, pos, ks)
		if err != nil {
			return 0, err
		}
		order := bytes.Compare(last, key)
		if order > 0 || (order == 0 && i > 0) || (high != nil && bytes.Compare(key, high) >= 0) {
			return 0, c.bad(id, "element %d is out of order", i)
		}
		last = key
		if kind == pageBranch {
			down = append(down, childPage{child, key})
		} else if flags == 1 {
			c.where = append(c.where, key)
			err := c.bucket(id, at, b, pos+ks, vs, depth)
			c.where = c.where[:len(c.where)-1]
			if err != nil {
				return 0, err
			}
		}
		pos += ks + vs
	}
	for i, d := range down {
		next := high
		if i+1 < len(down) {
			next = down[i+1].key
		}
		if err := c.subtree(d.id, depth+1, d.key, next); err != nil {
			return 0, err
		}
	}
	return pos, nil
}

// childPage is an element of a branch.
type childPage struct {
	id  uint64
	key []byte
}

// span returns bytes [pos, pos+n) of a page, of which b is the beginning.
func (c *PageChecker) span(id uint64, at int64, b []byte, pos, n int64) ([]byte, error) {
	if pos+n <= int64(len(b)) {
		return b[pos : pos+n], nil
	}
	return c.load(id, at+pos, n)
}

func (c *PageChecker) bucket(id uint64, at int64, b []byte, pos, n int64, depth int) error {
	if n < bucketValue {
		return c.bad(id, "bucket of %d bytes", n)
	}
	v, err := c.span(id, at, b, pos, n)
	if err != nil {
		return err
	}
	if root := ne.Uint64(v); root != 0 {
		if n != bucketValue {
			return c.bad(id, "bucket of %d bytes", n)
		}
		return c.subtree(root, depth+1, nil, nil)
	}
	in := v[bucketValue:]
	if len(in) < pageHeader || ne.Uint16(in[8:]) != pageLeaf || depth > maxDepth {
		return c.bad(id, "broken inline bucket")
	}
	end, err := c.elements(id, at+pos+bucketValue, in, int64(len(in)), depth+1, nil, nil)
	if err == nil && end != int64(len(in)) {
		return c.bad(id, "inline bucket has %d bytes too many", int64(len(in))-end)
	}
	return err
}

// freelist checks a stored list of free pages. Our files have none after their first
// commit, but a file that a bbolt tool rewrote has one.
func (c *PageChecker) freelist(id uint64) error {
	if err := c.claim(id, 1); err != nil {
		return err
	}
	b, err := c.load(id, 0, PageSize)
	if err != nil {
		return err
	}
	over, n, at := uint64(ne.Uint32(b[12:])), uint64(ne.Uint16(b[10:])), int64(pageHeader)
	if ne.Uint64(b) != id || ne.Uint16(b[8:]) != pageFreelist {
		return c.bad(id, "is not the free list")
	}
	if over > 0 {
		if err := c.claim(id+1, over); err != nil {
			return err
		}
	}
	if n == 0xFFFF {
		n, at = ne.Uint64(b[at:]), at+8
	}
	if n > (over+1)*PageSize/8 || at+int64(n)*8 > int64(over+1)*PageSize {
		return c.bad(id, "free list of %d pages", n)
	}
	if b, err = c.load(id, at, int64(n)*8); err != nil {
		return err
	}
	for i := range n {
		if err := c.claim(ne.Uint64(b[8*i:]), 1); err != nil {
			return err
		}
		c.Used--
	}
	return nil
}

// pageSet is a set of pages, a bit for each.
type pageSet []uint64

func (s pageSet) has(id uint64) bool { return id/64 < uint64(len(s)) && s[id/64]>>(id%64)&1 != 0 }

func (s *pageSet) add(id uint64) {
	for uint64(len(*s)) <= id/64 {
		*s = append(*s, 0)
	}
	(*s)[id/64] |= 1 << (id % 64)
}

// remove removes a page that is in the set.
func (s pageSet) remove(id uint64) { s[id/64] &^= 1 << (id % 64) }

const (
	probes     = 64
	slowProbe  = 25 * time.Microsecond // a page from memory takes about 1
	slowAtMost = probes / 16
)

// readAhead reads the first n bytes of a file in order, so that they are in the page
// cache. bbolt maps the file for random access, and a cold start would cause one page
// fault after the other: half a minute for a gigabyte that can be read in a second.
// A few probes estimate whether the file is cached already; a wrong guess only costs
// time.
func readAhead(f *os.File, n int64) error {
	if n < 1<<20 || warm(f, n) {
		return nil
	}
	buf := make([]byte, 1<<20)
	_, err := io.CopyBuffer(onlyWriter{}, onlyReader{io.NewSectionReader(f, 0, n)}, buf)
	return err
}

// onlyWriter and onlyReader keep io.Copy from shortcuts around the buffer.
type onlyWriter struct{}

func (onlyWriter) Write(b []byte) (int, error) { return len(b), nil }

type onlyReader struct{ io.Reader }

// warm reads some pages across the file and reports whether nearly all of them came
// at the speed of memory.
func warm(f *os.File, n int64) bool {
	var page [PageSize]byte
	slow := 0
	for i := range int64(probes) {
		at := (n / probes * i) &^ (PageSize - 1)
		start := time.Now()
		if _, err := f.ReadAt(page[:], at); err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		if time.Since(start) > slowProbe {
			slow++
		}
	}
	return slow <= slowAtMost
}
