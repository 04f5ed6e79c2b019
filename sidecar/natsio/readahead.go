package natsio

import (
	"net"
	"os"
	"sync"
	"time"
)

const (
	// ownMaxPending is how many unparsed bytes fila's own connection to the embedded server
	// holds before the server has to wait. A burst of 100,000 messages of 1 KiB, which fila
	// promises to take, is less.
	ownMaxPending = 256 << 20
	// aheadChunk is the size of the chunks of held bytes. Growing never copies them, which
	// would make the server wait.
	aheadChunk = 64 << 10
	// spareChunks is how many chunks are kept for the next burst.
	spareChunks = 16
)

// readAhead is a connection that reads up to most bytes ahead of its reader. The embedded server
// disconnects clients that do not keep up. This must never happen to fila's own connection,
// however long the client library takes to parse a burst.
type readAhead struct {
	net.Conn
	most    int    // bytes that are read ahead
	current []byte // chunk that Read returns; used by Read only
	rest    []byte // unread part of current

	mu       sync.Mutex
	change   *sync.Cond
	came     [][]byte // chunks after current
	ahead    int      // bytes of came
	spare    [][]byte
	err      error // after came
	deadline time.Time
	timer    *time.Timer // wakes Read at the deadline
}

// newReadAhead returns a connection that reads conn until Close or an error.
func newReadAhead(conn net.Conn, most int) *readAhead {
	r := &readAhead{Conn: conn, most: most}
	r.change = sync.NewCond(&r.mu)
	go r.fill()
	return r
}

// fill reads the connection.
func (r *readAhead) fill() {
	buf := make([]byte, aheadChunk)
	for {
		n, err := r.Conn.Read(buf)
		r.mu.Lock()
		for r.ahead >= r.most && r.err == nil {
			r.change.Wait()
		}
		if n > 0 {
			r.append(buf[:n])
		}
		if r.err == nil {
			r.err = err
		}
		err = r.err
		r.mu.Unlock()
		r.change.Broadcast()
		if err != nil {
			return
		}
	}
}

// append appends up to one chunk to came.
func (r *readAhead) append(b []byte) {
	r.ahead += len(b)
	if n := len(r.came); n > 0 && len(r.came[n-1])+len(b) <= aheadChunk {
		r.came[n-1] = append(r.came[n-1], b...)
		return
	}
	var chunk []byte
	if n := len(r.spare); n > 0 {
		chunk, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		chunk = make([]byte, 0, aheadChunk)
	}
	r.came = append(r.came, append(chunk, b...))
}

func (r *readAhead) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for a chunk and makes it current.
func (r *readAhead) next() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.came) == 0 {
		switch {
		case r.err != nil:
			return r.err
		case !r.deadline.IsZero() && !time.Now().Before(r.deadline):
			return os.ErrDeadlineExceeded
		}
		r.change.Wait()
	}
	if r.current != nil && len(r.spare) < spareChunks {
		r.spare = append(r.spare, r.current[:0])
	}
	r.current, r.came[0], r.came = r.came[0], nil, r.came[1:]
	r.rest = r.current
	r.ahead -= len(r.current)
	r.change.Broadcast()
	return nil
}

func (r *readAhead) SetDeadline(t time.Time) error {
	if err := r.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return r.SetReadDeadline(t)
}

// SetReadDeadline bounds Read, but not the reading ahead.
func (r *readAhead) SetReadDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if !t.IsZero() {
		r.timer = time.AfterFunc(time.Until(t), r.change.Broadcast)
	}
	r.change.Broadcast()
	return nil
}

func (r *readAhead) Close() error {
	err := r.Conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = net.ErrClosed
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.change.Broadcast()
	return err
}
