package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// found returns the sequences of the messages that match a filter, checking slots messages at a
// time.
func (r *rig) found(q *Queue, body string, slots int) (at []uint64) {
	r.t.Helper()
	f, err := api.ParseFilter([]byte(body), time.Now())
	require.Nil(r.t, err, body)
	fd, err := q.Finder(f, 0)
	require.Nil(r.t, err, body)
	for from := uint64(0); ; {
		views, next, err := fd.Find(from, 2, slots, nil)
		require.Nil(r.t, err)
		require.LessOrEqual(r.t, len(views), 2)
		for _, v := range views {
			at = append(at, v.Seq)
		}
		if from = next; next == 0 {
			return at
		}
	}
}

// TestDeadLettersAreFound by the machine and by the store.
func TestDeadLettersAreFound(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(1)) })
		r.consume(q, "w", 10)
		died := make([]time.Time, 6)
		for i := range 6 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nats.Header{"tenant": {[]string{"a", "b"}[i%2]}, "n": {fmt.Sprint(i), "x"}}))
			ack := wire.Ack{Kind: wire.AckNack, Error: fmt.Sprintf("order %d is gone", 7*i), ErrorCode: []string{"", "402"}[i/3]}
			if i == 5 {
				ack = wire.Ack{Kind: wire.AckTerm}
			}
			died[i] = time.Now()
			r.ack(r.one("w"), ack, "")
			time.Sleep(time.Minute)
		}
		group := func(i int) string {
			return deadletter.GroupID(&store.Dead{SourceQueue: q.Name(), Error: "order 1 is gone", ErrorCode: []string{"", "402"}[i]})
		}
		for body, want := range map[string][]uint64{
			`{"all":true}`:                              {1, 2, 3, 4, 5, 6},
			`{"state":"dead"}`:                          {1, 2, 3, 4, 5, 6},
			`{"state":"leased"}`:                        nil,
			`{"header":{"Tenant":"a"}}`:                 {1, 3, 5},
			`{"header":{"tenant":"b","n":"3"}}`:         {4},
			`{"header":{"n":"x","tenant":"c"}}`:         nil,
			`{"reason":"term"}`:                         {6},
			`{"reason":"max_deliveries"}`:               {1, 2, 3, 4, 5},
			`{"error_code":"402"}`:                      {4, 5},
			`{"error_contains":"28 is"}`:                {5},
			`{"error_group":"` + group(0) + `"}`:        {1, 2, 3},
			`{"error_group":"` + group(1) + `"}`:        {4, 5},
			`{"error_group":"0123456789abcdef"}`:        nil,
			`{"attempts_min":1}`:                        {1, 2, 3, 4, 5, 6},
			`{"attempts_min":2}`:                        nil,
			`{"died_after":"` + stamp(died[3]) + `"}`:   {4, 5, 6},
			`{"died_before":"` + stamp(died[3]) + `"}`:  {1, 2, 3},
			`{"died_after":"3m30s","reason":"term"}`:    {6},
			`{"error_code":"402","header":{"n":"4"}}`:   {5},
			`{"error_code":"402","keys":["nobody"]}`:    nil,
			`{"reason":"term","header":{"tenant":"a"}}`: nil,
		} {
			for _, slots := range []int{1, 4, 1000} {
				require.Equal(t, want, r.found(q.DLQ(), body, slots), "%s, %d slots", body, slots)
			}
		}
	})
}

// TestMessagesAreFoundByTheirLastError while they wait for another attempt.
func TestMessagesAreFoundByTheirLastError(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(func(s *wire.QueueSettings) { s.MaxDeliveries = new(int64(3)) })
		r.consume(q, "w", 1)
		fail := func(text, code string, delay time.Duration) {
			r.ack(r.one("w"), wire.Ack{Kind: wire.AckNack, Error: text, ErrorCode: code, HasDelay: true, Delay: delay}, "")
			time.Sleep(time.Second)
		}
		send := func(body string) {
			require.Nil(t, r.enqueue(body, "", nat("tenant", body)))
			time.Sleep(time.Second)
		}
		send("a")
		fail("order 1 is gone", "", 3*time.Second) // 1: fails twice, and is delayed
		time.Sleep(3 * time.Second)
		fail("order 2 is broken", "500", time.Hour)
		send("b")
		fail("order 3 is gone", "402", time.Hour) // 2
		send("c")
		fail("", "", time.Hour) // 3: says nothing
		send("d")               // 4: is leased, and has not failed
		send("e")               // 5: waits
		r.one("w")
		group := deadletter.GroupID(&store.Dead{SourceQueue: q.Name(), Error: "order 77 is gone", ErrorCode: "402"})
		for body, want := range map[string][]uint64{
			`{"error_contains":"order"}`:                         {1, 2},
			`{"error_contains":"gone"}`:                          {2},
			`{"error_contains":"gone","keys":["x"]}`:             nil,
			`{"error_contains":"order","header":{"tenant":"a"}}`: {1},
			`{"error_code":"500"}`:                               {1},
			`{"error_code":"500","attempts_min":2}`:              {1},
			`{"error_code":"402","attempts_min":2}`:              nil,
			`{"error_group":"` + group + `"}`:                    {2},
			`{"error_contains":"o","state":"delayed"}`:           {1, 2},
			`{"error_contains":"o","state":"leased"}`:            nil,
		} {
			for _, slots := range []int{1, 4, 1000} {
				require.Equal(t, want, r.found(q, body, slots), "%s, %d slots", body, slots)
			}
		}
		r.consume(q, "w", 0)
		j := r.run(api.JobCreateRequest{Queue: "orders", Op: api.JobRunNow, Filter: &api.Filter{ErrorCode: "402"}})
		require.EqualValues(t, 1, j.Done)
		require.Equal(t, []uint64{2}, r.found(q, `{"error_code":"402","state":"pending"}`, 10), "it still has its last error")
	})
}

func stamp(at time.Time) string { return wire.Timestamp(at.UnixNano()) }

// TestFindLooksNoFurther than the last sequence, and refuses filters of other queues.
func TestFindLooksNoFurther(t *testing.T) {
	bubble(t, func(r *rig) {
		q := r.create(nil)
		for i := range 4 {
			require.Nil(t, r.enqueue(fmt.Sprint(i), "", nat("tenant", "a")))
		}
		time.Sleep(time.Second)
		fd, err := q.Finder(api.Filter{Header: map[string]string{"tenant": "a"}}, 3)
		require.Nil(t, err)
		views, next, err := fd.Find(2, 10, 10, nil)
		require.Nil(t, err)
		require.Zero(t, next)
		require.Len(t, views, 2)
		_, err = q.Finder(api.Filter{Reason: wire.ReasonTerm}, 0)
		require.Equal(t, wire.CodeOnlyForDLQ, err.ErrCode)
		_, err = q.Delete("", true)
		require.Nil(t, err)
		_, _, err = fd.Find(0, 10, 10, nil)
		require.Equal(t, wire.CodeQueueNotFound, err.ErrCode)
	})
}
