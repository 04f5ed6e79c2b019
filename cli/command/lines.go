package command

import (
	"bufio"
	"errors"
	"io"
	"iter"
)

// ErrLineTooLong is yielded by Lines for a line of more bytes than it may have.
var ErrLineTooLong = errors.New("the line is too long")

// Lines yields the lines of in with their ends, or the error that ended reading. A
// line stays as it is until the next one is asked for.
func Lines(in io.Reader, most int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		reader := bufio.NewReaderSize(in, 1<<20)
		var long []byte // what there is of a line that the reader's buffer cannot hold
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
