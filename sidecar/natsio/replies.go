package natsio

import (
	"strings"

	"github.com/filaq/fila/wire"
)

// checkReply refuses a request on a subject whose reply subject fila does not publish
// to: whoever sends a request chooses where its answer goes, and fila's rights there
// are not the sender's. The sender cannot be told, so the log is.
func (f *Front) checkReply(subject, reply string) *wire.Error {
	if reply == "" || f.answers(reply, "") {
		return nil
	}
	err := wire.BadReplySubject(reply, "allowed are subjects that begin with "+strings.Join(f.ReplyPrefixes, " or "))
	f.Log.Warn("a request is refused that cannot be answered (nats.reply_prefixes)", "subject", subject, "error", err.Description)
	return err
}

// answers reports whether a subject is one that can be published to, and goes on with
// owner after one of the prefixes of reply subjects.
func (f *Front) answers(subject, owner string) bool {
	for _, prefix := range f.ReplyPrefixes {
		rest, ok := strings.CutPrefix(subject, prefix)
		if ok && strings.HasPrefix(rest, owner) && len(rest) > len(owner) {
			return literal(subject)
		}
	}
	return false
}

// literal reports whether a subject consists of tokens that are neither empty nor
// wildcards.
func literal(subject string) bool {
	last := byte('.')
	for i := range len(subject) {
		c := subject[i]
		if c <= ' ' || c == '*' || c == '>' || c == '.' && last == '.' {
			return false
		}
		last = c
	}
	return last != '.'
}
