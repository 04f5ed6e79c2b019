package client

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

const (
	// gatherFor is how long an answer to a message of a batch waits for other answers.
	gatherFor = time.Millisecond
	// maxAnswerBytes bounds the answers in one request.
	maxAnswerBytes = 256 << 10
)

// delivery is a batch that a consumer has received. Its answers are gathered, and sent
// together
//
//   - when all of its messages have one,
//   - when all workers wait, for messages or for confirmations,
//   - after gatherFor.
//
// Each request has a number, and the reply to it says which of its answers are refused.
type delivery struct {
	id    uint64 // in the reply subjects
	ackTo string

	// The consumer's mutex guards the following fields.
	holds    []*hold  // by index
	held     int      // messages that are held
	open     int      // of them without an answer
	gathered bool     // it is in the consumer's list
	requests [][]sent // by number
}

// sent is an answer or an extension in a request.
type sent struct {
	h      *hold
	answer bool
}

// parseDelivery returns the messages of a delivery, which may be a batch.
func (c *Client) parseDelivery(queue string, msg *nats.Msg) ([]*Message, error) {
	number := msg.Header.Get(wire.HeaderBatch)
	if number == "" {
		return []*Message{c.newMessage(msg, queue)}, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, fmt.Errorf("delivery has %s %s", wire.HeaderBatch, wire.Quote(number))
	}
	delivered, bad := wire.ParseDelivered(msg.Data, n)
	if bad != nil {
		return nil, fmt.Errorf("delivery of %s is not what fila sends: %w", queue, bad)
	}
	messages := make([]*Message, n)
	for i := range delivered {
		d := &delivered[i]
		header, bad := d.Header.Parse(nil, wire.HeaderLimits{})
		if bad != nil {
			return nil, fmt.Errorf("delivery of %s is not what fila sends: %w", queue, bad)
		}
		m := &Message{
			Queue: queue, ID: uuid.UUID(d.ID).String(), Attempt: int(d.Attempt), Deadline: time.Unix(0, d.Deadline).UTC(),
			Header: header, Data: d.Data, c: c, ackTo: msg.Reply, batched: true, index: i,
		}
		m.Route = m.Header.Get(wire.HeaderRoute)
		m.Key, m.EnqueuedAt = m.Header.Get(wire.HeaderKey), headerTime(m.Header, wire.HeaderEnqueuedAt)
		messages[i] = m
	}
	return messages, nil
}

// answerTo returns the payload that answers only this message.
func (m *Message) answerTo(payload []byte) []byte {
	if !m.batched {
		return payload
	}
	return appendAnswers(nil, m.index, m.index, payload)
}

// answerLines is the payload of a request. Equal answers to messages in a row share a line.
type answerLines struct {
	payload     []byte
	at          int // where the last line begins, which the next answer may extend
	first, last int // its messages
	same        []byte
}

func (l *answerLines) addAnswer(index int, answer []byte) {
	if len(l.payload) == 0 || index != l.last+1 || !bytes.Equal(answer, l.same) {
		l.at, l.first, l.same = len(l.payload), index, answer
	}
	l.last = index
	l.payload = appendAnswers(l.payload[:l.at], l.first, index, answer)
}

// appendAnswers appends a line that answers the messages from one index to another.
func appendAnswers(dst []byte, from, to int, payload []byte) []byte {
	dst = strconv.AppendInt(dst, int64(from), 10)
	if to > from {
		dst = strconv.AppendInt(append(dst, '-'), int64(to), 10)
	}
	dst = append(dst, ' ')
	at := len(dst)
	if len(payload) == 0 {
		payload = []byte("+ACK")
	}
	dst = append(dst, payload...)
	for i, c := range dst[at:] { // texts of people
		if c == '\n' || c == '\r' {
			dst[at+i] = ' '
		}
	}
	return append(dst, '\n')
}

// gather makes an answer wait for others. It returns false if it is to be sent at once. The
// caller holds mu.
func (k *Consumer) gather(d *delivery) bool {
	d.open--
	if d.open == 0 || k.idle() {
		return false
	}
	if !d.gathered {
		d.gathered = true
		k.mu.gathered = append(k.mu.gathered, d)
		if len(k.mu.gathered) == 1 {
			k.mu.gatherTimer.Reset(k.o.gatherFor)
		}
	}
	return true
}

