package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/filaq/fila/store"
)

// step is a batch and the error that it is refused with; nil: none.
type step struct {
	store.Batch
	want error
}

// scripts returns batches by what they show. After each of them a store answers like a
// [Model] that got the same batches.
func scripts() map[string][]step {
	return map[string][]step{
		"Messages":         messageScript(),
		"Read":             {queues(2), add(ref(1, 1), ref(2, 1), ref(1, 2), ref(2, 2)), add(ref(1, 3), ref(2, 7))},
		"RecoveryOrder":    {queues(3), add(ref(3, 1)), add(ref(1, 2)), add(ref(2, 1<<20)), add(ref(1, 700)), add(ref(2, 5)), add(ref(1, 3))},
		"Finish":           finishScript(),
		"State":            stateScript(),
		"History":          historyScript(),
		"HistoryIsBounded": boundedHistoryScript(),
		"HistoryMoves":     movedHistoryScript(),
		"Move":             moveScript(),
		"MoveRefused":      refusedMoves(),
		"Refusals":         refusals(),
		"Queues":           queueScript(),
		"DeleteQueue":      deleteQueueScript(),
		"Consumers":        consumerScript(),
		"Config": {
			{Batch: store.Batch{PutConfig: []store.Entry{{Key: "b", Value: "2"}, {Key: "a", Value: ""}, {Key: "b", Value: "3"}}}},
			{Batch: store.Batch{PutConfig: []store.Entry{{Key: "c", Value: "x"}}, DeleteConfig: []string{"a", "c", "none", ""}}},
		},
		"Dedupe": dedupeScript(),
	}
}

// queues makes queues 1 to n.
func queues(n int) step {
	var s step
	for i := range n {
		s.PutQueues = append(s.PutQueues, store.QueueRecord{ID: store.QueueID(i + 1), Name: string(rune('a' + i))})
	}
	return s
}

func add(refs ...store.Ref) step { return step{Batch: store.Batch{Add: messages(refs...)}} }

func messages(refs ...store.Ref) (all []store.Message) {
	for _, r := range refs {
		all = append(all, message(r.Queue, r.Seq))
	}
	return all
}

func finish(refs ...store.Ref) step { return step{Batch: store.Batch{Finish: refs}} }

func move(from, to store.Ref) store.Move {
	return store.Move{From: from, To: message(to.Queue, to.Seq)}
}

func attempt(r store.Ref, record string) store.Attempt {
	return store.Attempt{Ref: r, Record: []byte(record)}
}

func attempts(all ...store.Attempt) step { return step{Batch: store.Batch{History: all}} }

func states(all ...store.State) step { return step{Batch: store.Batch{State: all}} }

// messageScript has messages with every field, with none, and dead letters.
func messageScript() []step {
	dead, empty := message(2, 1), message(2, 2)
	dead.Dead = &store.Dead{Reason: "max_deliveries", Error: "boom", ErrorCode: "E1", SourceQueue: "a", At: 77, Attempts: 20}
	empty.Dead = &store.Dead{}
	state := store.State{
		Ref: ref(1, 1), Attempts: 3, ReadyAt: 99, LastError: "timeout",
		Lease: store.Lease{ID: 1 << 60, Consumer: "c1", Deadline: 1234, DeliveredAt: 999, Held: "held"},
	}
	return []step{
		queues(2),
		{Batch: store.Batch{Add: []store.Message{message(1, 1), {Ref: ref(1, 9)}, dead, empty}, State: []store.State{state}}},
		{Batch: store.Batch{Add: messages(ref(1, 2)), Move: []store.Move{{From: ref(1, 1), To: store.Message{Ref: ref(2, 3), Dead: dead.Dead}}}}},
		// A queue and its first message may come together.
		{Batch: store.Batch{PutQueues: []store.QueueRecord{{ID: 3, Name: "new"}}, Add: messages(ref(3, 1))}},
	}
}

