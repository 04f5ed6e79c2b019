package natsio

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestALifeOverNATS(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		deliveries := r.listen("fila.deliver.w.orders")
		var registered wire.ConsumeReply
		r.must("fila.consume.orders", `{"consumer":"w","max_in_flight":3}`, &registered)
		require.Equal(t, wire.ConsumeReply{Deliver: "fila.deliver.w.orders", MaxInFlight: 3, VisibilityTimeoutMs: 30_000}, registered)

		var confirmed wire.EnqueueReply
		r.must("fila.enqueue.orders", "hello", &confirmed)
		m := r.next(deliveries)
		require.Equal(t, "hello", string(m.Data))
		require.Equal(t, confirmed.ID, m.Header.Get(wire.HeaderID))
		require.Nil(t, r.request(m.Reply, "-NAK", nil))
		again := r.next(deliveries)
		require.Equal(t, "2", again.Header.Get(wire.HeaderAttempt))
		require.Equal(t, 409, r.request(m.Reply, "+ACK", nil).Code)
		nack := strings.Replace(again.Reply, ".ack.", ".nack.", 1)
		require.Equal(t, 400, r.ask(&nats.Msg{Subject: nack, Header: nats.Header{wire.HeaderRetryAfterMs: {"soon"}}}, nil).Code)
		require.Nil(t, r.request(nack, "boom", nil))
		m = r.next(deliveries)
		require.Equal(t, "3", m.Header.Get(wire.HeaderAttempt))
		begin := time.Now()
		require.Nil(t, r.request(m.Reply, "-NAK 1s", nil))
		m = r.next(deliveries)
		require.Equal(t, time.Second, time.Since(begin))
		require.Nil(t, r.request(m.Reply, "", nil))
		synctest.Wait()
		require.Zero(t, q.Depth())

		var left wire.ConsumeReply
		r.must("fila.consume.orders", `{"consumer":"w","leave":true}`, &left)
		require.True(t, left.Left)
		left = wire.ConsumeReply{}
		r.must("fila.consume.orders", `{"consumer":"w","leave":true}`, &left)
		require.False(t, left.Left)
		r.must("fila.enqueue.orders", "stays", nil)
		r.none(deliveries)
	})
}

func TestRegistrationsHaveATTL(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		lost := r.listen("fila.event.consumer-lost.>")
		r.must("fila.consume.orders", `{"consumer":"w","ttl_ms":5000}`, nil)
		begin := time.Now()
		r.next(lost)
		require.Equal(t, 5*time.Second, time.Since(begin).Round(time.Millisecond))
	})
}

func TestFetchOverNATS(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		inbox := nats.NewInbox()
		got := r.listen(inbox)
		fetch := func(body string) {
			require.NoError(t, r.client.PublishRequest("fila.fetch.orders", inbox, []byte(body)))
		}
		fetch(``)
		require.Equal(t, "404", r.next(got).Header.Get("Status"))
		fetch(`{"batch":2,"expires_ms":5000}`)
		time.Sleep(time.Second)
		r.must("fila.enqueue.orders", "one", nil)
		m := r.next(got)
		require.Equal(t, "one", string(m.Data))
		require.Nil(t, r.request(m.Reply, "+ACK", nil))
		time.Sleep(3 * time.Second)
		r.none(got)
		time.Sleep(2 * time.Second)
		require.Equal(t, "408", r.next(got).Header.Get("Status"))
	})
}

