package natsio

import (
	"maps"
	"slices"

	"github.com/nats-io/nats.go/micro"

	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
)

// GuardVerb carries out a request of a verb of the guard with the tail of its subject,
// and returns the reply and its headers.
type GuardVerb func(tail string, body []byte) ([]byte, map[string][]string, *wire.Error)

// ServeGuard adds the verbs of the guard by name to the micro service, which
// ServeRequests has begun. When it returns they can be reached.
func (f *Front) ServeGuard(s *shard.Shard, verbs map[string]GuardVerb) error {
	for _, name := range slices.Sorted(maps.Keys(verbs)) {
		do := verbs[name]
		handle := func(req micro.Request) {
			f.calls.RLock()
			defer f.calls.RUnlock()
			tail, ok := f.Subjects.ParseGuard(name, req.Subject())
			switch {
			case !ok:
				f.respondError(req, wire.BadSubject(req.Subject()))
			case req.Reply() == "" && name != wire.GuardDone: // nobody would hear of the permit
			case s.Draining() && name == wire.GuardCheck:
				f.respondError(req, wire.Draining())
			default:
				reply, headers, err := do(tail, req.Data())
				if err != nil {
					s.Refuse("", err) // counts it
					f.respondError(req, err)
					return
				}
				f.respond(req, reply, micro.WithHeaders(headers))
			}
		}
		if err := f.serve(s, "guard-"+name, f.Subjects.Guard(name, ">"), handle); err != nil {
			return err
		}
	}
	return f.Flush()
}