// finishScript finishes messages once, twice and without any there. A number may come
// again when its message is finished.
func finishScript() []step {
	return []step{
		queues(1), add(ref(1, 1), ref(1, 2), ref(1, 3)),
		finish(ref(1, 2), ref(1, 2), ref(1, 77), ref(5, 1)), finish(ref(1, 2)), add(ref(1, 2)),
		finish(ref(1, 1), ref(1, 2), ref(1, 3)), add(ref(1, 4)),
		{Batch: store.Batch{ // a message that is finished within its batch
			Add:   messages(ref(1, 5), ref(1, 6)),
			State: []store.State{{Ref: ref(1, 5), Attempts: 1}, {Ref: ref(1, 6), Attempts: 2}}, Finish: []store.Ref{ref(1, 5)},
		}},
	}
}

func stateScript() []step {
	st := func(seq uint64, attempts uint32) store.State {
		return store.State{Ref: ref(1, seq), Attempts: attempts, Lease: store.Lease{ID: 5, Consumer: "c"}}
	}
	return []step{
		queues(1), add(ref(1, 1), ref(1, 2), ref(1, 3)),
		states(st(1, 1), st(2, 1), st(9, 1), st(1, 2)), states(st(2, 5)),
		{Batch: store.Batch{State: []store.State{st(3, 8)}, Finish: []store.Ref{ref(1, 2)}}},
		states(st(2, 9)),
	}
}

// historyScript: a history ends with its message; a later one with the number has none.
func historyScript() []step {
	long := strings.Repeat("x", store.MaxAttemptBytes+1)
	return []step{
		queues(2),
		{Batch: store.Batch{
			Add:     messages(ref(1, 1), ref(1, 2), ref(2, 1)),
			History: []store.Attempt{attempt(ref(1, 1), "one"), attempt(ref(1, 9), "of nobody"), attempt(ref(2, 1), "other"), attempt(ref(1, 1), "two")},
		}},
		attempts(attempt(ref(1, 1), "three"), attempt(ref(1, 2), "first")),
		{Batch: store.Batch{Finish: []store.Ref{ref(1, 1), ref(1, 2)}, History: []store.Attempt{attempt(ref(1, 1), "late")}}},
		{Batch: store.Batch{Add: messages(ref(1, 1), ref(1, 2)), History: []store.Attempt{attempt(ref(1, 2), "anew")}}},
		{Batch: store.Batch{DeleteQueues: []store.QueueID{1}}},
		{attempts(attempt(ref(2, 1), "")).Batch, store.ErrInvalid},
		{attempts(attempt(ref(2, 1), long)).Batch, store.ErrTooBig},
		attempts(attempt(ref(2, 1), long[1:])),
	}
}

// boundedHistoryScript has too many records and records that are too long together.
func boundedHistoryScript() []step {
	all := []step{queues(1), add(ref(1, 1), ref(1, 2))}
	for i := range store.MaxHistory + 3 {
		all = append(all, attempts(attempt(ref(1, 1), fmt.Sprint(i))))
	}
	var long []store.Attempt
	for i := range 10 {
		long = append(long, attempt(ref(1, 2), strings.Repeat(fmt.Sprint(i), store.MaxAttemptBytes)))
	}
	return append(all, attempts(long...), attempts(attempt(ref(1, 2), "small")))
}

func movedHistoryScript() []step {
	return []step{
		queues(2),
		{Batch: store.Batch{Add: messages(ref(1, 1), ref(1, 2)), History: []store.Attempt{attempt(ref(1, 1), "one")}}},
		{Batch: store.Batch{
			Move:    []store.Move{move(ref(1, 1), ref(2, 1)), move(ref(1, 2), ref(2, 2))},
			History: []store.Attempt{attempt(ref(2, 1), "two"), attempt(ref(1, 1), "of nobody"), attempt(ref(2, 2), "first")},
		}},
		// There and back, and a number that is free again, in one batch each.
		{Batch: store.Batch{
			Add:     messages(ref(1, 3)),
			Move:    []store.Move{move(ref(2, 1), ref(1, 4)), move(ref(1, 4), ref(2, 3)), move(ref(2, 2), ref(1, 1))},
			History: []store.Attempt{attempt(ref(2, 3), "three")},
		}},
		{Batch: store.Batch{Move: []store.Move{move(ref(2, 3), ref(1, 5))}, Finish: []store.Ref{ref(1, 5)}}},
		add(ref(1, 5), ref(2, 3)),
	}
}

