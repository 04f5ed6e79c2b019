package ordered

// Recent keeps values by key: the ones that were put last, from some number to twice as many. Its
// zero value is empty.
type Recent[V any] struct{ young, old map[string]V }

// Put keeps the value of a key, and forgets old ones if there are more than twice least. It costs
// the same however many there are.
func (r *Recent[V]) Put(key string, value V, least int) {
	if len(r.young) >= least {
		r.old, r.young = r.young, nil
	}
	if r.young == nil {
		r.young = make(map[string]V)
	}
	delete(r.old, key)
	r.young[key] = value
}

// Get returns the value of a key, if it is kept.
func (r *Recent[V]) Get(key string) (value V, ok bool) {
	if value, ok = r.young[key]; !ok {
		value, ok = r.old[key]
	}
	return value, ok
}

// Remove forgets a key.
func (r *Recent[V]) Remove(key string) {
	delete(r.young, key)
	delete(r.old, key)
}

// Len is how many values are kept.
func (r *Recent[V]) Len() int { return len(r.young) + len(r.old) }
