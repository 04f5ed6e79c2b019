package store

import (
	"errors"
	"io"
	"os"
	"time"
)

const (
	probes     = 64
	slowProbe  = 25 * time.Microsecond // a page from memory takes about 1
	slowAtMost = probes / 16
)

// readAhead brings the first n bytes of a file into the page cache by reading
// them in order. bbolt maps the file for random access, which turns a cold start
// into one page fault after the other: half a minute for a gigabyte that is read
// in a second. A few probes tell whether the file is there already; a wrong
// guess costs time only.
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

// warm reads some pages all over the file and says whether nearly all of them
// came at the speed of memory.
func warm(f *os.File, n int64) bool {
	var page [pageSize]byte
	slow := 0
	for i := range int64(probes) {
		at := (n / probes * i) &^ (pageSize - 1)
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