// moveScript: headers and payload come from the source, everything else from the target.
func moveScript() []step {
	to := store.Message{Ref: ref(2, 1), ID: store.ID{1, 1}, Class: store.Class{Key: "k"}, Dead: &store.Dead{Reason: "on_failure"}, Payload: []byte("ignored")}
	return []step{
		queues(2),
		{Batch: store.Batch{Add: messages(ref(1, 1), ref(1, 2)), State: []store.State{{Ref: ref(1, 1), Attempts: 4}}}},
		{Batch: store.Batch{Move: []store.Move{{From: ref(1, 1), To: to}}, State: []store.State{{Ref: ref(2, 1), Attempts: 9}}}},
		// Added, moved and moved on in one batch.
		{Batch: store.Batch{Add: messages(ref(1, 3)), Move: []store.Move{move(ref(1, 3), ref(2, 2)), move(ref(2, 2), ref(1, 4))}}},
	}
}

func refusedMoves() []step {
	all := []step{queues(2), add(ref(1, 1), ref(1, 2), ref(2, 1))}
	for _, c := range []struct {
		want  error
		moves []store.Move
	}{
		{store.ErrNotFound, []store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 9), ref(2, 3))}}, // unknown source
		{store.ErrNotFound, []store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 1), ref(2, 3))}}, // source twice
		{store.ErrNotFound, []store.Move{move(ref(7, 1), ref(2, 2))}},
		{store.ErrDuplicate, []store.Move{move(ref(1, 1), ref(2, 1))}},
		{store.ErrDuplicate, []store.Move{move(ref(1, 1), ref(2, 2)), move(ref(1, 2), ref(2, 2))}}, // target twice
		{store.ErrDuplicate, []store.Move{move(ref(1, 1), ref(1, 1))}},
		{store.ErrNoQueue, []store.Move{move(ref(1, 1), ref(7, 1))}},
	} {
		all = append(all, step{store.Batch{Add: messages(ref(1, 50)), Move: c.moves, Finish: []store.Ref{ref(1, 2)}}, c.want})
	}
	return all
}

// refusals has batches that are refused as a whole, one for each reason.
func refusals() []step {
	long := strings.Repeat("x", store.MaxHeaderBytes)
	huge := make([]byte, store.MaxMessageBytes+1)
	q := func(id store.QueueID, name string) []store.QueueRecord {
		return []store.QueueRecord{{ID: id, Name: name}}
	}
	all := []step{
		{store.Batch{Add: messages(ref(1, 2), ref(1, 2))}, store.ErrDuplicate},
		{store.Batch{Add: messages(ref(2, 1))}, store.ErrNoQueue},
		{store.Batch{PutQueues: q(2, "b"), Add: messages(ref(2, 1), ref(3, 1))}, store.ErrNoQueue}, // nor is queue 2 made
		{store.Batch{Add: []store.Message{{Ref: ref(1, 2), Payload: huge}}}, store.ErrTooBig},
		{store.Batch{Add: []store.Message{{Ref: ref(1, 2), Class: store.Class{Key: long}}}}, store.ErrTooBig},
		{store.Batch{State: []store.State{{Ref: ref(1, 1), LastError: long}}}, store.ErrTooBig},
		{store.Batch{Move: []store.Move{{From: ref(1, 1), To: store.Message{Ref: ref(1, 2), Class: store.Class{Key: long}}}}}, store.ErrTooBig},
		{store.Batch{PutQueues: q(0, "b")}, store.ErrInvalid},
		{store.Batch{PutQueues: q(2, "")}, store.ErrInvalid},
		{store.Batch{PutConsumers: []store.ConsumerRecord{{Queue: 2, Name: "c"}}}, store.ErrNoQueue},
		{store.Batch{PutConsumers: []store.ConsumerRecord{{Queue: 1}}}, store.ErrInvalid},
		{store.Batch{Dedupe: []store.Dedupe{{Queue: 2, DedupeID: "d"}}}, store.ErrNoQueue},
		{store.Batch{Dedupe: []store.Dedupe{{Queue: 1}}}, store.ErrInvalid},
		{store.Batch{Dedupe: []store.Dedupe{{Queue: 1, DedupeID: long}}}, store.ErrTooBig},
		{store.Batch{PutConfig: []store.Entry{{Value: "v"}}}, store.ErrInvalid},
		{store.Batch{PutConfig: []store.Entry{{Key: "k", Value: long + "x"}}}, store.ErrTooBig},
	}
	for i := range all {
		all[i].Finish = []store.Ref{ref(1, 1)}
	}
	return append([]step{queues(1), add(ref(1, 1))}, all...)
}

