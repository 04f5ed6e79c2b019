package job

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A job moves messages to a queue of another shard by transfers, one at a time. A transfer
// has a number and entries, which do not change once they are on disk; from then on the
// messages are parked: neither delivered nor removed. The target stores them in one commit
// with its receipt, which has an outcome for each, and answers from the receipt what comes
// later with the same number. Only a receipt ends a transfer: in one commit with the
// progress of the job, the source finishes the messages that the target has, and unparks
// the others. So the next owner of the job, or of either shard, gets the same result.

// transfer is the last one of a job, as its store has it.
type transfer struct {
	No      uint64   `json:"no"`
	Shard   int      `json:"shard"`           // the target
	Before  position `json:"before,omitzero"` // of the job when the transfer was made
	Last    position `json:"last,omitzero"`   // of the job when the transfer has ended
	Entries []entry  `json:"items,omitempty"` // none: it has ended
}

// entry is a message that a transfer has visited.
type entry struct {
	Seq        uint64 `json:"s"`
	EnqueuedAt int64  `json:"e"`
	ID         []byte `json:"i"`
	Why        string `json:"w,omitempty"` // why it is left as it is; empty: it is parked
	NotBefore  int64  `json:"n,omitempty"`
	Delayed    bool   `json:"d,omitempty"`
	ExpiresAt  int64  `json:"x,omitempty"`
}

func (e *entry) position() position { return position{e.Seq, e.EnqueuedAt, store.ID(e.ID)} }

func (t *transfer) open() bool { return len(t.Entries) > 0 }

// parked are the entries whose messages are parked.
func (t *transfer) parked() (list []entry) {
	for _, e := range t.Entries {
		if e.Why == "" {
			list = append(list, e)
		}
	}
	return list
}

// receipt records what a target has done with the newest transfer of a job.
type receipt struct {
	No       uint64      `json:"no"`
	Outcomes string      `json:"said,omitempty"`    // an outcome for each message; missing ones are outcomeNoRoom
	Refused  *wire.Error `json:"refused,omitempty"` // why there is no room for the rest
	From     int         `json:"from"`              // the shard of the job
	At       int64       `json:"at"`                // Unix ns: when it was written
}

func (r *receipt) entry(job string) store.Entry {
	return store.Entry{Key: keyReceipt + job, Value: encode(r)}
}

// outcome is the decision of a target about an offered message.
type outcome byte

// The outcomes, as they are in receipts.
const (
	outcomeTaken      outcome = 't'
	outcomeKeyFull    outcome = 'k'
	outcomeBadKey     outcome = 'b'
	outcomeUnreadable outcome = 'u'
	outcomeNoRoom     outcome = '-' // and all behind it
	outcomeTooLarge   outcome = 'r' // after an edit; in no receipt
)

// leftReasons are the outcomes of messages that a job leaves as they are.
var leftReasons = map[outcome]string{
	outcomeKeyFull: api.LeftKeyFull, outcomeBadKey: api.LeftBadKey, outcomeUnreadable: api.LeftUnreadable, outcomeTooLarge: api.LeftRefused,
}

// of returns the outcome of the i-th parked message.
func (r *receipt) of(i int) outcome {
	if i < len(r.Outcomes) {
		return outcome(r.Outcomes[i])
	}
	return outcomeNoRoom
}

// end returns the progress of the job after a transfer that began at progress before, and the
// messages that the target has (moved) and does not have (kept).
func (t *transfer) end(before *progress, r *receipt) (next progress, moved, kept []uint64) {
	next = before.clone()
	next.At = t.Last
	parked := 0
	for i := range t.Entries {
		e := &t.Entries[i]
		o := outcome(0)
		if e.Why == "" {
			o = r.of(parked)
			parked++
		}
		if o == outcomeNoRoom { // the job visits messages again from here on
			next.At = t.Before
			if i > 0 {
				next.At = t.Entries[i-1].position()
			}
			for _, rest := range t.Entries[i:] {
				if rest.Why == "" {
					kept = append(kept, rest.Seq)
				}
			}
			return next, moved, kept
		}
		next.Matched++
		switch {
		case o == outcomeTaken:
			next.Done++
			moved = append(moved, e.Seq)
		case e.Why != "":
			next.leave(e.Why, 1)
		default:
			next.leave(leftReasons[o], 1)
			kept = append(kept, e.Seq)
		}
	}
	return next, moved, kept
}

// content is a message as it is stored.
type content struct {
	readable bool // otherwise the rest is empty
	headers  []byte
	payload  []byte
	history  [][]byte
}

// A request has at most this beside headers, payloads and histories.
const (
	requestOverhead = 1 << 10
	entryOverhead   = 256
	recordOverhead  = 6
)

// size returns how many bytes of a request the message takes.
func (c *content) size() int {
	n := entryOverhead + len(c.headers) + len(c.payload)
	for _, r := range c.history {
		n += len(r) + recordOverhead
	}
	return n
}

