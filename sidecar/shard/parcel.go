package shard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// A job moves messages to a queue of another shard by parcels, one at a time. A parcel has
// a number and messages, which do not change any more once it is on disk; from then on
// they are held, and so neither delivered nor removed. The other shard files them in one
// commit with its receipt, which says what it has done with each, and answers whatever
// comes under that number later from the receipt. Only a receipt ends a parcel: in one
// commit with how far the job is, those that are there are finished here, and the others
// wait again. So whoever goes on with the job, or with either shard, comes to the same.
//
// What the stores keep of that, JSON:
//
//	\x00job/<id>/out  at the source: parcel
//	\x00moved/<id>    at the target: receipt
const (
	keyJobOut = "/out"
	keyMoved  = "\x00moved/"
)

// parcel is the last one of a job.
type parcel struct {
	No     uint64 `json:"no"`
	Shard  int    `json:"shard"`           // where it goes
	Before place  `json:"before,omitzero"` // where it begins
	Last   place  `json:"last,omitzero"`   // where it ends
	Items  []item `json:"items,omitempty"` // none: it is over
}

// item is a message that a job has come by.
type item struct {
	Seq        uint64 `json:"s"`
	EnqueuedAt int64  `json:"e"`
	ID         []byte `json:"i"`
	Why        string `json:"w,omitempty"` // it is left as it is; empty: it is held
	NotBefore  int64  `json:"n,omitempty"`
	Delayed    bool   `json:"d,omitempty"`
	ExpiresAt  int64  `json:"x,omitempty"`
}

func (i *item) place() place { return place{i.Seq, i.EnqueuedAt, store.ID(i.ID)} }

// held are the items that are.
func (p *parcel) held() (list []item) {
	for _, i := range p.Items {
		if i.Why == "" {
			list = append(list, i)
		}
	}
	return list
}

// receipt is what a shard has done with the newest parcel of a job.
type receipt struct {
	No      uint64      `json:"no"`
	Said    string      `json:"said,omitempty"`    // of each message, one of said...; what is missing was not looked at
	Refused *wire.Error `json:"refused,omitempty"` // why the rest does not fit
	From    int         `json:"from"`              // the shard of the job
	At      int64       `json:"at"`                // Unix ns: when it was written
}

// What becomes of a message in a parcel.
const (
	saidTaken      = 't'
	saidKeyFull    = 'k'
	saidBadKey     = 'b'
	saidUnreadable = 'u'
	saidNoRoom     = '-' // nor is there for those behind it
)

// leftAs are the words for it in a job.
var leftAs = map[byte]string{saidKeyFull: wire.LeftKeyFull, saidBadKey: wire.LeftBadKey, saidUnreadable: wire.LeftUnreadable}

// of is what becomes of held message i.
func (r *receipt) of(i int) byte {
	if i < len(r.Said) {
		return r.Said[i]
	}
	return saidNoRoom
}

// goods are what the store has of a message; without headers it cannot be read.
type goods struct {
	read    bool
	headers []byte
	payload []byte
	past    [][]byte
}

// waybill is what one shard sends another: messages of a parcel, none to have none of
// them taken that is not yet, or the question whether a job goes on.
type waybill struct {
	Shard int       `json:"shard"` // whom it is for
	From  int       `json:"from"`
	Job   string    `json:"job"`
	Ask   bool      `json:"ask,omitempty"`
	No    uint64    `json:"no,omitempty"`
	Queue string    `json:"queue,omitempty"` // where the messages go
	Sent  int64     `json:"sent,omitempty"`  // Unix ns
	Items []shipped `json:"items,omitempty"`
}

// shipped is a message on its way. Its bytes follow the waybill.
type shipped struct {
	ID         []byte `json:"i"`
	EnqueuedAt int64  `json:"e"`
	NotBefore  int64  `json:"n,omitempty"`
	Delayed    bool   `json:"d,omitempty"`
	ExpiresAt  int64  `json:"x,omitempty"`
	Missing    bool   `json:"m,omitempty"` // it cannot be read
	Headers    int    `json:"h,omitempty"` // bytes
	Payload    int    `json:"p,omitempty"`
	Past       []int  `json:"r,omitempty"`
}

