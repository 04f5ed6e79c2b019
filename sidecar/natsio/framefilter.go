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

const (
	// firstBuffer is the size of the buffer of a frameFilter. A message with a larger control
	// line or header block makes it grow.
	firstBuffer = 32 << 10
	// maxControlLine bounds a line of the NATS protocol. The longest is INFO of a server in a
	// large cluster.
	maxControlLine = 1 << 20

	// headerRefused is the only header of a message whose headers a frameFilter has removed.
	// Its value is "bytes N" or "headers N".
	headerRefused = "Fila-Headers-Refused"
	refusedBytes  = "bytes"
	refusedCount  = "headers"
)

// frameFilter is a connection from a NATS server that bounds the headers of messages. nats.go
// parses headers in the goroutine that reads the connection, so one message with many headers
// would delay all others.
//
// Messages within the limits pass unchanged. Of others, the filter passes the subject, the
// subscription and the reply subject, and replaces headers and payload by the header
// [headerRefused], so that the handler can refuse the message.
//
// Until the client writes, or the TLS handshake is done, a Read returns at most one line: nats.go
// reads INFO, and must not treat bytes that came before TLS as if TLS had protected them.
//
// Only the goroutine that reads the connection calls Read. From the first frame on that the
// filter does not understand, everything passes unchanged, and nats.go reports the error.
type frameFilter struct {
	net.Conn
	limits wire.HeaderLimits
	begun  atomic.Bool // the client has written, or the TLS handshake is done

	// Read passes buf[read:approved], then substitute, and then drops the next discard bytes.
	// buf[approved:end] is not inspected yet. If pass > 0 the buffer is empty, and the next
	// pass bytes of the connection are passed without inspection.
	buf                 []byte
	read, approved, end int
	substitute          []byte
	discard             int
	pass                int
}

func newFrameFilter(conn net.Conn, limits wire.HeaderLimits) *frameFilter {
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

func (f *frameFilter) Write(p []byte) (int, error) {
	if !f.begun.Load() {
		f.begun.Store(true)
	}
	return f.Conn.Write(p)
}

// secure switches to a connection with TLS. It reports false if bytes that came without TLS have
// not been read.
func (f *frameFilter) secure(conn net.Conn) bool {
	f.Conn = conn
	f.begun.Store(true)
	return f.read == f.end && len(f.substitute) == 0 && f.discard == 0 && f.pass == 0
}

// fill reads more bytes into the buffer.
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

// inspect inspects complete control lines and header blocks. It reports false if more bytes have
// to be read first.
func (f *frameFilter) inspect() bool {
	for f.discard == 0 && f.pass == 0 && f.approved < f.end {
		if !f.inspectFrame() {
			break
		}
	}
	return f.read < f.approved || len(f.substitute) > 0 || f.discard > 0 && f.read < f.end || f.pass > 0
}

// inspectFrame decides about the frame at approved. It reports false if it needs more bytes.
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

// inspectHeaders decides about a message with headers, given its control line and what follows
// in the buffer. It reports false if it needs more bytes.
func (f *frameFilter) inspectHeaders(line, body []byte) bool {
	before, size, ok := lastNumber(line)
	args, header, also := lastNumber(before)
	fields := 0 // HMSG, subject, subscription and perhaps a reply subject
	for range bytes.FieldsSeq(args) {
		fields++
	}
	if !ok || !also || header > size || fields < 3 {
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

// approve passes the next n bytes, possibly beyond the buffer.
func (f *frameFilter) approve(n int) {
	f.pass = max(0, n-(f.end-f.approved))
	f.approved += n - f.pass
}

// passAll passes everything from now on.
func (f *frameFilter) passAll() { f.approve(math.MaxInt) }

// refuse replaces the next n bytes by a message without payload whose only header has the reason.
// args is the control line without the two sizes.
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

// lastNumber returns the number in the last field of a line, and the line before it without
// trailing spaces.
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

// refusedHeaders returns the error for a message whose headers a [frameFilter] has removed,
// otherwise nil.
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