// sendGathered sends all answers that wait for others.
func (k *Consumer) sendGathered() {
	k.mu.Lock()
	all := k.mu.gathered
	k.mu.gathered = nil
	for _, d := range all {
		d.gathered = false
	}
	k.mu.Unlock()
	for _, d := range all {
		if err := k.sendNew(d); err != nil {
			k.o.onError(fmt.Errorf("ack of a batch: %w", err))
			return // the others would fail as well
		}
	}
}

// sendNew sends the answers of a batch that were not sent yet.
func (k *Consumer) sendNew(d *delivery) error {
	var all []*hold
	k.mu.Lock()
	for _, h := range d.holds {
		if h != nil && !h.giveUp.IsZero() && h.sent == 0 {
			all = append(all, h)
		}
	}
	k.mu.Unlock()
	return k.sendBatch(d, all, time.Now())
}

// idle reports that no worker handles a message or is about to. The caller holds mu.
func (k *Consumer) idle() bool {
	return k.mu.free+k.mu.confirming >= k.o.concurrency && (k.mu.free == 0 || len(k.mu.waiting) == 0)
}

// rest notes that a worker waits: for the confirmation of h, or for a message if h is nil. If all
// workers wait, it sends what was gathered.
func (k *Consumer) rest(h *hold) {
	k.mu.Lock()
	if h == nil {
		k.mu.free++
	} else {
		h.confirming = true
		k.mu.confirming++
	}
	send := k.idle() && len(k.mu.gathered) > 0
	k.mu.Unlock()
	if send {
		k.sendGathered()
	}
}

// proceed notes that no worker waits for the confirmation of h any more.
func (k *Consumer) proceed(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.confirming {
		h.confirming = false
		k.mu.confirming--
	}
}

// sendBatch is send for messages of a batch.
func (k *Consumer) sendBatch(d *delivery, holds []*hold, now time.Time) error {
	slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.m.index, b.m.index) })
	for len(holds) > 0 {
		k.mu.Lock()
		n, payload := k.takeAnswers(d, holds, now)
		reply := k.inbox + "b" + strconv.FormatUint(d.id, 36) + "-" + strconv.Itoa(len(d.requests)-1)
		part := holds[:n]
		holds = holds[n:]
		k.mu.Unlock()
		if err := k.sentOrDue(k.c.nc.PublishRequest(d.ackTo, reply, payload), part); err != nil {
			return err
		}
	}
	return nil
}

// takeAnswers returns the payload of a request with the answers of the first n messages, and
// notes the request. The caller holds mu.
func (k *Consumer) takeAnswers(d *delivery, holds []*hold, now time.Time) (n int, payload []byte) {
	request := make([]sent, 0, len(holds))
	var lines answerLines
	for _, h := range holds {
		lines.addAnswer(h.m.index, k.takeAnswer(h, now))
		request = append(request, sent{h, !h.giveUp.IsZero()})
		if len(lines.payload) >= maxAnswerBytes {
			break
		}
	}
	d.requests = append(d.requests, request)
	return len(request), lines.payload
}

// replyToBatch handles the reply to a request about messages of a batch.
func (k *Consumer) replyToBatch(tail string, msg *nats.Msg) {
	first, second, _ := strings.Cut(tail, "-")
	id, err := strconv.ParseUint(first, 36, 64)
	number, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || number < 0 {
		return
	}
	var request []sent
	k.mu.Lock()
	if d := k.mu.batches[id]; d != nil && number < len(d.requests) {
		request, d.requests[number] = d.requests[number], nil
	}
	k.mu.Unlock()
	// Before the first worker goes on, so that it does not take the others for waiting ones.
	for _, s := range request {
		k.proceed(s.h)
	}
	whole, refused := parseAckReply(msg)
	for _, s := range request {
		refusal := whole
		if whole == nil {
			refusal = refused[s.h.m.index]
		}
		k.replied(s.h, s.answer, msg, refusal)
	}
}

// parseAckReply parses the reply to answers. whole is about all of them, refused by index.
func parseAckReply(msg *nats.Msg) (whole *wire.Error, refused map[int]*wire.Error) {
	if whole = wire.ParseError(msg.Header, msg.Data); whole != nil || len(msg.Data) == 0 {
		return whole, nil
	}
	var reply wire.BatchReply
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return wire.Internal("the reply to an ack is not what fila sends: " + err.Error()), nil
	}
	return nil, reply.Errors()
}
