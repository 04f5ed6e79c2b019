package opscmd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
)

// incidentStep is the time before an incident happens, and between its steps.
const incidentStep = 3 * time.Second

// incidents are the values of --incident. Names of queues, tenants, consumers and operators
// appear on the pages and must not give the cause away.
var incidents = []incident{
	{
		name: "bad-release", help: "a release of the workers makes dead letters of three causes",
		story: fmt.Sprintf("%s invoices are dead letters of the queue %s. Sort them out", terminal.Grouped(incidentMessages), invoicesQueue),
		mend: fmt.Sprintf("The workers continue. They run the release that the runtime key %s names. This deploys a fixed one:\n\n  fila config set %s %d\n\n",
			incidentRelease, incidentRelease, incidentBad+1),
		queues: []incidentQueue{mails}, happen: badReleaseHappens,
	},
	{
		name: "broken-hook", help: "a changed on_enqueue fails, and one tenant keeps the others waiting",
		story: "acme, globex and umbrella say that their exports come late. Find out why, and fix it",
		queues: []incidentQueue{mails, {
			name: "exports", workers: 2, room: 5, takes: 250 * time.Millisecond,
			settings: func(s *client.QueueSettings) { s.OnEnqueue, s.FairnessHeader = exportHook(""), "" },
			load:     []incidentTenant{{"initech", 30, ""}, {"acme", 2, ""}, {"globex", 2, ""}, {"umbrella", 1, ""}},
		}},
		happen: func(ctx context.Context, l *incidentLoad) error {
			hook := exportHook(`:lower()`) // most messages have no plan
			if _, err := l.operator.QueueUpdate(ctx, "exports", client.QueueChanges{"on_enqueue": hook}); err != nil {
				return err
			}
			return l.publishMany(ctx, "exports", incidentTenant{tenant: "initech"}, 2000)
		},
	},
	{
		name: "rate-limited", help: "a vendor answers 429, its circuit opens, and half of the tenants wait",
		story: "acme and initech say that their text messages come late. Find out why, and fix it",
		queues: []incidentQueue{mails, {
			name: "sms", workers: 2, room: 16, takes: 150 * time.Millisecond, work: rateLimitedVendor,
			settings: func(s *client.QueueSettings) {
				s.CircuitHeader, s.ThrottleHeaders, s.MaxDeliveries = "vendor", []string{"vendor:{vendor}"}, new(int64(0))
			},
			load: []incidentTenant{{"acme", 6, limitedVendor}, {"initech", 6, limitedVendor}, {"globex", 6, "telco"}, {"umbrella", 6, "telco"}},
		}},
		happen: func(ctx context.Context, l *incidentLoad) error {
			return l.publishMany(ctx, "sms", incidentTenant{tenant: "initech", vendor: limitedVendor}, 1000)
		},
	},
	{
		name: "wrong-limit", help: "an operator sets the limit of all tenants to a tenth",
		story:     "acme says that its reports come late. Find out why, and fix it",
		throttles: []config.ThrottleTable{{Key: "tenant:*", Rate: "20", Burst: 20}},
		queues: []incidentQueue{mails, {
			name: "reports", workers: 2, room: 8, takes: 100 * time.Millisecond,
			settings: func(s *client.QueueSettings) { s.ThrottleHeaders = []string{"tenant:{tenant}"} },
			load:     []incidentTenant{{"acme", 8, ""}, {"globex", 1, ""}, {"initech", 1, ""}, {"umbrella", 1, ""}},
		}},
		happen: func(ctx context.Context, l *incidentLoad) error {
			_, err := l.operator.ThrottleSet(ctx, client.ThrottleChange{Key: "tenant:*", Rate: "2", Burst: 2})
			return err
		},
	},
	{
		name: "lost-consumers", help: "the consumers of a queue leave one by one",
		story: "All customers say that their thumbnails come late. Find out why, and what to do",
		queues: []incidentQueue{mails, {
			name: "thumbnails", workers: 4, room: 2, takes: 200 * time.Millisecond,
			load: []incidentTenant{{"acme", 6, ""}, {"globex", 4, ""}, {"initech", 2, ""}},
		}},
		happen: func(ctx context.Context, l *incidentLoad) error {
			for _, consumer := range l.consumers["thumbnails"] {
				if err := consumer.Stop(ctx); err != nil {
					return err
				}
				l.pass(ctx, time.Now(), l.step)
			}
			return ctx.Err()
		},
	},
}

