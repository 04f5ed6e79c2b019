package natsio

import (
	"strings"

	"github.com/filaq/fila/wire"
)

// checkReply refuses a request whose reply subject is not allowed: the sender chooses it, but
// fila would publish with its own permissions. It logs the refusal, since it cannot answer.
func (f *Front) checkReply(subject, reply string) *wire.Error {
	if reply == "" || f.answers(reply, "") {
		return nil
	}
	err := wire.BadReplySubject(reply, "allowed are subjects that begin with "+strings.Join(f.ReplyPrefixes, " or "))
	f.Log.Warn("a request is refused without a reply (nats.reply_prefixes)", "subject", subject, "error", err.Description)
	return err
}

// answers reports whether fila may publish to a subject, which has to begin with a reply prefix
// followed by owner.
func (f *Front) answers(subject, owner string) bool {
	for _, prefix := range f.ReplyPrefixes {
		rest, ok := strings.CutPrefix(subject, prefix)
		if ok && strings.HasPrefix(rest, owner) && len(rest) > len(owner) {
			return literal(subject)
		}
	}
	return false
}

// literal reports whether a subject consists of nonempty tokens without wildcards.
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
