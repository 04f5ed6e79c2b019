package admin

import "sync"

// objects orders changes: two changes of one object, and their entries in the audit log, do
// not overlap. Changes of other objects run meanwhile. Nothing that waits for a job or for a
// dry run holds an object.
type objects struct {
	mu   sync.Mutex
	held map[string]*object
}

type object struct {
	// changing holds one element during a change. It is no mutex, since in a bubble of
	// testing/synctest no time passes while a goroutine waits for one.
	changing chan struct{}
	users    int // that change it or wait for it; guarded by objects.mu
}

// lock waits until no other change of an object is under way.
func (o *objects) lock(name string) (unlock func()) {
	o.mu.Lock()
	if o.held == nil {
		o.held = make(map[string]*object)
	}
	at := o.held[name]
	if at == nil {
		at = &object{changing: make(chan struct{}, 1)}
		o.held[name] = at
	}
	at.users++
	o.mu.Unlock()
	at.changing <- struct{}{}
	return func() {
		<-at.changing
		o.mu.Lock()
		defer o.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(o.held, name)
		}
	}
}
