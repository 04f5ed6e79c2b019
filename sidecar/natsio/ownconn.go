package natsio

import (
	"net"
	"os"
	"sync"
	"time"
)

const (
	// mostAhead is how many unparsed bytes fila's own connection to the embedded server holds
	// before the server has to wait. A burst of 100,000 messages of 1 KiB, which fila promises
	// to take, is less.
	mostAhead = 256 << 20
	// mostBehind is how many bytes it holds that the server has not read, before fila has to wait.
	mostBehind = 1 << 20
	// chunkSize is the size of the chunks of held bytes. Growing never copies them, which would
	// make the other end wait.
	chunkSize = 64 << 10
	// spareChunks is how many chunks are kept for the next burst.
	spareChunks = 16
)

// ownConn is fila's own connection to the embedded server, a net.Pipe, with bytes held in both
// directions:
//
//   - The embedded server disconnects clients that do not keep up. This must never happen to
//     fila, however long the client library takes to parse a burst.
//   - The client library writes while it holds the lock that every publish needs, and the server
//     reads when it has routed what it read before. Without held bytes all publishers would wait
//     for the routing.
type ownConn struct {
	net.Conn
	in, out *byteQueue
	current []byte // chunk that Read returns; used by Read only
	rest    []byte // unread part of current
}

// newOwnConn returns a connection that holds up to so many bytes of conn in each direction.
func newOwnConn(conn net.Conn, ahead, behind int) *ownConn {
	c := &ownConn{Conn: conn, in: newByteQueue(ahead), out: newByteQueue(behind)}
	go c.fill()
	go c.drain()
	return c
}

// fill reads the connection.
func (c *ownConn) fill() {
	buf := make([]byte, chunkSize)
	for {
		n, err := c.Conn.Read(buf)
		if _, full := c.in.put(buf[:n]); full != nil {
			return
		}
		if err != nil {
			c.in.end(err)
			return
		}
	}
}

// drain writes the connection, and closes it at the end.
func (c *ownConn) drain() {
	defer func() { _ = c.Conn.Close() }() // of a pipe, which has no errors
	var chunk []byte
	for {
		var err error
		if chunk, err = c.out.next(chunk); err == nil {
			_, err = c.Conn.Write(chunk)
		}
		if err != nil {
			c.out.end(err)
			return
		}
	}
}

func (c *ownConn) Read(p []byte) (n int, err error) {
	if len(c.rest) == 0 {
		if c.current, err = c.in.next(c.current); err != nil {
			return 0, err
		}
		c.rest = c.current
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write returns when p is held.
func (c *ownConn) Write(p []byte) (int, error) { return c.out.put(p) }

func (c *ownConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *ownConn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

// SetWriteDeadline does nothing: a server in this process reads until it closes the connection.
func (*ownConn) SetWriteDeadline(time.Time) error { return nil }

// Close ends Read and Write. What Write holds is still sent if the server reads it soon.
func (c *ownConn) Close() error {
	c.in.end(net.ErrClosed)
	c.out.end(net.ErrClosed)
	_ = c.Conn.SetWriteDeadline(time.Now().Add(closeTimeout)) // an error means that it is closed
	return nil
}

// byteQueue passes bytes from one goroutine to another, in chunks.
type byteQueue struct {
	most   int // bytes that are held
	change *sync.Cond

	mu struct {
		sync.Mutex
		chunks   [][]byte
		held     int // bytes of chunks
		spare    [][]byte
		err      error     // after chunks
		deadline time.Time // of next
	}
}

func newByteQueue(most int) *byteQueue {
	q := &byteQueue{most: most}
	q.change = sync.NewCond(&q.mu)
	return q
}

// put appends bytes, and waits while the queue is full. It returns how many it has appended.
func (q *byteQueue) put(b []byte) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(b) {
		for q.mu.held >= q.most || q.mu.err != nil {
			if err := q.wait(time.Time{}); err != nil {
				return n, err
			}
		}
		part := b[n:min(n+chunkSize, len(b))]
		q.append(part)
		n += len(part)
		q.change.Broadcast()
	}
	return n, nil
}

// append appends up to one chunk.
func (q *byteQueue) append(b []byte) {
	q.mu.held += len(b)
	if n := len(q.mu.chunks); n > 0 && len(q.mu.chunks[n-1])+len(b) <= chunkSize {
		q.mu.chunks[n-1] = append(q.mu.chunks[n-1], b...)
		return
	}
	var chunk []byte
	if n := len(q.mu.spare); n > 0 {
		chunk, q.mu.spare = q.mu.spare[n-1], q.mu.spare[:n-1]
	} else {
		chunk = make([]byte, 0, chunkSize)
	}
	q.mu.chunks = append(q.mu.chunks, append(chunk, b...))
}

// next waits for a chunk until the deadline. done is the previous one, which it reuses.
func (q *byteQueue) next(done []byte) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if cap(done) > 0 && len(q.mu.spare) < spareChunks {
		q.mu.spare = append(q.mu.spare, done[:0])
	}
	for len(q.mu.chunks) == 0 {
		if err := q.wait(q.mu.deadline); err != nil {
			return nil, err
		}
	}
	chunk := q.mu.chunks[0]
	q.mu.chunks[0], q.mu.chunks = nil, q.mu.chunks[1:]
	q.mu.held -= len(chunk)
	q.change.Broadcast()
	return chunk, nil
}

// wait waits for a change. It returns an error after the end and after the deadline, if there is
// one. The caller holds mu.
func (q *byteQueue) wait(deadline time.Time) error {
	if q.mu.err != nil {
		return q.mu.err
	}
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		timer := time.AfterFunc(left, func() {
			q.mu.Lock() // so that the caller waits already
			defer q.mu.Unlock()
			q.change.Broadcast()
		})
		defer timer.Stop()
	}
	q.change.Wait()
	return nil
}

// setDeadline bounds the waiting of next; zero is no bound.
func (q *byteQueue) setDeadline(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.deadline = t
	q.change.Broadcast()
}

// end refuses further bytes with err, unless another error came first. Held bytes can still be
// taken.
func (q *byteQueue) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.err == nil {
		q.mu.err = err
	}
	q.change.Broadcast()
}
