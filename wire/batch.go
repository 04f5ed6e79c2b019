package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A batch is a NATS message that carries several messages of one queue. Its payload has for
// each of them, with lengths as big-endian 32-bit numbers:
//
//	+--------------+--------------+---------+---------+
//	| len(headers) | len(payload) | headers | payload |  ...
//	+--------------+--------------+---------+---------+
//
// Headers are lines "Name: value\r\n", as in NATS without its status line; no headers are no
// bytes.

// Headers of a batch.
const (
	HeaderBatch       = "Fila-Batch"        // the number of its messages
	HeaderBatchAtomic = "Fila-Batch-Atomic" // "true": all messages are accepted, or none
)

// MaxBatchMessages is the largest number of messages in a batch.
const MaxBatchMessages = 1000

// batchHead is the length of the two numbers in front of a message.
const batchHead = 8

// HeaderLimits bound the headers of a message from a client.
type HeaderLimits struct {
	Bytes int // of the block: status line, names, values and line ends
	Count int // lines after the status line
}

// Batch says that an enqueue is a batch.
type Batch struct {
	Messages int // 1 to MaxBatchMessages
	Atomic   bool
}

// BatchMessage is a message of a batch.
type BatchMessage struct {
	Header HeaderLines
	Data   []byte
	Err    *Error // if a length is wrong; then the others are nil
}

// HeaderLines are the headers of a message in a batch, as they came.
type HeaderLines []byte

// batchFields are the headers of a batch.
type batchFields struct{ number, atomic field }

// parse checks the headers of a batch, which go with no others.
func (f *batchFields) parse(all *enqueueFields) (*Batch, *Error) {
	if all.others > 0 || all.msgID.set || all.delay.set || all.notBefore.set || all.ttl.set || all.schedule != nil {
		return nil, BadBatch("headers of its messages, such as " + HeaderMsgID + ", belong to the messages in it; besides " + HeaderBatch + " and " + HeaderBatchAtomic + " it has none")
	}
	n, err := strconv.Atoi(f.number.value)
	switch {
	case !f.number.set:
		return nil, BadBatch(HeaderBatchAtomic + " is there without " + HeaderBatch)
	case err != nil || n < 1 || n > MaxBatchMessages:
		return nil, BadBatch(HeaderBatch + " is " + Quote(f.number.value) + ": allowed is the number of messages, from 1 to " + strconv.Itoa(MaxBatchMessages))
	case f.atomic.set && f.atomic.value != "true" && f.atomic.value != "false":
		return nil, BadBatch(HeaderBatchAtomic + " is " + Quote(f.atomic.value) + ": allowed are true and false")
	}
	return &Batch{Messages: n, Atomic: f.atomic.value == "true"}, nil
}

// AppendBatch appends a message to the payload of a batch. See [AppendHeaderLines] for headers.
func AppendBatch(dst []byte, h map[string][]string, data []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, batchHead)...)
	dst = AppendHeaderLines(dst, h)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-batchHead))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(len(data)))
	return append(dst, data...)
}

// AppendHeaderLines appends headers as they are in a batch. Names and values must be legal; it replaces
// carriage returns and line feeds in values by spaces.
func AppendHeaderLines(dst []byte, h map[string][]string) []byte {
	for name, values := range h {
		for _, v := range values {
			dst = append(append(dst, name...), ": "...)
			dst = append(append(dst, HeaderValue(v)...), "\r\n"...)
		}
	}
	return dst
}

// ParseBatch returns the messages of a batch, which share memory with b. If a length is wrong, all
// messages from there on have an error. It refuses a batch that goes on behind its last message.
func ParseBatch(b []byte, batch *Batch) ([]BatchMessage, *Error) {
	all := make([]BatchMessage, batch.Messages)
	for i := range all {
		header, data, rest, ok := cutMessage(b)
		if !ok {
			err := BadBatch(fmt.Sprintf("it ends within message %d of %d", i, len(all)))
			for ; i < len(all); i++ {
				all[i].Err = err
			}
			return all, nil
		}
		all[i], b = BatchMessage{Header: header, Data: data}, rest
	}
	if len(b) > 0 {
		return nil, BadBatch(fmt.Sprintf("%d bytes follow its %d messages", len(b), len(all)))
	}
	return all, nil
}

// cutMessage cuts the first message off a batch.
func cutMessage(b []byte) (header, data, rest []byte, ok bool) {
	if len(b) < batchHead {
		return nil, nil, nil, false
	}
	h, d := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
	b = b[batchHead:]
	if h+d > uint64(len(b)) {
		return nil, nil, nil, false
	}
	return b[:h], b[h : h+d : h+d], b[h+d:], true
}