// TestNamedConsumerOverNATS: the subject names the consumer.
func TestNamedConsumerOverNATS(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("a.b")
		deliveries := r.listen("fila.deliver.w.a.b")
		var registered wire.ConsumeReply
		r.must("fila.consumer.w.a.b", `{"max_in_flight":3,"headers":"min"}`, &registered)
		require.Equal(t, wire.ConsumeReply{Deliver: "fila.deliver.w.a.b", MaxInFlight: 3, VisibilityTimeoutMs: 30_000}, registered)
		r.must("fila.enqueue.a.b", "hello", nil)
		m := r.next(deliveries)
		require.Len(t, m.Header, 2, "Fila-Id and Fila-Attempt")
		require.Nil(t, r.request(m.Reply, "", nil))
		var left wire.ConsumeReply
		r.must("fila.consumer.w.a.b", `{"leave":true}`, &left)
		require.True(t, left.Left)

		r.must("fila.enqueue.a.b", "to fetch", nil)
		for _, inbox := range []string{"_INBOX.v.x", "_INBOX.wx", "_INBOX.w", "_INBOX.x.w.y"} {
			got := r.listen(inbox)
			require.NoError(t, r.client.PublishRequest("fila.consumer.w.a.b", inbox, []byte(`{"fetch":{}}`)))
			refusal := r.next(got)
			require.Equal(t, wire.CodeBadReplySubject, wire.ParseError(refusal.Header, refusal.Data).ErrCode, inbox)
		}
		got := r.listen("_INBOX.w.x")
		require.NoError(t, r.client.PublishRequest("fila.consumer.w.a.b", "_INBOX.w.x", []byte(`{"fetch":{}}`)))
		m = r.next(got)
		require.Equal(t, "to fetch", string(m.Data))
		require.Len(t, m.Header, 6)
		r.must(m.Reply, "-NAK 0s", nil)
		require.NoError(t, r.client.PublishRequest("fila.consumer.w.a.b", "_INBOX.w.x", []byte(`{"fetch":{"headers":"min"}}`)))
		m = r.next(got)
		require.Equal(t, nats.Header{wire.HeaderID: m.Header[wire.HeaderID], wire.HeaderAttempt: {"2"}}, m.Header)

		require.Equal(t, wire.CodeBadConsumerName, r.refused(400, "fila.consumer.w,.a.b", "").ErrCode)
		require.Equal(t, wire.CodeBadSubject, r.refused(400, "fila.consumer.w", "").ErrCode)
		require.Equal(t, wire.CodeBadField, r.refused(400, "fila.consumer.w.a.b", `{"consumer":"v"}`).ErrCode)
		for _, body := range []string{`{"headers":"few"}`, `{"fetch":{"headers":"few"}}`} {
			refusal := r.refused(400, "fila.consumer.w.a.b", body)
			require.Equal(t, wire.CodeBadField, refusal.ErrCode)
			require.Contains(t, refusal.Description, "allowed are all and min")
		}
		require.Equal(t, wire.CodeQueueNotFound, r.refused(404, "fila.consumer.w.none", "").ErrCode)
	})
}

// TestConsumeWithoutReplyActs: registrations without a reply subject begin and end.
func TestConsumeWithoutReplyActs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		deliveries := r.listen("fila.deliver.w.orders")
		require.NoError(t, r.client.Publish("fila.consume.orders", []byte(`{"consumer":"w"}`)))
		synctest.Wait()
		r.must("fila.enqueue.orders", "goes", nil)
		require.Nil(t, r.request(r.next(deliveries).Reply, "", nil))
		require.NoError(t, r.client.Publish("fila.consume.orders", []byte(`{"consumer":"w","leave":true}`)))
		synctest.Wait()
		r.must("fila.enqueue.orders", "stays", nil)
		r.none(deliveries)
	})
}

