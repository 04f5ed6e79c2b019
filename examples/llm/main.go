// Llm shares a language model among tenants: by the tokens that their calls use, each
// tenant within its budget of tokens.
//
//	go run ./examples/llm QUEUE
//
// NATS_URL says where. A call is enqueued with the most tokens that it may use, and acked
// with those that it has used. The model here is none: it only counts.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/client"
)

const (
	calls     = 20 // of each tenant
	maxTokens = 1000
)

// uses is how many tokens a call of a tenant uses, which nobody knows before.
var uses = map[string]int{"brief": 100, "chatty": 900}

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
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	fila, err := client.New(nc)
	if err != nil {
		return err
	}
	defer fila.Close()
	for i := range calls {
		for tenant := range uses {
			_, err := fila.Publish(ctx, queue, []byte("tell me a story"),
				client.Header("tenant", tenant), client.Header("max-tokens", strconv.Itoa(maxTokens)),
				client.DedupeID(fmt.Sprint(queue, tenant, i)), client.RetryFor(time.Minute))
			if err != nil {
				return err
			}
		}
	}
	t := tally{tokens: make(map[string]int), done: make(map[string]int), all: make(chan struct{})}
	consumer, err := fila.Consume(ctx, queue, func(ctx context.Context, m *client.Message) error {
		tokens := callModel(m.Key)
		// With the confirmation it is certain that the tokens are counted, and once.
		if err := m.AckCostSync(ctx, float64(tokens)); err != nil {
			return err
		}
		t.count(m.Key, tokens)
		return nil
	}, client.Concurrency(4), client.MaxInFlight(4))
	if err != nil {
		return err
	}
	select {
	case <-t.all:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return consumer.Stop(stopping)
}

// callModel answers a call and says how many tokens that has used.
func callModel(tenant string) int {
	time.Sleep(10 * time.Millisecond)
	return uses[tenant]
}

// tally is what has been used.
type tally struct {
	mu     sync.Mutex
	tokens map[string]int
	done   map[string]int
	ended  int
	all    chan struct{} // closed when all calls are done
}

func (t *tally) count(tenant string, tokens int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens[tenant] += tokens
	if t.done[tenant]++; t.done[tenant] != calls {
		return
	}
	fmt.Printf("%s: %d calls used %d tokens, %d were expected\n", tenant, calls, t.tokens[tenant], calls*maxTokens)
	if t.ended++; t.ended == len(uses) {
		close(t.all)
	}
}
