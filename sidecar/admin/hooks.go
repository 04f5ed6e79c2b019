package admin

import (
	"cmp"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// scriptOf returns the script of a hook in settings.
func scriptOf(s *wire.QueueSettings, hook string) *string {
	if hook == wire.HookOnFailure {
		return &s.OnFailure
	}
	return &s.OnEnqueue
}

// hookShow returns the script of a hook and the version before it.
func (a *Admin) hookShow(q *shard.Queue, req api.HookShowRequest) (api.HookReply, *wire.Error) {
	settings := q.Settings()
	reply := api.HookReply{Queue: q.Name(), Hook: req.Hook}
	reply.HookVersion, reply.Before = a.control.HookVersions(q.Name(), req.Hook, *scriptOf(&settings, req.Hook))
	return reply, nil
}

// hookSet replaces the script of a hook or rolls it back. The audit log gets the change
// without the script.
func (a *Admin) hookSet(by control.Actor, q *shard.Queue, req api.HookSetRequest) (reply api.HookReply, _ *wire.Error) {
	by.Reason = cmp.Or(req.Reason, by.Reason)
	_, warnings, err := a.changeQueue(by, q, func(old wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
		next := old.Clone()
		script := scriptOf(&next, req.Hook)
		if req.Rollback {
			_, earlier := a.control.HookVersions(q.Name(), req.Hook, *script)
			if earlier == nil {
				return old, wire.NoHookBefore(q.Name(), req.Hook)
			}
			*script = earlier.Script
		} else {
			*script = *req.Script
		}
		if err := next.Validate(); err != nil {
			return old, wire.BadQueueSettings(err)
		}
		return next, nil
	}, func(after wire.QueueSettings) {
		a.audit(by, control.QueueObject(q.Name()), map[string]any{"hook": req.Hook, "rollback": req.Rollback, "bytes": len(*scriptOf(&after, req.Hook)), "reason": by.Reason})
	})
	if err != nil {
		return reply, err
	}
	reply, err = a.hookShow(q, api.HookShowRequest{Hook: req.Hook})
	reply.Warnings = warnings
	return reply, err
}

// keepHooks stores the scripts that a change of settings has replaced. The caller holds the
// queue as an object.
func (a *Admin) keepHooks(by control.Actor, before, after wire.QueueSettings, reason string) *wire.Error {
	for _, hook := range []string{wire.HookOnEnqueue, wire.HookOnFailure} {
		old, script := *scriptOf(&before, hook), *scriptOf(&after, hook)
		if old == script {
			continue
		}
		if err := a.control.KeepHook(by, after.Name, hook, old, script, reason); err != nil {
			return err
		}
	}
	return nil
}