func TestNoRespondersGivesTheMessageToAnother(t *testing.T) {
	for _, body := range []string{`{"consumer":"nobody"}`, `{"consumer":"nobody","batch":9}`} {
		bubble(t, func(t *testing.T, r *rig) {
			r.create("orders")
			r.must("fila.enqueue.orders", "one", nil)
			r.must("fila.enqueue.orders", "two", nil)
			r.must("fila.consume.orders", body, nil)
			synctest.Wait()
			begin := time.Now()
			deliveries := r.listen("fila.deliver.w.orders")
			r.must("fila.consume.orders", `{"consumer":"w"}`, nil)
			for range 2 {
				m := r.next(deliveries)
				require.Zero(t, time.Since(begin), "no lease is waited for")
				require.Equal(t, "1", m.Header.Get(wire.HeaderAttempt))
				require.Nil(t, r.request(m.Reply, "", nil))
			}
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		inbox := nats.NewInbox()
		deliveries := r.listen(inbox)
		r.must("fila.enqueue.orders", "x", nil)
		require.NoError(t, r.client.PublishRequest("fila.fetch.orders", inbox, nil))
		ack := r.next(deliveries).Reply
		for _, tc := range []struct {
			code          int
			subject, body string
		}{
			{400, "fila.enqueue.orders.dlq", "x"},
			{404, strings.TrimSuffix(ack, "orders") + "none", ""}, // an unknown queue
			{400, strings.TrimSuffix(ack, "orders") + "orders.dlq", ""},
			{400, "fila.ack.0.x.orders", ""}, // not a token
			{400, ack, "-WHAT"},
			{404, "fila.consume.none", `{"consumer":"w"}`},
			{404, "fila.fetch.none", ``},
			{400, "fila.consume.orders", `{`},
			{400, "fila.fetch.orders", `{`},
			{404, "fila.admin.queue-inspect.none", ""},
		} {
			werr := r.request(tc.subject, tc.body, nil)
			require.NotNil(t, werr, tc.subject)
			require.Equal(t, tc.code, werr.Code, "%s %s: %v", tc.subject, tc.body, werr)
		}
		require.Nil(t, r.request(ack, "", nil), "the lease has not suffered")

		scrape := httptest.NewRecorder()
		r.shards.Metrics.Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
		refused := map[string]int{}
		for line := range strings.Lines(scrape.Body.String()) {
			if rest, ok := strings.CutPrefix(line, "fila_refused_total{"); ok {
				_, name, _ := strings.Cut(rest, `queue="`)
				name, _, _ = strings.Cut(name, `"`)
				refused[name]++
			}
		}
		require.Positive(t, refused["orders"])
		require.Positive(t, refused["orders.dlq"])
		require.Positive(t, refused[""], "of no queue that exists")
		require.Zero(t, refused["none"])
	})
}

// TestReplySubjectsThatAreNotAnswered: clients cannot make fila publish to itself or to other
// subjects.
func TestReplySubjectsThatAreNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		r.must("fila.enqueue.orders", "leased", nil)
		inbox := nats.NewInbox()
		deliveries, refused := r.listen(inbox), r.listen("fila.event.refused.>")
		require.NoError(t, r.client.PublishRequest("fila.fetch.orders", inbox, nil))
		ack := r.next(deliveries).Reply
		for _, reply := range []string{
			"fila.enqueue.orders", "fila.admin.queue-inspect.orders", "fila", ack,
			"elsewhere", "$JS.API.STREAM.DELETE.x", "_INBOX", "_INBOX_other.x", "x._INBOX.y", "_R_",
		} {
			seen := r.listen(reply)
			for _, subject := range []string{
				"fila.enqueue.orders", "fila.enqueue.orders.dlq", "fila.consume.orders", "fila.fetch.orders",
				"fila.admin.queue-list", "fila.ack.0.x.orders", "fila.ack.0.x.none", ack,
			} {
				body := ""
				if subject == "fila.consume.orders" {
					body = `{"consumer":"w"}`
				}
				if subject != reply {
					require.NoError(t, r.client.PublishRequest(subject, reply, []byte(body)))
				}
			}
			r.none(seen)
			require.EqualValues(t, 1, q.Depth(), reply)
		}
		require.Empty(t, r.tails, "no verb is carried out")
		require.Contains(t, r.log.String(), `msg="a request is refused without a reply (nats.reply_prefixes)" subject=fila.enqueue.orders error="reply subject \"elsewhere\": allowed are subjects that begin with _INBOX. or _R_."`)
		told := 0
		for len(refused) > 0 {
			if strings.Contains(string(r.next(refused).Data), "reply subject") {
				told++
			}
		}
		require.Positive(t, told, "there is an event where there can be no answer")
		require.Nil(t, r.request(ack, "", nil), "the message is still leased")

		require.NoError(t, r.client.PublishRequest("fila.fetch.orders", "elsewhere", nil))
		require.NoError(t, r.client.Publish("fila.fetch.orders", nil))
		r.must("fila.enqueue.orders", "stays", nil)
		synctest.Wait()
		require.EqualValues(t, 1, q.Depth(), "nobody fetches")
	})
}