// Parse returns the headers in h, which it clears first, or in a new map if h is nil. The result shares
// no memory with l.
func (l HeaderLines) Parse(h map[string][]string, limits HeaderLimits) (map[string][]string, *Error) {
	clear(h)
	if len(l) == 0 {
		return h, nil
	}
	if n := len(l) + len("NATS/1.0\r\n\r\n"); limits.Bytes > 0 && n > limits.Bytes {
		return h, HeadersTooLarge(n, limits.Bytes)
	}
	text := string(l)
	n := strings.Count(text, "\n")
	if limits.Count > 0 && n > limits.Count {
		return h, TooManyHeaders(n, limits.Count)
	}
	if h == nil {
		h = make(map[string][]string, n)
	}
	values := make([]string, n) // one array for all of them
	for i := range values {
		line, rest, _ := strings.Cut(text, "\n")
		name, value, ok := strings.Cut(line, ":")
		switch {
		case !ok || strings.IndexByte(line, '\r') != len(line)-1:
			return h, badHeaderLine(line)
		case !LegalHeaderName(name):
			return h, BadHeaderName(name)
		}
		value = strings.Trim(value[:len(value)-1], " \t")
		if earlier := h[name]; earlier != nil {
			h[name] = append(earlier, value)
		} else {
			values[i] = value
			h[name] = values[i : i+1 : i+1]
		}
		text = rest
	}
	if text != "" {
		return h, badHeaderLine(text)
	}
	return h, nil
}

func badHeaderLine(line string) *Error {
	return BadBatch("header " + Quote(strings.TrimSuffix(line, "\r")) + ": allowed is a name, a colon, a value and a line end (CR LF)")
}

// BatchReply is the reply to a batch of messages or of acks. Those that are not refused are on
// disk.
type BatchReply struct {
	Queue string `json:"queue"`
	// IDs are the ids of the messages, 16 bytes each, in base64url without padding. The id of
	// a duplicate is the id of the first message; a refused message has zeros. Acks have none.
	IDs string `json:"ids,omitempty"`
	// Duplicates are the messages whose Nats-Msg-Id is known, by their index from 0.
	Duplicates []int          `json:"duplicates,omitempty"`
	Refused    []BatchRefusal `json:"refused,omitempty"`
	// Room is how many messages the queue would accept now; nil if it has no limit.
	Room *int64 `json:"room,omitempty"`
}

// BatchRefusal is a refused message or ack of a batch.
type BatchRefusal struct {
	Index   int `json:"index"` // from 0
	Code    int `json:"code"`
	ErrCode int `json:"err_code"`
	// Description is given with the first refusal of each ErrCode.
	Description  string `json:"description,omitempty"`
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"` // rounded up; 0: not known
}

// Refuse adds a refusal.
func (r *BatchReply) Refuse(index int, e *Error) {
	r.Refused = append(r.Refused, BatchRefusal{
		Index: index, Code: e.Code, ErrCode: e.ErrCode, Description: e.Description, RetryAfterMs: ceil(e.RetryAfter, time.Millisecond),
	})
}

// Errors returns the refusals by their index.
func (r *BatchReply) Errors() map[int]*Error {
	descriptions, all := make(map[int]string), make(map[int]*Error, len(r.Refused))
	for i := range r.Refused {
		no := &r.Refused[i]
		if no.Description != "" {
			descriptions[no.ErrCode] = no.Description
		}
		all[no.Index] = &Error{
			Code: no.Code, ErrCode: no.ErrCode, Description: descriptions[no.ErrCode], RetryAfter: time.Duration(no.RetryAfterMs) * time.Millisecond,
		}
	}
	return all
}

