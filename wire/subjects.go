package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// DefaultPrefix is the subject prefix used when none is configured.
const DefaultPrefix = "fila"

// MaxPrefixLen is the length in bytes of the longest subject prefix.
const MaxPrefixLen = 64

// ServiceName is the name under which the sidecar is registered as a NATS
// micro service.
const ServiceName = "fila"

// GuardServiceName is the name of the micro service and queue group of filas that share a
// guard prefix.
const GuardServiceName = "fila-guard"

// Shard is the partition in the reply subjects of a fila without a cluster, see
// [Subjects.OfShard].
const Shard = "0"

// Kinds of subjects whose tail is a queue name, for [Subjects.ParseTail].
const (
	KindEnqueue = "enqueue"
	KindConsume = "consume"
	KindFetch   = "fetch"
)

// Other kinds of subjects, for [Subjects.Wildcard].
const (
	KindConsumer = "consumer" // they name a consumer before the queue, see [Subjects.ParseConsumer]
	KindAck      = "ack"
	KindNack     = "nack"
	KindEvent    = "event"
)

const (
	kindDeliver = "deliver"
	kindAdmin   = "admin"
	kindNode    = "node"
	kindGuard   = "guard"
)

// JobTail is the tail of the subject of the verb job-create. Permissions distinguish ops and
// queues by it.
func JobTail(op, queue string) string { return op + "." + queue }

// Subjects builds and parses the subjects under one prefix. The zero value is
// not usable; make one with [NewSubjects]. It is immutable and cheap to copy.
//
// It does not check names, see [CheckQueueName] and [CheckConsumerName].
type Subjects struct {
	prefix string
	shard  string
}

// NewSubjects returns the subjects under prefix, which is one or more subject
// tokens of printable ASCII without wildcards, 1 to 64 bytes, and not reserved by NATS
// ("$..." and "_INBOX").
func NewSubjects(prefix string) (Subjects, error) {
	const allowed = "allowed are 1 to 64 bytes of printable ASCII without spaces, '*' and '>', " +
		"with dots between non-empty parts, not starting with '$' or '_INBOX'"
	ok := len(prefix) <= MaxPrefixLen && legalTail(prefix) && !strings.ContainsFunc(prefix, notASCII) && !strings.Contains(prefix, "*") && prefix[0] != '$' &&
		prefix != "_INBOX" && !strings.HasPrefix(prefix, "_INBOX.")
	if !ok {
		return Subjects{}, fmt.Errorf("subject prefix %s: %s", Quote(prefix), allowed)
	}
	return Subjects{prefix: prefix, shard: Shard}, nil
}

// Prefix returns the prefix, "fila" by default.
func (s Subjects) Prefix() string { return s.prefix }

// OfShard returns the subjects whose ack subjects name a shard. The owner of a queue accepts
// acks with any shard, because the queue may have moved.
func (s Subjects) OfShard(number int) Subjects {
	s.shard = strconv.Itoa(number)
	return s
}

// Enqueue returns the subject on which producers publish to a queue.
func (s Subjects) Enqueue(queue string) string {
	return s.prefix + "." + KindEnqueue + "." + queue
}

// Consumer returns the subject on which one consumer of a queue registers and fetches.
// Permissions decide who may publish to it.
func (s Subjects) Consumer(name, queue string) string {
	return s.prefix + "." + KindConsumer + "." + name + "." + queue
}

// Consume returns the subject on which consumers of a queue register with their name in the
// request: a client that may publish to it may use any name.
func (s Subjects) Consume(queue string) string {
	return s.prefix + "." + KindConsume + "." + queue
}

// Fetch returns the subject of requests for a batch of messages.
func (s Subjects) Fetch(queue string) string {
	return s.prefix + "." + KindFetch + "." + queue
}

// Deliver returns the subject on which a consumer gets a queue's messages.
func (s Subjects) Deliver(consumer, queue string) string {
	return s.prefix + "." + kindDeliver + "." + consumer + "." + queue
}

// Ack returns the reply subject of a delivery.
func (s Subjects) Ack(token, queue string) string {
	return s.prefix + "." + KindAck + "." + s.shard + "." + token + "." + queue
}

// Nack returns the subject on which the payload is an error text.
func (s Subjects) Nack(token, queue string) string {
	return s.prefix + "." + KindNack + "." + s.shard + "." + token + "." + queue
}

// AppendAck appends [Subjects.Ack] to dst. It allocates only if dst is too
// small.
func (s Subjects) AppendAck(dst, token []byte, queue string) []byte {
	dst = append(dst, s.prefix...)
	dst = append(dst, "."+KindAck+"."...)
	dst = append(dst, s.shard...)
	dst = append(dst, '.')
	dst = append(dst, token...)
	dst = append(dst, '.')
	return append(dst, queue...)
}

// Admin returns the subject of an admin verb. The tail is a queue name or a
// configuration key, a [JobTail], or empty for the verbs without one.
func (s Subjects) Admin(verb, tail string) string {
	if tail == "" {
		return s.prefix + "." + kindAdmin + "." + verb
	}
	return s.prefix + "." + kindAdmin + "." + verb + "." + tail
}

// Event returns the subject of an event of type typ about a queue or key. A
// tail that is not legal there is replaced by "_", see [EventTail].
func (s Subjects) Event(typ, tail string) string {
	return s.prefix + "." + KindEvent + "." + typ + "." + EventTail(tail)
}

