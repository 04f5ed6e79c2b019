package e2e

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// scene builds histories by hand. The visibility timeout is 100, times are small numbers, and
// the first process starts at 0.
type scene struct {
	t   *testing.T
	h   *history
	now int64
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, h: newHistory(100)}
	s.h.now = func() int64 { return s.now }
	s.h.started(0)
	s.h.published("k", "q", "t", "payload")
	s.h.confirmed("k", "id")
	return s
}

// deliver records a delivery of a queue at a time.
func (s *scene) deliver(queue string, attempt int, at int64) *seenLease {
	return s.deliverOf("k", "id", "payload", queue, attempt, at)
}

func (s *scene) deliverOf(key, id, payload, queue string, attempt int, at int64) *seenLease {
	msg := &nats.Msg{Reply: queue + strconv.FormatInt(at, 10), Data: []byte(payload), Header: nats.Header{}}
	msg.Header.Set("Test-Key", key)
	msg.Header.Set("Fila-Id", id)
	msg.Header.Set("Fila-Key", "t")
	return s.h.delivered(delivery{Msg: msg}, queue, attempt, at+100)
}

func (s *scene) answer(l *seenLease, kind string, at int64, o outcome) {
	s.delayed(l, kind, 0, at, o)
}

func (s *scene) delayed(l *seenLease, kind string, delay, at int64, o outcome) {
	a := s.h.answering(l, kind, delay, at)
	s.now = at + 1
	s.h.settle("id", a, o)
}

// TestHistoryAcceptsWhatIsRight: the checker accepts correct histories.
func TestHistoryAcceptsWhatIsRight(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(s *scene){
		"acked at once": func(s *scene) { s.answer(s.deliver("q", 1, 10), "ack", 20, accepted) },
		"acked twice, refused": func(s *scene) {
			l := s.deliver("q", 1, 10)
			s.answer(l, "ack", 20, accepted)
			s.answer(l, "ack", 21, refused)
		},
		"nacked, then acked": func(s *scene) {
			s.answer(s.deliver("q", 1, 10), "nack", 20, accepted)
			s.answer(s.deliver("q", 2, 21), "ack", 30, accepted)
		},
		"expired, then acked": func(s *scene) {
			old := s.deliver("q", 1, 10)
			s.answer(s.deliver("q", 2, 110), "ack", 120, accepted)
			s.answer(old, "ack", 130, refused)
		},
		"acked without answer": func(s *scene) { s.answer(s.deliver("q", 1, 10), "ack", 20, unknown) },
		"acked after a restart": func(s *scene) {
			l := s.deliver("q", 1, 10)
			s.h.started(15)
			s.answer(l, "ack", 20, accepted)
		},
		"lease lost in a kill": func(s *scene) {
			old := s.deliver("q", 1, 10)
			s.h.started(15)
			s.answer(s.deliver("q", 1, 20), "ack", 25, accepted)
			s.answer(old, "ack", 30, refused)
		},
		"later lease lost in a kill": func(s *scene) {
			first := s.deliver("q", 1, 10)
			s.answer(first, "nack", 11, unknown)
			s.deliver("q", 2, 12)
			s.h.started(15)
			s.answer(first, "ack", 20, accepted)
		},
		"dead letter": func(s *scene) {
			s.answer(s.deliver("q", 1, 10), "term", 20, accepted)
			s.answer(s.deliver("q.dlq", 1, 21), "ack", 30, accepted)
		},
		"two owners in a trouble": func(s *scene) {
			s.h.troubledSince(5)
			l := s.deliver("q", 1, 10)
			s.deliver("q", 1, 12) // by the next owner, which does not know the lease
			s.answer(l, "ack", 15, accepted)
		},
		"another id in a trouble": func(s *scene) {
			s.h.troubledSince(5)
			s.h.published("k2", "q", "t", "payload")
			s.deliverOf("k2", "lost", "payload", "q", 1, 6)
			s.now = 20
			s.h.confirmed("k2", "kept")
			s.deliverOf("k2", "lost", "payload", "q", 2, 7) // the test sees it late
			s.h.settle("kept", s.h.answering(s.deliverOf("k2", "kept", "payload", "q", 1, 22), "ack", 0, 23), accepted)
			s.answer(s.deliver("q", 1, 24), "ack", 25, accepted)
		},
		"delay waited for": func(s *scene) {
			s.delayed(s.deliver("q", 1, 10), "nack", 50, 20, accepted)
			s.answer(s.deliver("q", 2, 70), "ack", 80, accepted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			play(s)
			require.Empty(t, s.h.check(true).problems)
		})
	}
}

