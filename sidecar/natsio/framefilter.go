package natsio

import (
	"bytes"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/filaq/fila/wire"
)

// HeaderLimits bound the header block of a message from a client.
type HeaderLimits struct {
	Bytes int // of the block: status line, names, values and line ends
	Count int // lines after the status line
}

const (
	// firstBuffer is how much a frameFilter reads at once. A message with a larger control
	// line or header block makes its buffer grow to the size of these.
	firstBuffer = 32 << 10
	// maxControlLine bounds a line of the NATS protocol. The longest is INFO of a server in
	// a large cluster.
	maxControlLine = 1 << 20

	// headerRefused is the only header of a message whose headers a frameFilter has
	// removed: "bytes N" or "headers N".
	headerRefused = "Fila-Headers-Refused"
	refusedBytes  = "bytes"
	refusedCount  = "headers"
)

// frameFilter is a connection from a NATS server that bounds the headers of messages.
// nats.go parses headers in the goroutine that reads the connection, so that one message
// with many of them delays all others.
//
// A message within the limits passes unchanged. Of one beyond them the subject, the
// subscription and the reply subject pass, with the header [headerRefused] in the place of
// headers and payload, so that its handler can refuse it.
//
// Until the client writes, or TLS is made, a Read returns one line at most: nats.go reads
// INFO, and nothing that came with it before TLS may count as if TLS had brought it.
//
// Only the goroutine that reads the connection calls Read. What is no frame that the
// filter understands, and all that follows, passes unchanged: nats.go reports it.
type frameFilter struct {
	net.Conn
	limits HeaderLimits
	begun  atomic.Bool // the client has written, or TLS is made

	// buf[read:approved] is to be passed on, then substitute, and then the next discard
	// bytes are dropped. buf[approved:end] is not inspected yet, unless pass > 0: then the
	// buffer is empty, and the next pass bytes of the connection are passed on.
	buf                 []byte
	read, approved, end int
	substitute          []byte
	discard             int
	pass                int
}

func newFrameFilter(conn net.Conn, limits HeaderLimits) *frameFilter {
	return &frameFilter{Conn: conn, limits: limits, buf: make([]byte, firstBuffer)}
}

// Read returns the next bytes that may pass.
func (f *frameFilter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case f.read < f.approved:
			next := f.buf[f.read:f.approved]
			if i := bytes.IndexByte(next, '\n'); i >= 0 && !f.begun.Load() {
				next = next[:i+1]
			}
			n := copy(p, next)
			f.read += n
			return n, nil
		case len(f.substitute) > 0:
			n := copy(p, f.substitute)
			f.substitute = f.substitute[n:]
			return n, nil
		case f.discard > 0 && f.read < f.end:
			n := min(f.discard, f.end-f.read)
			f.discard -= n
			f.read += n
			f.approved = f.read
			continue
		case f.pass > 0:
			n, err := f.Conn.Read(p[:min(len(p), f.pass)])
			f.pass -= n
			return n, err
		}
		if f.inspect() {
			continue
		}
		if err := f.fill(); err != nil {
			return 0, err
		}
	}
}

// Write writes to the connection.
func (f *frameFilter) Write(p []byte) (int, error) {
	if !f.begun.Load() {
		f.begun.Store(true)
	}
	return f.Conn.Write(p)
}

// secure notes that the connection has TLS from now on. It reports whether all that came
// without TLS was read.
func (f *frameFilter) secure(conn net.Conn) bool {
	f.Conn = conn
	f.begun.Store(true)
	return f.read == f.end && len(f.substitute) == 0 && f.discard == 0 && f.pass == 0
}

// fill reads more behind what is not inspected yet.
func (f *frameFilter) fill() error {
	f.end = copy(f.buf, f.buf[f.read:f.end])
	f.read, f.approved = 0, 0
	if f.end == len(f.buf) {
		f.buf = append(f.buf, make([]byte, len(f.buf))...)
	}
	n, err := f.Conn.Read(f.buf[f.end:])
	f.end += n
	if n > 0 {
		return nil // the connection repeats its error
	}
	return err
}

