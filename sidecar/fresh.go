package sidecar

// freshWindow holds the messages that came in lately and are not known to be on
// disk, by sequence: they are delivered from here, since the store cannot be asked
// for them. Their sequences are close together, so it is a window over them.
type freshWindow struct {
	items []*incoming // items[i] is that of sequence base+i; nil: none
	base  uint64
}

func (w *freshWindow) put(seq uint64, in *incoming) {
	if len(w.items) == 0 {
		w.base = seq
	}
	// A move into the queue takes a sequence between those of enqueues.
	for seq > w.base+uint64(len(w.items)) {
		w.items = append(w.items, nil)
	}
	w.items = append(w.items, in)
}

// get returns the message of seq, or nil if it is on disk, or gone.
func (w *freshWindow) get(seq uint64) *incoming {
	if i := seq - w.base; seq >= w.base && i < uint64(len(w.items)) {
		return w.items[i]
	}
	return nil
}

// drop forgets seq, and the room in front of the oldest that is left.
func (w *freshWindow) drop(seq uint64) {
	if w.get(seq) == nil {
		return
	}
	w.items[seq-w.base] = nil
	n := 0
	for n < len(w.items) && w.items[n] == nil {
		n++
	}
	w.items = w.items[n:]
	w.base += uint64(n)
	if len(w.items) == 0 {
		w.items = nil
	}
}