// TestHistoryFindsWhatIsWrong: the checker finds each violation.
func TestHistoryFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		play func(s *scene)
		says string
	}{
		"never delivered":      {func(*scene) {}, "LOST"},
		"delivered, then gone": {func(s *scene) { s.deliver("q", 1, 10) }, "LOST"},
		"only refused acks":    {func(s *scene) { s.answer(s.deliver("q", 1, 10), "ack", 20, refused) }, "LOST"},
		"lost after a nack":    {func(s *scene) { s.answer(s.deliver("q", 1, 10), "nack", 20, accepted) }, "LOST"},
		"came back":            {func(s *scene) { s.answer(s.deliver("q", 1, 10), "ack", 20, accepted); s.deliver("q", 2, 30) }, "CAME BACK"},
		"came back as dead":    {func(s *scene) { s.answer(s.deliver("q", 1, 10), "ack", 20, accepted); s.deliver("q.dlq", 1, 30) }, "CAME BACK"},
		"came back after kill": {func(s *scene) {
			s.answer(s.deliver("q", 1, 10), "ack", 20, accepted)
			s.h.started(25)
			s.deliver("q", 1, 30)
		}, "CAME BACK"},
		"came back, late ack":  {func(s *scene) { s.deliver("q", 1, 10); s.h.started(15); s.comesBackOnce() }, "CAME BACK"},
		"stale ack accepted":   {func(s *scene) { s.staleAck() }, "stale token"},
		"token used twice":     {func(s *scene) { l := s.deliver("q", 1, 10); s.twice(l, "nack", "ack") }, "accepted 2 times"},
		"two acks":             {func(s *scene) { s.twice(s.deliver("q", 1, 10), "ack", "ack") }, "two acks"},
		"two leases at once":   {func(s *scene) { s.deliver("q", 1, 10); s.answer(s.deliver("q", 2, 50), "ack", 60, accepted) }, "two leases"},
		"attempt not counted":  {func(s *scene) { s.deliver("q", 1, 10); s.answer(s.deliver("q", 1, 200), "ack", 210, accepted) }, "attempt 1 after attempt 1"},
		"nack forgotten":       {func(s *scene) { s.nackForgotten() }, "confirmed nack"},
		"delay not waited for": {func(s *scene) { s.delayed(s.deliver("q", 1, 10), "nack", 50, 20, accepted); s.deliver("q", 2, 60) }, "delay"},
		"other payload":        {func(s *scene) { s.answer(s.deliverOf("k", "id", "paylaod", "q", 1, 10), "ack", 20, accepted) }, "payload"},
		"other id":             {func(s *scene) { s.deliverOf("k", "id2", "payload", "q", 1, 10) }, "two ids"},
		"other queue":          {func(s *scene) { s.answer(s.deliver("r", 1, 10), "ack", 20, accepted) }, "sent to q"},
		"same delivery twice":  {func(s *scene) { s.deliver("q", 1, 10); s.deliver("q", 1, 10) }, "delivered twice"},
		"came back in a trouble": {func(s *scene) {
			s.h.troubledSince(5)
			s.answer(s.deliver("q", 1, 10), "ack", 15, accepted)
			s.deliver("q", 1, 17)
		}, "CAME BACK"},
		"two ids in a trouble": {func(s *scene) {
			s.h.troubledSince(5)
			s.deliverOf("k", "id2", "payload", "q", 1, 10)
		}, "two ids"},
		"finished twice": {func(s *scene) {
			s.h.troubledSince(5)
			s.h.published("k2", "q", "t", "payload")
			for at, id := range []string{"one", "two"} {
				s.h.settle(id, s.h.answering(s.deliverOf("k2", id, "payload", "q", 1, int64(at+6)), "ack", 0, 20), accepted)
			}
		}, "two messages"},
		"confirmed with two ids": {func(s *scene) { s.h.confirmed("k", "id2") }, "two ids"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			tt.play(s)
			problems := s.h.check(true).problems
			require.NotEmpty(t, problems)
			require.Contains(t, problems[0]+problems[len(problems)-1], tt.says)
		})
	}
}

func (s *scene) twice(l *seenLease, first, second string) {
	s.answer(l, first, 20, accepted)
	s.answer(l, second, 21, accepted)
}

func (s *scene) comesBackOnce() {
	s.answer(s.deliver("q", 2, 120), "ack", 125, accepted)
	s.deliver("q", 3, 130)
}

func (s *scene) staleAck() {
	old := s.deliver("q", 1, 10)
	s.deliver("q", 2, 120)
	s.answer(old, "ack", 130, accepted)
}

func (s *scene) nackForgotten() {
	s.answer(s.deliver("q", 1, 10), "nack", 20, accepted)
	s.h.started(25)
	s.answer(s.deliver("q", 1, 30), "ack", 40, accepted)
}