// inspect looks at complete control lines and header blocks, and reports whether there is
// something to do before more has to be read.
func (f *frameFilter) inspect() bool {
	for f.discard == 0 && f.pass == 0 && f.approved < f.end {
		if !f.inspectFrame() {
			break
		}
	}
	return f.read < f.approved || len(f.substitute) > 0 || f.discard > 0 && f.read < f.end || f.pass > 0
}

// inspectFrame decides about the frame at approved. False: it needs more bytes for that.
func (f *frameFilter) inspectFrame() bool {
	rest := f.buf[f.approved:f.end]
	i := bytes.IndexByte(rest, '\n')
	if i < 0 {
		if len(rest) < maxControlLine {
			return false
		}
		f.passAll()
		return true
	}
	line := rest[:i+1]
	switch {
	case isOp(line, "MSG"):
		if _, size, ok := lastNumber(line); ok {
			f.approve(len(line) + size + len("\r\n"))
		} else {
			f.passAll()
		}
	case isOp(line, "HMSG"):
		return f.inspectHeaders(line, rest[i+1:])
	default:
		f.approve(len(line))
	}
	return true
}

// inspectHeaders decides about the frame of a message with headers: line is its control
// line, and body is what has come behind it. False: it needs more bytes for that.
func (f *frameFilter) inspectHeaders(line, body []byte) bool {
	before, size, ok := lastNumber(line)
	args, header, also := lastNumber(before)
	if !ok || !also || header > size || len(bytes.Fields(args)) < 3 { // HMSG, subject and subscription
		f.passAll()
		return true
	}
	frame := len(line) + size + len("\r\n")
	if header > f.limits.Bytes {
		f.refuse(args, refusedBytes, header, frame)
		return true
	}
	if len(body) < header {
		return false
	}
	// The first line has the version and the last one is empty.
	if n := bytes.Count(body[:header], []byte{'\n'}) - 2; n > f.limits.Count {
		f.refuse(args, refusedCount, n, frame)
	} else {
		f.approve(frame)
	}
	return true
}

// approve lets the next n bytes pass, which may go beyond the buffer.
func (f *frameFilter) approve(n int) {
	f.pass = max(0, n-(f.end-f.approved))
	f.approved += n - f.pass
}

// passAll lets everything pass from now on.
func (f *frameFilter) passAll() { f.approve(math.MaxInt) }

// refuse puts a message without payload, whose only header says why, in the place of the
// next n bytes. args is the control line without the two sizes.
func (f *frameFilter) refuse(args []byte, what string, is, n int) {
	header := "NATS/1.0\r\n" + headerRefused + ": " + what + " " + strconv.Itoa(is) + "\r\n\r\n"
	size := strconv.Itoa(len(header))
	f.substitute = slices.Concat(args, []byte(" "+size+" "+size+"\r\n"+header+"\r\n"))
	f.discard = n
}

// isOp reports whether a control line begins with an operation.
func isOp(line []byte, op string) bool {
	return len(line) > len(op) && isSpace(line[len(op)]) && bytes.EqualFold(line[:len(op)], []byte(op))
}

// lastNumber reads the last field of a line, and returns what is before it without spaces
// at the end.
func lastNumber(line []byte) (before []byte, number int, ok bool) {
	line = trimRight(line)
	i := len(line)
	for i > 0 && !isSpace(line[i-1]) {
		i--
	}
	const digits = 10 // NATS bounds messages by 64 MiB
	if len(line)-i > digits || len(line) == i {
		return nil, 0, false
	}
	for _, c := range line[i:] {
		if c < '0' || c > '9' {
			return nil, 0, false
		}
		number = number*10 + int(c-'0')
	}
	return trimRight(line[:i]), number, true
}

func trimRight(line []byte) []byte {
	for len(line) > 0 && isSpace(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	return line
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// refusedHeaders returns the error for a message whose headers a [frameFilter] has
// removed, and otherwise nil.
func (f *Front) refusedHeaders(h map[string][]string) *wire.Error {
	if len(h) != 1 || len(h[headerRefused]) != 1 {
		return nil
	}
	what, number, _ := strings.Cut(h[headerRefused][0], " ")
	is, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return nil
	case what == refusedBytes:
		return wire.HeadersTooLarge(is, f.Headers.Bytes)
	case what == refusedCount:
		return wire.TooManyHeaders(is, f.Headers.Count)
	}
	return nil
}