// Encode returns the reply to a batch with these ids. Refusals are in the order of their index.
func (r *BatchReply) Encode(ids []byte) []byte {
	r.IDs = base64.RawURLEncoding.EncodeToString(ids)
	slices.Sort(r.Duplicates)
	slices.SortFunc(r.Refused, func(a, b BatchRefusal) int { return cmp.Compare(a.Index, b.Index) })
	described := make(map[int]bool)
	for i := range r.Refused {
		if no := &r.Refused[i]; described[no.ErrCode] {
			no.Description = ""
		} else {
			described[no.ErrCode] = true
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic("wire: a reply to a batch does not marshal: " + err.Error())
	}
	return b
}

// PartAck is the ack of a delivery of a batch.
type PartAck struct {
	Index int // in the batch, from 0
	Ack   Ack
}

// ParseBatchAck parses the ack of a batch of n deliveries. A payload that begins with a digit
// has lines: each has an index or a range of indexes from 0, as in 0-61, a space, and the payload
// of an ack. Any other payload is an ack of all. Headers of nacks apply to each ack. It
// refuses indexes that are not in the batch or are named twice.
func ParseBatchAck(payload []byte, h map[string][]string, n int, parse func([]byte, map[string][]string) (Ack, *Error)) ([]PartAck, *Error) {
	if len(payload) == 0 || payload[0] < '0' || payload[0] > '9' {
		a, err := parse(payload, h)
		if err != nil {
			return nil, err
		}
		all := make([]PartAck, n)
		for i := range all {
			all[i] = PartAck{i, a}
		}
		return all, nil
	}
	var all []PartAck
	named := make([]bool, n)
	for line := range bytes.Lines(payload) {
		text, ack, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(" "))
		from, to, ok := parseRange(string(text), n)
		if !ok {
			return nil, BadAckPayload("the index " + Quote(string(text)) + ": allowed are numbers from 0 to " + strconv.Itoa(n-1) + ", and ranges of them such as 0-1")
		}
		a, err := parse(ack, h)
		if err != nil {
			return nil, err
		}
		for i := from; i <= to; i++ {
			if named[i] {
				return nil, BadAckPayload("index " + strconv.Itoa(i) + " is named twice")
			}
			named[i] = true
			all = append(all, PartAck{i, a})
		}
	}
	return all, nil
}

// parseRange parses an index or a range of indexes below n.
func parseRange(text string, n int) (from, to int, ok bool) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	from, err1 := strconv.Atoi(first)
	to, err2 := strconv.Atoi(last)
	return from, to, err1 == nil && err2 == nil && from <= to && to < n && from >= 0
}

// Delivered is a delivery of a batch.
type Delivered struct {
	ID       [16]byte
	Attempt  uint32
	Deadline int64 // end of the lease, Unix ns
	Header   HeaderLines
	Data     []byte
}

// deliveredHead is the length of the numbers in front of a delivery.
const deliveredHead = batchHead + 16 + 4 + 8

// AppendDelivered appends a delivery to the payload of a batch: a batch of deliveries has the
// id, the attempt (32 bits) and the end of the lease (64 bits) behind the two lengths. Its headers
// are in their stored form; lines are more of them, see [AppendHeaderLines].
func AppendDelivered(dst []byte, d *Delivered, stored, lines []byte) []byte {
	at := len(dst)
	var head [deliveredHead]byte
	copy(head[batchHead:], d.ID[:])
	binary.BigEndian.PutUint32(head[24:], d.Attempt)
	binary.BigEndian.PutUint64(head[28:], uint64(d.Deadline))
	dst = append(dst, head[:]...)
	for b := 0; b < len(stored); {
		from, to, ok := fieldAt(stored, b)
		if !ok {
			break
		}
		dst = append(append(dst, stored[from:to]...), ": "...)
		if from, b, ok = fieldAt(stored, to); !ok {
			break
		}
		value := len(dst)
		dst = append(dst, stored[from:b]...)
		for i, c := range dst[value:] {
			if c == '\r' || c == '\n' {
				dst[value+i] = ' '
			}
		}
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, lines...)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-deliveredHead))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(len(d.Data)))
	return append(dst, d.Data...)
}

// ParseDelivered returns the deliveries of a batch of n, which share memory with b.
func ParseDelivered(b []byte, n int) ([]Delivered, *Error) {
	if n < 1 || n > MaxBatchMessages {
		return nil, BadBatch(HeaderBatch + " is " + strconv.Itoa(n))
	}
	all := make([]Delivered, n)
	for i := range all {
		if len(b) < deliveredHead {
			return nil, BadBatch(fmt.Sprintf("it ends within delivery %d of %d", i, n))
		}
		d, head := &all[i], b[:deliveredHead]
		copy(d.ID[:], head[batchHead:])
		d.Attempt, d.Deadline = binary.BigEndian.Uint32(head[24:]), int64(binary.BigEndian.Uint64(head[28:]))
		h, size := uint64(binary.BigEndian.Uint32(head)), uint64(binary.BigEndian.Uint32(head[4:]))
		b = b[deliveredHead:]
		if h+size > uint64(len(b)) {
			return nil, BadBatch(fmt.Sprintf("it ends within delivery %d of %d", i, n))
		}
		d.Header, d.Data, b = HeaderLines(b[:h:h]), b[h:h+size:h+size], b[h+size:]
	}
	if len(b) > 0 {
		return nil, BadBatch(fmt.Sprintf("%d bytes follow its %d deliveries", len(b), n))
	}
	return all, nil
}