func TestReplyPrefixes(t *testing.T) {
	f := New(Options{ReplyPrefixes: []string{"_INBOX.", "_INBOX_team-"}})
	for subject, want := range map[string]bool{
		"": false, "_INBOX": false, "_INBOX.": false, "_INBOX.a": true, "_INBOX.a.b": true, "_INBOX.a..b": false, "_INBOX.a.": false, "_INBOX..a": false,
		"_INBOX.*": false, "_INBOX.a.>": false, "_INBOX.a b": false, "_INBOX.a*": false, "elsewhere": false, "x_INBOX.a": false, "_R_.x": false,
		"_INBOX_team-": false, "_INBOX_team-a": true, "_INBOX_team-a.b": true, "_INBOX_teams.a": false,
	} {
		require.Equal(t, want, f.answers(subject, ""), "%q", subject)
	}
	for subject, want := range map[string]bool{
		"_INBOX.w.x": true, "_INBOX_team-w.x": true, "_INBOX.w.": false, "_INBOX.w": false, "_INBOX.v.x": false, "_INBOX.ww.x": false, "_INBOX_team-a.w.x": false,
	} {
		require.Equal(t, want, f.answers(subject, "w."), "%q", subject)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { f.answers("_INBOX_team-a.b", "") }))
}

func TestMicroService(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var info struct {
			Name, Version string
			Metadata      map[string]string
			Endpoints     []struct {
				Name, Subject string
				Metadata      map[string]string
			}
		}
		r.must("$SRV.INFO.fila", "", &info)
		require.Equal(t, "fila", info.Name)
		require.Equal(t, "1.2.3", info.Version)
		require.Equal(t, map[string]string{"subject_prefix": "fila", "version": "v1.2.3", "schemas": "fila schema show NAME"}, info.Metadata)
		var names []string
		for _, e := range info.Endpoints {
			names = append(names, e.Name+" "+e.Subject)
			require.Equal(t, e.Name+".request", e.Metadata["request"])
			for _, schema := range e.Metadata {
				_, ok := schemas.Get(schema)
				require.True(t, ok, schema)
			}
		}
		require.Equal(t, []string{
			"queue-inspect " + r.front.Subjects.Admin("queue-inspect", ">"),
			"queue-list " + r.front.Subjects.Admin("queue-list", ""),
			"redrive " + r.front.Subjects.Admin("redrive", ">"),
			"consumer " + r.front.Subjects.Wildcard(wire.KindConsumer), "consume " + r.front.Subjects.Wildcard(wire.KindConsume), "fetch " + r.front.Subjects.Wildcard(wire.KindFetch),
		}, names)
	})
}

func TestVerbs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var list api.QueueList
		r.must("fila.admin.queue-list", "", &list)
		require.Equal(t, 7, list.Total)
		var body map[string]string
		r.must("fila.admin.queue-inspect.a.b", `{"x":"y"}`, &body)
		require.Equal(t, map[string]string{"x": "y"}, body)
		require.Equal(t, wire.QueueNotFound("none").Description, r.refused(404, "fila.admin.queue-inspect.none", "").Description)
		require.NoError(t, r.client.Publish("fila.admin.queue-inspect.quiet", []byte("{}"))) // without a reply subject
		synctest.Wait()
		require.Equal(t, []string{"a.b", "none", "quiet"}, r.tails)
	})
}

// TestAReplyThatIsTooLarge becomes an error reply; otherwise the client would wait in vain.
func TestAReplyThatIsTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.Equal(t, wire.CodeReplyTooLarge, r.refused(413, "fila.admin.queue-inspect.huge", "{}").ErrCode)
	})
}

func TestNothingIsBegunWhileDraining(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		r.shards.Drain()
		for _, subject := range []string{"fila.admin.queue-list", "fila.consume.orders", "fila.fetch.orders", "fila.fetch.none"} {
			werr := r.refused(503, subject, `{"consumer":"w"}`)
			require.Equal(t, wire.Draining(), werr)
		}
	})
}

func TestServiceVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "v1.2.3": "1.2.3", "v1.2.3-rc.1+linux": "1.2.3-rc.1+linux", "devel": "0.0.0-devel", "": "0.0.0", "1.2": "0.0.0-1.2", "a b": "0.0.0",
	} {
		require.Equal(t, want, serviceVersion(version), "%q", version)
	}
}