// reply is the answer to a waybill.
type reply struct {
	receipt
	Open bool `json:"open,omitempty"` // the job goes on
}

// What a request has besides the messages, at most: the waybill, and for each message its
// item and each record of its history.
const (
	waybillRoom = 1 << 10
	itemRoom    = 256
	recordRoom  = 6
)

func (g *goods) size() int {
	n := itemRoom + len(g.headers) + len(g.payload)
	for _, r := range g.past {
		n += len(r) + recordRoom
	}
	return n
}

// shorten has a message fit into so many bytes, if it does without some of its history. As
// where a history is too long, the oldest records but the first go.
func (g *goods) shorten(room int) bool {
	for len(g.past) > 0 && g.size() > room {
		drop := min(1, len(g.past)-1)
		g.past = append(g.past[:drop:drop], g.past[drop+1:]...)
	}
	return g.size() <= room
}

// fit has messages fit into a request that did when their histories were shorter.
func fit(cargo []goods, room int) {
	for i := range cargo {
		room -= cargo[i].size()
	}
	for i := 0; i < len(cargo) && room < 0; i++ {
		was := cargo[i].size()
		cargo[i].shorten(was + room)
		room += was - cargo[i].size()
	}
}

// Tags of what is signed with the secret of the cluster, which no client has.
const (
	tagWaybill = "fila.parcel.1"
	tagReply   = "fila.parcel.reply.1"
)

var errForged = errors.New("it is not of this cluster, or was changed on its way")

// pack is a request: a MAC, and then the waybill behind its length, and what it is about.
func pack(s *wire.Signer, w *waybill, cargo []goods) []byte {
	for i := range w.Items {
		g, it := &cargo[i], &w.Items[i]
		if it.Missing = !g.read; it.Missing {
			continue
		}
		it.Headers, it.Payload = len(g.headers), len(g.payload)
		for _, r := range g.past {
			it.Past = append(it.Past, len(r))
		}
	}
	head := encodeJob(w)
	body := make([]byte, sha256.Size, sha256.Size+4+len(head))
	body = binary.BigEndian.AppendUint32(body, uint32(len(head)))
	body = append(body, head...)
	for i := range w.Items {
		if g := &cargo[i]; g.read {
			body = append(append(body, g.headers...), g.payload...)
			for _, r := range g.past {
				body = append(body, r...)
			}
		}
	}
	copy(body, s.Sum(tagWaybill, body[sha256.Size:]))
	return body
}

// unpack reads a request.
func unpack(s *wire.Signer, body []byte) (w waybill, cargo []goods, err error) {
	if len(body) < sha256.Size+4 || !hmac.Equal(body[:sha256.Size], s.Sum(tagWaybill, body[sha256.Size:])) {
		return w, nil, errForged
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
	if jsonErr := json.Unmarshal(take(int(size)), &w); jsonErr != nil {
		return w, nil, jsonErr
	}
	cargo = make([]goods, len(w.Items))
	for i := range w.Items {
		it, g := &w.Items[i], &cargo[i]
		if len(it.ID) != len(store.ID{}) {
			return w, nil, errors.New("an id has not 16 bytes")
		}
		if it.Missing {
			continue
		}
		*g = goods{read: true, headers: take(it.Headers), payload: take(it.Payload)}
		for _, n := range it.Past {
			g.past = append(g.past, take(n))
		}
	}
	return w, cargo, err
}

// packReply is the answer to a request, which it cannot be taken for that of another one.
func packReply(s *wire.Signer, request []byte, r *reply) []byte {
	text := []byte(encodeJob(r))
	return append(s.Sum(tagReply, request[:sha256.Size], text), text...)
}

func unpackReply(s *wire.Signer, request, body []byte) (r reply, err error) {
	if len(body) < sha256.Size || !hmac.Equal(body[:sha256.Size], s.Sum(tagReply, request[:sha256.Size], body[sha256.Size:])) {
		return r, errForged
	}
	return r, json.Unmarshal(body[sha256.Size:], &r)
}
