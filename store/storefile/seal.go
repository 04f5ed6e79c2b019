package storefile

import (
	"bytes"
	"cmp"
	"hash/fnv"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// A seal is in the meta page of a commit, behind what bbolt uses and writes:
//
//	512  "seal"
//	     u32 number of runs
//	     u64 transaction
//	     u64 xxhash64 of bbolt's part, of the seal before this, of the runs, and of their pages
//	     for each run of pages that the commit wrote: u64 first page, u64 number of pages
//
// Integers are little endian. A seal without runs says that the pages were synced before it
// was written. The number of a transaction is used again after a commit that was cut off, so a
// seal of the one does not fit the meta page of the other.
const (
	sealAt   = 512 // a sector of its own: bbolt's part is whole or not, whatever happens to the seal
	sealHead = 4 + 4 + 8 + 8
	runSize  = 8 + 8
	maxRuns  = (PageSize - sealAt - sealHead) / runSize

	metaSize = pageHeader + 64 // what bbolt uses of a meta page
)

var sealMark = []byte("seal")

// run is a number of successive pages.
type run struct{ first, pages uint64 }

// metaPage is one of the two meta pages of a file.
type metaPage struct {
	id    uint64
	page  []byte
	valid bool // bbolt's part

	root, freelist, pages, txid uint64
	version, size               uint32
}

// readMeta reads a meta page into a buffer. A file may end within it.
func readMeta(f io.ReaderAt, id uint64, page []byte) (m metaPage, err error) {
	clear(page)
	m = metaPage{id: id, page: page}
	n, err := f.ReadAt(m.page, int64(id)*PageSize)
	if err != nil && err != io.EOF { //nolint:errorlint // ReadAt returns it as it is
		return m, err
	}
	b := m.page[pageHeader:metaSize]
	m.valid = n >= metaSize && ne.Uint32(b) == boltMagic && ne.Uint64(b[56:]) == metaSum(b)
	m.version, m.size = ne.Uint32(b[4:]), ne.Uint32(b[8:])
	m.root, m.freelist = ne.Uint64(b[16:]), ne.Uint64(b[32:])
	m.pages, m.txid = ne.Uint64(b[40:]), ne.Uint64(b[48:])
	return m, nil
}

// metaSum is bbolt's checksum of a meta page.
func metaSum(meta []byte) uint64 {
	h := fnv.New64a()
	h.Write(meta[:56]) //nolint:errcheck // a hash never fails
	return h.Sum64()
}

// readMetas returns the meta pages of a file, the one of the newest commit first.
func readMetas(f io.ReaderAt) (newest, other metaPage, err error) {
	if newest, err = readMeta(f, 0, make([]byte, PageSize)); err != nil {
		return newest, other, err
	}
	if other, err = readMeta(f, 1, make([]byte, PageSize)); err != nil {
		return newest, other, err
	}
	if !newest.valid || other.valid && other.txid > newest.txid {
		newest, other = other, newest
	}
	return newest, other, nil
}

// sealed reports whether the page has a seal of its transaction. It does not read the pages of
// the seal.
func (m *metaPage) sealed() bool {
	s := m.page[sealAt:]
	return m.valid && bytes.Equal(s[:4], sealMark) && le.Uint64(s[8:]) == m.txid && le.Uint32(s[4:]) <= maxRuns
}

// whole reports whether the page has a seal of its transaction, and the pages of the seal are
// those that the commit wrote.
func (m *metaPage) whole(f io.ReaderAt) (bool, error) {
	if !m.sealed() {
		return false, nil
	}
	s := m.page[sealAt:]
	runs := make([]run, le.Uint32(s[4:]))
	for i := range runs {
		b := s[sealHead+i*runSize:]
		runs[i] = run{le.Uint64(b), le.Uint64(b[8:])}
		if r := runs[i]; r.first >= m.pages || r.pages > m.pages-r.first {
			return false, nil
		}
	}
	sum, err := m.sealSum(f, s, runs, make([]byte, sumBuffer))
	return sum == le.Uint64(s[16:]), err
}

// makeSeal makes a seal in dst. It reads the pages of the runs from the file into a buffer.
func (m *metaPage) makeSeal(dst []byte, f io.ReaderAt, runs []run, buf []byte) ([]byte, error) {
	dst = le.AppendUint32(append(dst[:0], sealMark...), uint32(len(runs)))
	dst = le.AppendUint64(le.AppendUint64(dst, m.txid), 0)
	for _, r := range runs {
		dst = le.AppendUint64(le.AppendUint64(dst, r.first), r.pages)
	}
	sum, err := m.sealSum(f, dst, runs, buf)
	le.PutUint64(dst[16:], sum)
	return dst, err
}

// sumBuffer is the size of a buffer for the pages that a checksum is about.
const sumBuffer = 64 << 10

// sealSum returns the checksum of a seal.
func (m *metaPage) sealSum(f io.ReaderAt, seal []byte, runs []run, buf []byte) (uint64, error) {
	var sum xxhash.Digest
	sum.Reset()
	sum.Write(m.page[pageHeader:metaSize])                 //nolint:errcheck // a hash never fails
	sum.Write(seal[:16])                                   //nolint:errcheck // see above
	sum.Write(seal[sealHead : sealHead+len(runs)*runSize]) //nolint:errcheck // see above
	for _, r := range runs {
		for at, end := int64(r.first)*PageSize, int64(r.first+r.pages)*PageSize; at < end; {
			b := buf[:min(int64(len(buf)), end-at)]
			if _, err := f.ReadAt(b, at); err != nil {
				return 0, err
			}
			sum.Write(b) //nolint:errcheck // see above
			at += int64(len(b))
		}
	}
	return sum.Sum64(), nil
}

// sizedReader is an [os.File].
type sizedReader interface {
	io.ReaderAt
	Stat() (os.FileInfo, error)
}

// dropTorn returns the meta page of the newest commit as it must become, or nil to leave it as
// it is. The newest commit is dropped if it is not complete, as after a failure of the
// machine, and was therefore not confirmed: its pages do not match its seal, or it has none,
// while the commit before it has one that matches. Nothing has written to the pages of that
// commit after it was on disk.
//
// A page with a seal becomes invalid, and is reported like any damaged meta page, because the
// pages of the commit may have been damaged later. A page without one becomes a copy of the
// other page with an older transaction.
//
// A file that is cut short was cut later, since a commit syncs the size of the file before it
// writes.
func dropTorn(f sizedReader) (page []byte, err error) {
	newest, other, err := readMetas(f)
	if err != nil || !newest.valid || !other.valid || newest.txid != other.txid+1 {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil || max(newest.pages, other.pages) > uint64(fi.Size())/PageSize {
		return nil, err
	}
	if whole, err := newest.whole(f); whole || err != nil {
		return nil, err // a page that cannot be read does not show that the commit was cut off
	}
	if whole, err := other.whole(f); !whole || err != nil {
		return nil, err
	}
	page = newest.page
	sum := pageHeader + 56
	if newest.sealed() {
		ne.PutUint64(page[sum:], ^ne.Uint64(page[sum:]))
		return page, nil
	}
	clear(page[metaSize:])
	copy(page[pageHeader:metaSize], other.page[pageHeader:])
	ne.PutUint64(page[pageHeader+48:], other.txid-1)
	ne.PutUint64(page[sum:], metaSum(page[pageHeader:metaSize]))
	return page, nil
}

// wipeSeal removes the seal of a meta page.
func wipeSeal(f io.WriterAt, m *metaPage) error {
	_, err := f.WriteAt(make([]byte, PageSize-sealAt), int64(m.id)*PageSize+sealAt)
	return err
}

// mergeRuns sorts runs and joins neighbours.
func mergeRuns(runs []run) []run {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	out := runs[:0]
	for _, r := range runs {
		if n := len(out); n > 0 && out[n-1].first+out[n-1].pages == r.first {
			out[n-1].pages += r.pages
			continue
		}
		out = append(out, r)
	}
	return out
}