func queueScript() []step {
	a := store.QueueRecord{ID: 1, Name: "a", Settings: []byte(`{"x":1}`)}
	other := store.QueueRecord{ID: 1, Name: "a", Settings: []byte("other")}
	put := func(all ...store.QueueRecord) store.Batch { return store.Batch{PutQueues: all} }
	return []step{
		{Batch: put(store.QueueRecord{ID: 2, Name: "b"}, a)},
		{Batch: put(other, store.QueueRecord{ID: 40, Name: "far"})},
		{put(store.QueueRecord{ID: 39, Name: "late"}), store.ErrInvalid},
	}
}

// deleteQueueScript deletes a queue with everything of it, messages of the same batch too.
// Its id is never used again.
func deleteQueueScript() []step {
	all := []step{queues(2)}
	until := time.Now().Add(time.Hour).UnixNano()
	for seq := range uint64(20) {
		all = append(all, step{Batch: store.Batch{
			Add:          messages(ref(1, seq), ref(2, seq)),
			State:        []store.State{{Ref: ref(1, seq), Attempts: 1}, {Ref: ref(2, seq), Attempts: 1}},
			Dedupe:       []store.Dedupe{{Queue: 1, DedupeID: "d", Until: until}, {Queue: 2, DedupeID: "d", Until: until}},
			PutConsumers: []store.ConsumerRecord{{Queue: 1, Name: "c"}, {Queue: 2, Name: "c"}},
		}})
	}
	again := store.Batch{PutQueues: []store.QueueRecord{{ID: 1, Name: "a"}}}
	return append(all, step{Batch: store.Batch{Add: messages(ref(1, 30)), DeleteQueues: []store.QueueID{1, 9}}},
		step{add(ref(1, 31)).Batch, store.ErrNoQueue}, step{again, store.ErrInvalid}, add(ref(2, 30)), step{again, store.ErrInvalid})
}

func consumerScript() []step {
	c1 := store.ConsumerRecord{Queue: 1, Name: "c1", MaxInFlight: 64, ExpiresAt: 1 << 60, Reg: 7}
	changed := c1
	changed.MaxInFlight = 65
	return []step{
		queues(2),
		{Batch: store.Batch{PutConsumers: []store.ConsumerRecord{c1, {Queue: 2, Name: "c1", MaxInFlight: 1, Form: store.DeliveryForm{MinHeaders: true, Batch: 64, BatchBytes: 1 << 20}}, {Queue: 1, Name: "c0"}}}},
		{Batch: store.Batch{
			PutConsumers:    []store.ConsumerRecord{changed, {Queue: 1, Name: "gone"}},
			DeleteConsumers: []store.ConsumerRecord{{Queue: 1, Name: "c0"}, {Queue: 1, Name: "gone"}, {Queue: 7, Name: "x"}},
		}},
	}
}

// dedupeScript: a dedupe id outlives its message.
func dedupeScript() []step {
	now := time.Now()
	d := func(q store.QueueID, id string, in time.Duration) store.Dedupe {
		return store.Dedupe{Queue: q, DedupeID: id, ID: store.ID{1: byte(q)}, Until: now.Add(in).UnixNano()}
	}
	return []step{
		queues(2),
		{Batch: store.Batch{Dedupe: []store.Dedupe{d(1, "a", time.Hour), d(2, "a", 2*time.Hour), d(1, "old", -time.Second), d(1, "zero", 0)}}},
		{Batch: store.Batch{Dedupe: []store.Dedupe{d(1, "b", time.Minute), d(1, "far", 1000*time.Hour)}}},
		{Batch: store.Batch{Add: messages(ref(1, 1)), Dedupe: []store.Dedupe{d(1, "m", time.Hour)}}},
		finish(ref(1, 1)),
	}
}
