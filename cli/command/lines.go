package command

import (
	"bufio"
	"errors"
	"io"
	"iter"
)

// ErrLineTooLong is the error of Lines for a line over the maximum.
var ErrLineTooLong = errors.New("the line is too long")

// Lines yields the lines of in with their ends, or the error that ended reading. A line is
// valid until the next iteration.
func Lines(in io.Reader, most int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		reader := bufio.NewReaderSize(in, 1<<20)
		var long []byte // the start of a line longer than the reader's buffer
		for {
			line, err := reader.ReadSlice('\n')
			full := errors.Is(err, bufio.ErrBufferFull)
			if full || len(long) > 0 {
				long = append(long, line...)
				line = long
			}
			switch {
			case len(line) > most:
				yield(nil, ErrLineTooLong)
				return
			case full:
				continue
			case err != nil && !errors.Is(err, io.EOF):
				yield(nil, err)
				return
			}
			if len(line) > 0 && !yield(line, nil) || err != nil {
				return
			}
			long = long[:0]
		}
	}
}