// CheckReplyPrefix returns nil if prefix is a legal prefix of reply subjects: 1 to 64 bytes of
// printable ASCII without spaces, '*' and '>', with no subject of fila under it. By replying on
// its own subjects fila would act for a client that has no permission (confused deputy).
func (s Subjects) CheckReplyPrefix(prefix string) error {
	own := s.prefix + "."
	switch {
	case prefix == "" || len(prefix) > MaxPrefixLen || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }):
		return fmt.Errorf("reply prefix %s: allowed are 1 to %d bytes of printable ASCII without spaces, '*' and '>'", Quote(prefix), MaxPrefixLen)
	case strings.HasPrefix(prefix, own) || strings.HasPrefix(own, prefix):
		return fmt.Errorf("reply prefix %s: fila's own subjects, which begin with %s, are not allowed", Quote(prefix), own)
	}
	return nil
}

// Wildcard returns the subscription for all subjects of a kind.
func (s Subjects) Wildcard(kind string) string { return s.prefix + "." + kind + ".>" }

// AckOf returns the subscription for the acks of one queue.
func (s Subjects) AckOf(queue string) string {
	return s.prefix + "." + KindAck + ".*.*." + queue
}

// NackOf returns the subscription for the nacks of one queue.
func (s Subjects) NackOf(queue string) string {
	return s.prefix + "." + KindNack + ".*.*." + queue
}

// Guard returns the subject of a verb of the guard. The tail is the first key of the
// call, as package api makes it (KeyTail).
func (s Subjects) Guard(verb, tail string) string {
	return s.prefix + "." + kindGuard + "." + verb + "." + tail
}

// ParseGuard returns the tail of the subject of a verb of the guard.
func (s Subjects) ParseGuard(verb, subject string) (tail string, ok bool) {
	return s.ParseTail(kindGuard+"."+verb, subject)
}

// PermitDone returns the subject, under a shared guard prefix, on which the fila that issued a
// permit receives outcomes that clients sent to another fila.
func (s Subjects) PermitDone(issuer uint64) string {
	return s.prefix + "." + kindNode + ".done." + strconv.FormatUint(issuer, 16)
}

// Meets reports whether a shared guard under the prefix of common would use subjects of a fila
// with the prefix of s.
func (s Subjects) Meets(common Subjects) bool {
	own := s.prefix + "."
	for _, kind := range []string{kindGuard, kindNode} {
		theirs := common.prefix + "." + kind + "."
		if strings.HasPrefix(theirs, own) || strings.HasPrefix(own, theirs) {
			return true
		}
	}
	return false
}

// NodeAsk returns the subject on which a starting fila looks for others.
func (s Subjects) NodeAsk() string { return s.prefix + "." + kindNode + ".ask" }

// NodeAnswer returns the subject of the answers to one incarnation of a fila.
func (s Subjects) NodeAnswer(incarnation string) string {
	return s.prefix + "." + kindNode + ".answer." + incarnation
}

// NodeAnnounce returns the subject on which a fila announces itself.
func (s Subjects) NodeAnnounce() string { return s.prefix + "." + kindNode + ".announce" }

// NodeWildcard returns the subscription for NodeAsk and NodeAnnounce.
func (s Subjects) NodeWildcard() string { return s.prefix + "." + kindNode + ".*" }

// ParseToken returns the unchecked token and queue of an ack or nack subject; the [Signer]
// checks the pair.
func (s Subjects) ParseToken(subject string) (token, queue string, ok bool) {
	tail, ok := s.ParseTail(KindAck, subject)
	if !ok {
		tail, _ = s.ParseTail(KindNack, subject)
	}
	shard, tail, _ := strings.Cut(tail, ".")
	token, queue, _ = strings.Cut(tail, ".")
	if shard == "" || token == "" || queue == "" {
		return "", "", false
	}
	return token, queue, true
}

// ParseTail returns the part of a subject after the kind ([KindEnqueue], [KindConsume],
// [KindFetch]): the unchecked queue name.
func (s Subjects) ParseTail(kind, subject string) (tail string, ok bool) {
	rest, ok := strings.CutPrefix(subject, s.prefix)
	if !ok || rest == "" || rest[0] != '.' {
		return "", false
	}
	rest, ok = strings.CutPrefix(rest[1:], kind)
	if !ok || len(rest) < 2 || rest[0] != '.' {
		return "", false
	}
	return rest[1:], true
}

// ParseConsumer returns the unchecked consumer and queue of [Subjects.Consumer].
func (s Subjects) ParseConsumer(subject string) (name, queue string, ok bool) {
	tail, _ := s.ParseTail(KindConsumer, subject)
	name, queue, _ = strings.Cut(tail, ".")
	if name == "" || queue == "" {
		return "", "", false
	}
	return name, queue, true
}

// ParseAdmin returns the unchecked verb and tail of an admin subject. The tail may be empty.
func (s Subjects) ParseAdmin(subject string) (verb, tail string, ok bool) {
	rest, ok := s.ParseTail(kindAdmin, subject)
	if !ok {
		return "", "", false
	}
	verb, tail, dotted := strings.Cut(rest, ".")
	if verb == "" || dotted && tail == "" {
		return "", "", false
	}
	return verb, tail, true
}

func notASCII(r rune) bool { return r > unicode.MaxASCII }