// TestForceDeleteAnswersEverybody: enqueues that have arrived when a queue is deleted are confirmed
// or refused, never dropped.
func TestForceDeleteAnswersEverybody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 2000
		q := r.create("orders")
		inbox := nats.NewInbox()
		answers := r.listen(inbox)
		for range n {
			require.NoError(t, r.client.PublishRequest("fila.enqueue.orders", inbox, []byte("x")))
		}
		r.flush()
		_, werr := q.Delete("", true)
		require.Nil(t, werr)
		for range n {
			m := r.next(answers)
			if werr := wire.ParseError(m.Header, m.Data); werr != nil {
				require.Equal(t, 404, werr.Code)
			}
		}
		inbox = nats.NewInbox()
		answers = r.listen(inbox)
		require.NoError(t, r.client.PublishRequest("fila.enqueue.orders", inbox, []byte("x")))
		require.Equal(t, "503", r.next(answers).Header.Get("Status"), "nobody listens")
	})
}

func TestDetachKnowsWhatIsAttached(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		<-r.front.Detach()
		<-r.front.Detach(q)
		<-r.front.Detach(q, q.DLQ())
		<-r.front.Detach(q, q.DLQ())
		require.Empty(t, r.front.mu.attached)
		require.NoError(t, r.front.Attach(q))
		require.NoError(t, r.front.Flush())
		r.must("fila.enqueue.orders", "x", nil)
	})
}

// TestDetachEndsWithTheLastMessage that has arrived, without delay: nobody serves the queue from
// then on.
func TestDetachEndsWithTheLastMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		<-r.front.Detach(q)
		busy, goOn := make(chan struct{}), make(chan struct{})
		handled := 0
		sub, err := r.front.Conn.Subscribe("work", func(*nats.Msg) {
			if handled++; handled == 1 {
				close(busy)
				<-goOn
			}
		})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, r.front.Conn.Publish("work", nil))
		}
		<-busy
		r.front.mu.attached[q] = []*nats.Subscription{sub}
		begin, detached := time.Now(), r.front.Detach(q)
		synctest.Wait()
		select {
		case <-detached:
			t.Fatal("messages are still to be handled")
		default:
		}
		close(goOn)
		<-detached
		require.Equal(t, 3, handled)
		require.LessOrEqual(t, time.Since(begin), handledInterval)
	})
}

// TestDetachWhileTheConnectionCloses: a subscription that is handling a message cannot be drained
// any more, and Detach still ends.
func TestDetachWhileTheConnectionCloses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		<-r.front.Detach(q)
		conn, err := nats.Connect("", nats.InProcessServer(r.srv))
		require.NoError(t, err)
		busy, goOn := make(chan struct{}), make(chan struct{})
		sub, err := conn.Subscribe("work", func(*nats.Msg) { close(busy); <-goOn })
		require.NoError(t, err)
		require.NoError(t, conn.Publish("work", nil))
		<-busy
		conn.Close()
		r.front.mu.attached[q] = []*nats.Subscription{sub}
		detached := r.front.Detach(q)
		close(goOn)
		<-detached
		synctest.Wait()
	})
}

func TestAFrontWithoutAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := r.create("orders")
		conn := r.front.Conn
		closed, err := nats.Connect("", nats.InProcessServer(r.srv))
		require.NoError(t, err)
		closed.Close()
		r.front.Conn = closed
		require.EqualError(t, r.front.Attach(q), "subscribe to fila.enqueue.orders: "+nats.ErrConnectionClosed.Error())
		require.ErrorIs(t, r.front.ServeAcks(r.shards), nats.ErrConnectionClosed)
		require.ErrorIs(t, r.front.Flush(), nats.ErrConnectionClosed)
		r.front.Conn = conn

		// Stopping is allowed without starting.
		unused := New(r.front.Options)
		unused.StopAcks()
		unused.StopRequests()
	})
}

