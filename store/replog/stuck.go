package replog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// A leader of a stream counts the records that it has proposed, and compares the expected sequence
// of a record with that. If it counts a proposal that never comes into the stream, it refuses every
// record until another server leads: seen with nats-server 2.15.2, after two of three servers had
// come back with older disks. So a node asks such a leader to step down.

const (
	// stuckTries and stuckFor are how often and how long a leader must have refused records behind
	// the end that it reports. A proposal that is on its way takes less.
	stuckTries = 5
	stuckFor   = 3 * time.Second
)

// refusals counts records that the leader has refused although they come behind its last one.
type refusals struct {
	mu     sync.Mutex
	behind uint64
	since  time.Time
	tries  int
}

// note notes whether a record was refused. It returns true if the leader is stuck, and counts
// anew then.
func (r *refusals) note(now time.Time, behind uint64, refused bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !refused:
		r.tries = 0
		return false
	case r.tries == 0 || r.behind != behind:
		r.behind, r.since, r.tries = behind, now, 0
	}
	r.tries++
	if r.tries < stuckTries || now.Sub(r.since) < stuckFor {
		return false
	}
	r.tries = 0
	return true
}

// checkLeader notes whether the leader took a record behind a sequence, and asks a leader that is
// stuck to step down.
func (j *streamJournal) checkLeader(ctx context.Context, behind uint64, refused bool) {
	if refused {
		st, err := j.state(ctx)
		if err != nil {
			return
		}
		refused = st.last == behind
	}
	if !j.refusals.note(j.o.Now(), behind, refused) {
		return
	}
	log := j.o.Log.With("shard", j.o.Shard, "stream", j.name, "last", behind)
	if err := j.stepDown(ctx); err != nil {
		log.Error("replog: the leader of the stream refuses records at the end that it reports, and does not step down; let another server lead it (nats stream cluster step-down), and allow fila $JS.API.STREAM.LEADER.STEPDOWN", "error", err)
		return
	}
	log.Warn("replog: the leader of the stream refused records at the end that it reports; fila has asked it to step down")
}

// stepDown asks the leader of the stream to step down. A request without permission gets no
// answer.
func (j *streamJournal) stepDown(ctx context.Context) error {
	m, err := j.o.JS.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+j.name, nil)
	if err != nil {
		return err
	}
	var reply struct {
		Success bool            `json:"success"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil || !reply.Success {
		return fmt.Errorf("the answer is %.200s", m.Data)
	}
	return nil
}