// shorten drops records of the history until the message fits into room, if that helps. As
// where a history is too long, the first record stays, and the oldest others go.
func (c *content) shorten(room int) bool {
	for len(c.history) > 0 && c.size() > room {
		drop := min(1, len(c.history)-1)
		c.history = append(c.history[:drop:drop], c.history[drop+1:]...)
	}
	return c.size() <= room
}

// shortenAll shortens the histories of messages that fitted into a request while their histories
// were shorter.
func shortenAll(contents []content, room int) {
	for i := range contents {
		room -= contents[i].size()
	}
	for i := 0; i < len(contents) && room < 0; i++ {
		before := contents[i].size()
		contents[i].shorten(before + room)
		room += before - contents[i].size()
	}
}

// request goes from one shard to another: messages of a transfer, no messages to recall it,
// or the question whether a job is open.
type request struct {
	Shard   int         `json:"shard"` // the target
	From    int         `json:"from"`
	Job     string      `json:"job"`
	Ask     bool        `json:"ask,omitempty"` // whether the job is open
	No      uint64      `json:"no,omitempty"`
	Queue   string      `json:"queue,omitempty"` // the target
	Sent    int64       `json:"sent,omitempty"`  // Unix ns
	Entries []sentEntry `json:"items,omitempty"`
}

// sentEntry is a message of a request. Its bytes are behind the request.
type sentEntry struct {
	ID         []byte `json:"i"`
	EnqueuedAt int64  `json:"e"`
	NotBefore  int64  `json:"n,omitempty"`
	Delayed    bool   `json:"d,omitempty"`
	ExpiresAt  int64  `json:"x,omitempty"`
	Unreadable bool   `json:"m,omitempty"`
	Headers    int    `json:"h,omitempty"` // bytes
	Payload    int    `json:"p,omitempty"`
	History    []int  `json:"r,omitempty"`
}

// reply is the answer to a request.
type reply struct {
	receipt
	Open bool `json:"open,omitempty"` // the job is
}

// The MAC of a request covers macRequest and its bytes; the MAC of a reply covers macReply. So a
// request never passes for a reply. The key is the secret of the cluster, which no client has.
const (
	macRequest = "fila.parcel.1"
	macReply   = "fila.parcel.reply.1"
)

var errForged = errors.New("it is not of this cluster, or was changed on its way")

// packRequest encodes a request and its messages: MAC, length of the request, the request
// as JSON, and the bytes of the messages.
func packRequest(s *wire.Signer, r *request, contents []content) []byte {
	for i := range r.Entries {
		c, e := &contents[i], &r.Entries[i]
		if e.Unreadable = !c.readable; e.Unreadable {
			continue
		}
		e.Headers, e.Payload, e.History = len(c.headers), len(c.payload), nil
		for _, record := range c.history {
			e.History = append(e.History, len(record))
		}
	}
	head := encode(r)
	body := make([]byte, sha256.Size, sha256.Size+4+len(head))
	body = binary.BigEndian.AppendUint32(body, uint32(len(head)))
	body = append(body, head...)
	for i := range r.Entries {
		if c := &contents[i]; c.readable {
			body = append(append(body, c.headers...), c.payload...)
			for _, record := range c.history {
				body = append(body, record...)
			}
		}
	}
	copy(body, s.Sum(macRequest, body[sha256.Size:]))
	return body
}

func unpackRequest(s *wire.Signer, body []byte) (r request, contents []content, err error) {
	if len(body) < sha256.Size+4 || !hmac.Equal(body[:sha256.Size], s.Sum(macRequest, body[sha256.Size:])) {
		return r, nil, errForged
	}
	rest := body[sha256.Size:]
	take := func(n int) []byte {
		if n < 0 || n > len(rest) {
			err, n = errors.New("it is cut off"), 0
		}
		part := rest[:n]
		rest = rest[n:]
		return part
	}
	size := binary.BigEndian.Uint32(take(4))
	if jsonErr := json.Unmarshal(take(int(size)), &r); jsonErr != nil {
		return r, nil, jsonErr
	}
	contents = make([]content, len(r.Entries))
	for i := range r.Entries {
		e, c := &r.Entries[i], &contents[i]
		if len(e.ID) != len(store.ID{}) {
			return r, nil, errors.New("an id does not have 16 bytes")
		}
		if e.Unreadable {
			continue
		}
		*c = content{readable: true, headers: take(e.Headers), payload: take(e.Payload)}
		for _, n := range e.History {
			c.history = append(c.history, take(n))
		}
	}
	return r, contents, err
}

// packReply signs the reply together with its request, so that it cannot be replayed for
// another one.
func packReply(s *wire.Signer, request []byte, r *reply) []byte {
	text := []byte(encode(r))
	return append(s.Sum(macReply, request[:sha256.Size], text), text...)
}

func unpackReply(s *wire.Signer, request, body []byte) (r reply, err error) {
	if len(body) < sha256.Size || !hmac.Equal(body[:sha256.Size], s.Sum(macReply, request[:sha256.Size], body[sha256.Size:])) {
		return r, errForged
	}
	return r, json.Unmarshal(body[sha256.Size:], &r)
}