func TestEvents(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		events := r.listen("fila.event.>")
		publish := Events(r.front.Conn, r.front.Subjects, func() int64 { return 1_700_000_000_000_000_001 }, r.front.Log)
		publish(wire.EventQueueCreated, "orders", wire.Event{Queue: "orders", Data: map[string]any{"n": 1}})
		publish(wire.EventHeld, "a key", wire.Event{Key: "a key"})
		m := r.next(events)
		require.Equal(t, r.front.Subjects.Event(wire.EventQueueCreated, "orders"), m.Subject)
		var e wire.Event
		require.NoError(t, json.Unmarshal(m.Data, &e))
		require.Equal(t, wire.Event{
			Type: wire.EventQueueCreated, Time: "2023-11-14T22:13:20.000000001Z", Queue: "orders", Data: map[string]any{"n": 1.0},
		}, e)
		require.Equal(t, r.front.Subjects.Event(wire.EventHeld, "a key"), r.next(events).Subject)

		publish(wire.EventQueueCreated, "orders", wire.Event{Data: map[string]any{"n": func() {}}})
		require.Contains(t, r.log.String(), "an event cannot be encoded")
		closed, err := nats.Connect("", nats.InProcessServer(r.srv))
		require.NoError(t, err)
		closed.Close()
		Events(closed, r.front.Subjects, time.Now().UnixNano, r.front.Log)(wire.EventQueueCreated, "orders", wire.Event{})
		require.Contains(t, r.log.String(), "an event could not be published")
		r.none(events)
	})
}

func TestWaitingForTheFirstConnection(t *testing.T) {
	checkLeaks(t)
	free := startTestServer(t, anyPort())
	cfg := samePort(t, free)
	url := free.ClientURL()
	stopTestServer(free)
	nc, err := Connect(externalConfig(url), nil, quietly(), nil, nil)
	require.NoError(t, err)
	log, text := newTestLog()
	defer Disconnect(nc, log)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, WaitConnected(ended, nc), context.Canceled)
	startTestServer(t, cfg)
	require.NoError(t, WaitConnected(t.Context(), nc))
	require.True(t, nc.IsConnected())
	require.Empty(t, text.String())
}

func TestDisconnectSendsWhatWasPublished(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		got := r.listen("last")
		r.flush()
		nc, err := Connect(config.Default().NATS, r.srv, quietly(), nil, nil)
		require.NoError(t, err)
		require.NoError(t, nc.Publish("last", nil))
		Disconnect(nc, r.front.Log)
		require.True(t, nc.IsClosed())
		r.next(got)
	})
}

// Requests of a verb that waits run side by side, up to a number, and hold up no other verb.
func TestVerbsThatWaitAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		answers, err := r.client.SubscribeSync("_INBOX.waiting")
		require.NoError(t, err)
		const n = maxVerbs + 5
		for range n {
			require.NoError(t, r.client.PublishRequest("fila.admin.redrive.orders", "_INBOX.waiting", nil))
		}
		var list api.QueueList
		require.Nil(t, r.request("fila.admin.queue-list", "", &list))
		require.Equal(t, 7, list.Total)
		synctest.Wait()
		require.EqualValues(t, maxVerbs, r.running.Load())
		close(r.hanging)
		for range n {
			m, err := answers.NextMsgWithContext(t.Context())
			require.NoError(t, err)
			require.Equal(t, `{}`, string(m.Data))
		}
	})
}

// TestACallThatWaitsHoldsUpNobody: requests behind a guard request that has to wait are answered
// first, and it is still answered when requests stop.
func TestACallThatWaitsHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		hanging := make(chan struct{})
		say := func(text string) api.GuardReply {
			if text == "refused" {
				return api.GuardReply{Err: wire.PermitNotFound(text)}
			}
			return api.GuardReply{Body: []byte(strconv.Quote(text)), Headers: map[string][]string{"Test": {text}}}
		}
		require.NoError(t, r.front.ServeGuard(r.shards, map[string]api.GuardVerb{
			api.GuardCheck: func(tail string, body []byte, _ api.GuardOrigin) api.GuardReply {
				if string(body) == "wait" {
					return api.GuardReply{Later: func() api.GuardReply {
						<-hanging
						return say(tail)
					}}
				}
				return say(tail)
			},
		}))
		late, err := r.client.SubscribeSync("_INBOX.late")
		require.NoError(t, err)
		for _, key := range []string{"v", "refused"} {
			require.NoError(t, r.client.PublishRequest("fila.guard.check."+key, "_INBOX.late", []byte("wait")))
		}
		var got string
		require.Nil(t, r.request("fila.guard.check.w", "", &got))
		require.Equal(t, "w", got)
		stopped := make(chan struct{})
		go func() {
			r.front.StopRequests()
			close(stopped)
		}()
		close(hanging)
		<-stopped
		answers := make(map[string]string)
		for range 2 {
			m, err := late.NextMsgWithContext(t.Context())
			require.NoError(t, err)
			answers[string(m.Data)] = m.Header.Get("Test") + m.Header.Get(wire.HeaderServiceErrorCode)
		}
		require.Equal(t, "v", answers[`"v"`])
		require.Equal(t, "404", answers[string(wire.PermitNotFound("refused").Body())])
	})
}