// incident is an incident for the user to sort out. Its load goes on until an interrupt.
type incident struct {
	name, help string
	story      string // what customers notice, and what the user should do
	mend       string // what the user can do outside of fila
	throttles  []config.ThrottleTable
	queues     []incidentQueue
	happen     func(ctx context.Context, l *incidentLoad) error
}

// incidentQueue is a queue with its consumers and producers. Its fairness key is the header
// tenant.
type incidentQueue struct {
	name     string
	settings func(s *client.QueueSettings) // nil: the defaults
	workers  int
	room     int           // concurrent messages of a worker
	takes    time.Duration // work of one message
	work     func() client.Handler
	load     []incidentTenant
}

// incidentTenant is a tenant with its messages per second.
type incidentTenant struct {
	tenant string
	rate   int
	vendor string // header vendor, if not empty
}

// mails is a queue that is well, beside the one of the incident.
var mails = incidentQueue{
	name: "mails", workers: 2, room: 4, takes: 50 * time.Millisecond,
	load: []incidentTenant{{"acme", 6, ""}, {"globex", 3, ""}, {"initech", 3, ""}},
}

// exportHook is the on_enqueue hook of exports; plan is applied to a header that most messages
// lack.
func exportHook(plan string) string {
	return `function on_enqueue(msg)
  local plan = msg.headers["plan"]` + plan + `
  return { fairness_key = msg.headers["tenant"], weight = plan == "gold" and 3 or 1 }
end`
}

const (
	limitedVendor = "smsgate"
	vendorRate    = 20 // messages a second that it accepts
	vendorBurst   = 30 // that it accepts at once, more than a throttle of its rate sends at once
	vendorRest    = 5 * time.Second
)

// rateLimitedVendor returns a worker that sends through vendors, one of which limits its rate
// by a token bucket.
func rateLimitedVendor() client.Handler {
	var mu sync.Mutex
	tokens, last := float64(vendorBurst), time.Now()
	return func(_ context.Context, m *client.Message) error {
		if m.Header.Get("vendor") != limitedVendor {
			return m.Ack()
		}
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		tokens, last = min(tokens+now.Sub(last).Seconds()*vendorRate, vendorBurst), now
		if tokens < 1 {
			return m.Nack(client.NackOptions{
				Code: "429", RetryAfter: vendorRest,
				Error: fmt.Sprintf("429 Too Many Requests: your plan allows %d messages per second", vendorRate),
			})
		}
		tokens--
		return m.Ack()
	}
}

// incidentNames are the names in the order of the table.
func incidentNames() (names []string) {
	for i := range incidents {
		names = append(names, incidents[i].name)
	}
	return names
}

// incidentDemo returns the demo of the incident with this name.
func incidentDemo(name string) (demo, error) {
	for i := range incidents {
		if incidents[i].name == name {
			return demo{flag: "incident", play: incidents[i].play}, nil
		}
	}
	return demo{}, command.UsageError("--incident %q: allowed are %s", name, strings.Join(incidentNames(), ", "))
}

// incidentHelp lists the incidents.
func incidentHelp() string {
	var b strings.Builder
	for i := range incidents {
		fmt.Fprintf(&b, "    %-14s  %s\n", incidents[i].name, incidents[i].help)
	}
	return b.String()
}

// incidentReady is what fila demo --incident --json prints when the incident has happened.
type incidentReady struct {
	Incident string `json:"incident"`
	NATS     string `json:"nats"`
	Pages    string `json:"pages"`
}

