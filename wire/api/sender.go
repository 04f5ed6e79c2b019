package api

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/filaq/fila/wire"
)

// Sender is who sends an admin request and why, as its headers say. Client names who asks, and Owner
// in whose name, such as a team or service.
//
// A value of the runtime configuration, a queue or a schedule belongs to the last owner who has
// changed it. Others change it only if they expect the present value or have Force.
type Sender struct {
	Client string // empty: not known
	Owner  string // empty: nobody's; what it changes keeps its owner
	Reason string // for the audit log, and beside the owner
	Force  bool   // also change what belongs to another owner
}

// Headers of a request by the sender. Line breaks of the reason become spaces.
func (s Sender) Headers() map[string][]string {
	h := make(map[string][]string)
	for name, value := range map[string]string{wire.HeaderClient: s.Client, wire.HeaderOwner: s.Owner, wire.HeaderReason: s.Reason} {
		if value != "" {
			h[name] = []string{wire.HeaderValue(value)}
		}
	}
	if s.Force {
		h[wire.HeaderForce] = []string{strconv.FormatBool(true)}
	}
	return h
}

// ParseSender reads the headers of a request, and refuses a wrong owner, reason or force.
func ParseSender(get func(header string) string) (s Sender, err *wire.Error) {
	s = Sender{Client: get(wire.HeaderClient), Owner: get(wire.HeaderOwner), Reason: strings.TrimSpace(get(wire.HeaderReason))}
	if s.Owner != "" {
		if err := wire.CheckName("owner", s.Owner, wire.MaxPolicyName); err != nil {
			return s, wire.BadHeaderValue(wire.HeaderOwner, s.Owner, err.Error())
		}
	}
	if len(s.Reason) > MaxJobReason || !utf8.ValidString(s.Reason) {
		return s, wire.BadHeaderValue(wire.HeaderReason, s.Reason, "allowed are "+strconv.Itoa(MaxJobReason)+" bytes of UTF-8")
	}
	switch text := get(wire.HeaderForce); text {
	case "", "false":
	case "true":
		s.Force = true
	default:
		return s, wire.BadHeaderValue(wire.HeaderForce, text, "allowed are true and false")
	}
	return s, nil
}

// Owner is the owner of an object: the value of its key owner:<kind>:<name> in the runtime
// configuration.
type Owner struct {
	Owner  string `json:"owner"`
	Reason string `json:"reason,omitempty"` // of the owner's last change that gave one
}

// Text returns the value of the key: the name alone if there is no reason, otherwise JSON.
func (o Owner) Text() string {
	if o.Reason == "" {
		return o.Owner
	}
	text, _ := json.Marshal(o) // two strings
	return string(text)
}

// ReadOwner is the inverse of Text. With an error the owner has the text as its name.
func ReadOwner(text string) (o Owner, err error) {
	if !strings.HasPrefix(text, "{") {
		o.Owner = text
	} else if err = json.Unmarshal([]byte(text), &o); err != nil || o.Owner == "" {
		o = Owner{Owner: text}
	}
	return o, cmp.Or(err, wire.CheckName("owner", o.Owner, wire.MaxPolicyName))
}