// TestChecksAfterAStandstill: until fila has caught up, a check may have waited as long as fila
// stood still. Its timeout tells whether the caller still waits; without one fila assumes that it
// does not.
func TestChecksAfterAStandstill(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var stood atomic.Int64
		r.front.Now = func() int64 { return time.Now().UnixNano() + stood.Load() }
		require.NoError(t, r.front.ServeGuard(r.shards, map[string]api.GuardVerb{
			api.GuardCheck: func(_ string, _ []byte, from api.GuardOrigin) api.GuardReply {
				return api.GuardReply{Body: strconv.AppendBool(nil, from.Late(r.front.Now()))}
			},
		}))
		late := func(header, value string) string {
			t.Helper()
			msg := nats.NewMsg("fila.guard.check.v")
			if header != "" {
				msg.Header.Set(header, value)
			}
			m, err := r.client.RequestMsgWithContext(t.Context(), msg)
			require.NoError(t, err)
			return string(m.Data)
		}
		now := func(d time.Duration) string {
			return time.Unix(0, r.front.Now()).Add(d).UTC().Format(time.RFC3339Nano)
		}
		require.Equal(t, "false", late("", ""))
		require.Equal(t, "false", late(wire.HeaderTimeoutMs, "1"))
		require.Equal(t, "false", late(wire.HeaderDeadline, now(time.Second)))
		require.Equal(t, "true", late(wire.HeaderDeadline, now(-time.Millisecond)))
		require.Contains(t, late(wire.HeaderTimeoutMs, "soon"), "44400")
		require.Contains(t, late(wire.HeaderDeadline, "soon"), "44400")

		stood.Add(int64(3 * time.Second))
		require.Equal(t, "true", late("", ""))
		require.Equal(t, "true", late(wire.HeaderTimeoutMs, "2900"))
		require.Equal(t, "false", late(wire.HeaderTimeoutMs, "5000"))
		require.Equal(t, "false", late(wire.HeaderDeadline, now(time.Second)))
		time.Sleep(beatEvery)
		synctest.Wait()
		require.Equal(t, "true", late("", ""), "it has noticed, and catches up")
		time.Sleep(catchUp)
		synctest.Wait()
		require.Equal(t, "false", late("", ""))
		r.front.StopRequests()
	})
}

// lateRequest is a request that fails the test if it is answered after its handler has returned,
// when the service reads its error.
type lateRequest struct {
	micro.Request
	t     *testing.T
	reply string
}

func (lateRequest) Subject() string            { return "fila.admin.queue-inspect.orders" }
func (r lateRequest) Reply() string            { return r.reply }
func (lateRequest) Headers() (h micro.Headers) { return h }
func (lateRequest) Data() []byte               { return nil }

func (r lateRequest) Error(string, string, []byte, ...micro.RespondOpt) error {
	r.t.Error("answered through the request")
	return nil
}