// play makes the incident happen and leaves its handling to the user, until an interrupt.
func (n *incident) play(ctx context.Context, s *demoStage, _ time.Duration) error {
	s.write("An incident is about to happen ...\n\n")
	l, err := n.start(ctx, s, incidentStep)
	if err != nil {
		return err
	}
	if err := n.show(s, incidentReady{Incident: n.name, NATS: l.server.url, Pages: l.server.pages}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// show prints the next steps and the addresses.
func (n *incident) show(s *demoStage, r incidentReady) error {
	if s.env.JSON {
		return terminal.PrintJSON(s.out, r)
	}
	_, err := fmt.Fprintf(s.out, `%s: in a browser at

  %s

or in another terminal:

  export NATS_URL=%s
  fila status

%sAn interrupt ends it, and nothing is left behind.
`, n.story, r.Pages, r.NATS, n.mend)
	return err
}

// incidentLoad is the running load of an incident.
type incidentLoad struct {
	*demoStage
	server    *demoServer
	operator  *client.Client // makes the changes that cause an incident
	step      time.Duration
	consumers map[string][]*client.Consumer // by queue
}

// start starts a fila with the load, and makes the incident happen after a step.
func (n *incident) start(ctx context.Context, s *demoStage, step time.Duration) (*incidentLoad, error) {
	cfg := demoConfig(s.dir)
	cfg.HTTP.Addr, cfg.Throttles = "127.0.0.1:0", n.throttles
	server, err := s.start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	operator := &demoServer{}
	if err := s.connect(operator, server.url, "maria@ops"); err != nil {
		return nil, err
	}
	l := &incidentLoad{demoStage: s, server: server, operator: operator.c, step: step, consumers: map[string][]*client.Consumer{}}
	for i := range n.queues {
		if err := l.serve(ctx, &n.queues[i]); err != nil {
			return nil, err
		}
	}
	l.pass(ctx, time.Now(), step)
	return l, n.happen(ctx, l)
}

// serve creates a queue and starts its consumers and producers.
func (l *incidentLoad) serve(ctx context.Context, q *incidentQueue) error {
	settings := client.QueueSettings{FairnessHeader: "tenant"}
	if q.settings != nil {
		q.settings(&settings)
	}
	if _, err := l.server.c.QueueCreate(ctx, q.name, settings); err != nil {
		return err
	}
	work := func(_ context.Context, m *client.Message) error { return m.Ack() }
	if q.work != nil {
		work = q.work()
	}
	handle := func(ctx context.Context, m *client.Message) error {
		time.Sleep(q.takes)
		return work(ctx, m)
	}
	for i := range q.workers {
		consumer, err := l.consume(ctx, l.server.c, q.name, handle, client.ConsumerName(fmt.Sprintf("%s-%d", q.name, i+1)),
			client.MaxInFlight(q.room), client.Concurrency(q.room))
		if err != nil {
			return err
		}
		l.consumers[q.name] = append(l.consumers[q.name], consumer)
	}
	sending, enough := context.WithCancel(ctx)
	var senders sync.WaitGroup
	for _, t := range q.load {
		senders.Go(func() { l.send(sending, t.rate, func(int) error { return l.publish(sending, q.name, t) }) })
	}
	l.atEnd(func() error {
		enough()
		senders.Wait()
		return nil
	})
	return nil
}

// publish enqueues a message, without waiting for its confirmation.
func (l *incidentLoad) publish(ctx context.Context, queue string, t incidentTenant) error {
	options := []client.PublishOption{client.Header("tenant", t.tenant), client.RetryFor(time.Minute)}
	if t.vendor != "" {
		options = append(options, client.Header("vendor", t.vendor))
	}
	_, err := l.server.c.PublishAsync(ctx, queue, fmt.Appendf(nil, `{"customer":%q}`, t.tenant), options...)
	return err
}

func (l *incidentLoad) publishMany(ctx context.Context, queue string, t incidentTenant, count int) error {
	for range count {
		if err := l.publish(ctx, queue, t); err != nil {
			return err
		}
	}
	return nil
}
