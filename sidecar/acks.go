package sidecar

import (
	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/wire"
)

// parseReply reads what came on a reply subject.
type parseReply func(payload []byte, headers map[string][]string) (wire.Ack, *wire.Error)

// onReply returns the callback of the ack or nack subjects: it checks the token
// and posts to the loop of its queue.
func (s *Server) onReply(parse parseReply) nats.MsgHandler {
	return func(m *nats.Msg) {
		c := s.core
		token, name, ok := c.subjects.ParseToken(m.Subject)
		if !ok {
			s.refuseUnknown(m.Reply, wire.BadSubject(m.Subject))
			return
		}
		q := s.queues.get(name)
		if q == nil {
			s.refuseUnknown(m.Reply, wire.QueueNotFound(name))
			return
		}
		t, err := c.signer.Parse(token, name)
		if err != nil {
			c.refuse(q, m.Reply, wire.TokenRefused())
			return
		}
		if m.Reply != "" && c.subjects.Owns(m.Reply) {
			c.refuse(q, "", wire.BadReplySubject(m.Reply, ownReplyText))
			return
		}
		ack, werr := parse(m.Data, m.Header)
		if werr != nil {
			c.refuse(q, m.Reply, werr)
			return
		}
		if !q.post(event{kind: evAck, token: t, ack: ack, reply: m.Reply}, m.Sub) {
			c.refuse(q, m.Reply, q.gone())
		}
	}
}

const ownReplyText = "subjects under fila's own prefix are not allowed"

// refuseUnknown refuses what belongs to no queue that exists.
func (s *Server) refuseUnknown(replyTo string, e *wire.Error) {
	s.core.metrics.refused(e.ErrCode)
	s.core.replyError(replyTo, e)
}
