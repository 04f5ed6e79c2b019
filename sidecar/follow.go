package sidecar

// Sites that wait for each other. Lanes that all pass the same gates would wander
// from one to the next, each when the gate where it waits opens and another is shut:
// all of them for one delivery. So a site all of whose lanes pass the same gates
// waits, after one of them was held back elsewhere, until that other gate opens.

// stood notes that a lane has joined the line of a site.
func (st *site) stood(ln *lane) {
	if st.line.Len() == 1 {
		st.set, st.via, st.mixed = ln.set, ln.circuit, false
	} else if st.set != ln.set || st.via != ln.circuit {
		st.mixed = true
	}
}

// follow has a site wait for another one, at whose gate one of its lanes was held
// back after it had been called: the rest of them, if they all pass the same gates,
// would come there one after the other and be held back as well.
func (l *loop) follow(id, to siteID) {
	st := l.sites.at(id)
	other := l.sites.at(to)
	if st.mixed || st.follows != 0 || st.line.Len() == 0 || other.kind == sitePause {
		return // a pause concerns one flow
	}
	if r := l.reserving; r != 0 && l.lanes.at(r).site == id {
		return // that lane holds what the others wait for
	}
	for next := to; next != 0; next = l.sites.at(next).follows {
		if next == id {
			return // nobody would lead
		}
	}
	st.budget, st.follows = 0, to
	other.followers = append(other.followers, id)
}

// lead has those that follow a site look for themselves: its gate has opened, or
// nothing waits there any more.
func (l *loop) lead(st *site) {
	for _, id := range st.followers {
		if f := l.sites.at(id); f.kind != siteFree && f.follows != 0 {
			f.follows, f.notBefore = 0, 0
			l.lookLater(id)
		}
	}
	st.followers = st.followers[:0]
}