// TestVerbsThatAreAnsweredLate: in a cluster, a verb is answered after its handler has returned.
func TestVerbsThatAreAnsweredLate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ask := func(subject, body string) *nats.Msg {
			m, err := r.client.RequestWithContext(t.Context(), subject, []byte(body))
			require.NoError(t, err)
			return &nats.Msg{Header: m.Header, Data: m.Data}
		}
		for _, c := range [][2]string{{"fila.admin.queue-inspect.orders", ""}, {"fila.admin.queue-inspect.orders", "body"}, {"fila.admin.queue-inspect.huge", "body"}} {
			r.front.Exact = false
			want := ask(c[0], c[1])
			r.front.Exact = true
			require.Equal(t, want, ask(c[0], c[1]))
		}
		sub, err := r.client.SubscribeSync("_INBOX.late")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, r.client.FlushWithContext(ctx))
		r.front.verb(r.shards, Verb{Do: r.echo})(lateRequest{t: t, reply: "_INBOX.late"})
		synctest.Wait()
		m, err := sub.NextMsgWithContext(ctx)
		require.NoError(t, err)
		require.Equal(t, wire.CodeQueueNotFound, wire.ParseError(m.Header, m.Data).ErrCode)
	})
}

// TestBatchedDeliveries: deliveries that are due together travel together, and one ack answers them.
func TestBatchedDeliveries(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.create("orders")
		deliveries := r.listen("fila.deliver.w.orders")
		var b []byte
		for i := range 5 {
			b = wire.AppendBatch(b, map[string][]string{"N": {strconv.Itoa(i)}}, []byte{'a' + byte(i)})
		}
		m := nats.NewMsg("fila.enqueue.orders")
		m.Header.Set(wire.HeaderBatch, "5")
		m.Data = b
		reply, err := r.client.RequestMsg(m, time.Minute)
		require.NoError(t, err)
		require.Nil(t, wire.ParseError(reply.Header, reply.Data))

		r.must("fila.consume.orders", `{"consumer":"w","max_in_flight":9,"batch":3}`, nil)
		var batches []*nats.Msg
		for _, want := range []string{"abc", "de"} {
			batch := r.next(deliveries)
			batches = append(batches, batch)
			n, err := strconv.Atoi(batch.Header.Get(wire.HeaderBatch))
			require.NoError(t, err)
			all, werr := wire.ParseDelivered(batch.Data, n)
			require.Nil(t, werr)
			got := ""
			for _, d := range all {
				got += string(d.Data)
				header, werr := d.Header.Parse(nil, wire.HeaderLimits{})
				require.Nil(t, werr)
				require.Equal(t, []string{strconv.Itoa(int(d.Data[0] - 'a'))}, header["N"])
				require.NotEmpty(t, header[wire.HeaderEnqueuedAt])
				require.EqualValues(t, 1, d.Attempt)
				require.Greater(t, d.Deadline, time.Now().UnixNano())
				require.NotZero(t, d.ID)
			}
			require.Equal(t, want, got)
		}
		r.none(deliveries)

		var answer wire.BatchReply
		r.must(batches[0].Reply, "0-1 +ACK\n2 -NAK {\"delay\":0}\n", &answer)
		require.Equal(t, wire.BatchReply{Queue: "orders"}, answer)
		again := r.next(deliveries)
		all, werr := wire.ParseDelivered(again.Data, 1)
		require.Nil(t, werr)
		require.Equal(t, "c", string(all[0].Data))
		require.EqualValues(t, 2, all[0].Attempt)

		// The same once more: nothing of the batch is leased any more.
		r.must(batches[0].Reply, "", &answer)
		require.Len(t, answer.Refused, 3)
		require.Equal(t, wire.CodeLeaseLost, answer.Refused[2].ErrCode)
		require.Equal(t, 2, answer.Refused[2].Index)

		for _, bad := range []string{"3 +ACK", "0-3 +ACK", "1-0 +ACK", "0 +ACK\n0 +ACK", "0 what", "0x +ACK"} {
			require.Equal(t, wire.CodeBadAckPayload, r.refused(400, batches[1].Reply, bad).ErrCode, bad)
		}
		answer = wire.BatchReply{}
		r.must(batches[1].Reply, "+TERM no", &answer)
		require.Empty(t, answer.Refused)
		require.EqualValues(t, 2, r.shards.Queue("orders.dlq").Depth())
		forged := strings.Replace(batches[1].Reply, "~", "~A", 1)
		require.Equal(t, wire.CodeTokenRefused, r.refused(400, forged, "").ErrCode)
	})
}
