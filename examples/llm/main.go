// Llm shares two providers of a language model among tenants. Fila learns what each provider
// admits, sends a call by one that admits it, and keeps each tenant within its budget.
//
//	fila apply -f examples/llm/fila.yaml --owner llm
//	go run ./examples/llm llm
//
// NATS_URL is the address of NATS. A call is enqueued with the maximum of tokens that it may
// use, and acked with the tokens that it used. The providers here are fakes (provider.go).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/filaq/fila/client"
)

const maxTokens = 1000 // of a call

// calls is how many calls a tenant has. The budget of trial does not suffice for its calls, which
// wait for the next month.
var calls = map[string]int{"acme": 90, "globex": 90, "trial": 60}

var providers = map[string]*provider{
	"openai":    {perSecond: 12000, less: 0.4, falls: 2 * time.Second, rises: 4 * time.Second},
	"anthropic": {perSecond: 6000, less: 0.5, falls: 3 * time.Second, rises: 5 * time.Second},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: llm QUEUE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, queue string) error {
	fila, err := client.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer fila.Close()
	began := time.Now()
	for tenant, n := range calls {
		for i := range n {
			_, err := fila.Publish(ctx, queue, fmt.Appendf(nil, "tell me story %d", i),
				client.Header("tenant", tenant), client.Header("max-tokens", strconv.Itoa(maxTokens)),
				client.DedupeID(fmt.Sprint(began.UnixNano(), tenant, i)), client.RetryFor(time.Minute))
			if err != nil {
				return err
			}
		}
	}
	work, done := context.WithCancel(ctx)
	defer done()
	w := worker{address: make(map[string]string), calls: make(map[string]int), refused: make(map[string]int), finished: done}
	for name, p := range providers {
		w.address[name] = p.start()
	}
	if err := fila.Work(work, queue, w.handle, client.Concurrency(16)); err != nil {
		return err
	}
	return w.report(ctx, fila)
}

type worker struct {
	address  map[string]string // of a provider
	finished func()

	mu             sync.Mutex
	calls, refused map[string]int // by tenant and by provider
}

// handle calls the provider of the message's route. It tells fila what the call has used, and
// what the provider says about its limit.
func (w *worker) handle(ctx context.Context, m *client.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address[m.Route], bytes.NewReader(m.Data))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		w.count(w.refused, m)
		// The codes 429 and 529 cut the learned limit. Until RetryAfter calls go by the other
		// provider, and this one as well. The tenant does not pay for the refused call.
		return client.Retry(nil, client.NackOptions{
			Error: resp.Status, Code: strconv.Itoa(resp.StatusCode), Cost: new(0.0),
			RetryAfter: retryAfter(resp.Header), Feedback: feedback(resp.Header),
		})
	}
	var answer struct {
		Usage struct {
			TotalTokens float64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	// The confirmation guarantees that the tokens are charged exactly once.
	tokens := answer.Usage.TotalTokens
	if err := m.AckWithSync(ctx, client.AckOptions{Cost: &tokens, Feedback: feedback(resp.Header)}); err != nil {
		return err
	}
	w.count(w.calls, m)
	return nil
}

// retryAfter reads for how long the provider does not want to be called.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.Atoi(h.Get("Retry-After-Ms")); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	s, _ := strconv.Atoi(h.Get("Retry-After"))
	return time.Duration(s) * time.Second
}

// feedback reads what is left of the provider's limit, in tokens.
func feedback(h http.Header) *client.Feedback {
	remaining, err := strconv.ParseFloat(h.Get("X-RateLimit-Remaining-Tokens"), 64)
	if err != nil {
		return nil
	}
	reset, _ := time.ParseDuration(h.Get("X-RateLimit-Reset-Tokens"))
	return &client.Feedback{Remaining: remaining, Reset: reset}
}

func (w *worker) count(what map[string]int, m *client.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what[m.Key]++
	what[m.Route]++
	if w.calls["acme"] == calls["acme"] && w.calls["globex"] == calls["globex"] {
		w.finished()
	}
}

func (w *worker) report(ctx context.Context, fila *client.Client) error {
	for _, tenant := range slices.Sorted(maps.Keys(calls)) {
		b, err := fila.BudgetShow(ctx, "tenant:"+tenant)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d of %d calls, used %.0f of %.0f tokens a %s\n", tenant, w.calls[tenant], calls[tenant], b.Used, b.Budget, b.Period)
	}
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		t, err := fila.ThrottleShow(ctx, name+":tokens")
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d calls and %d refusals, learned %.0f of %.0f tokens a second in %d cuts\n",
			name, w.calls[name], w.refused[name], t.Learned.Level, t.Learned.Ceiling, t.Learned.Cuts)
	}
	return nil
}
