// Llm shares a language model among tenants by the tokens that their calls use, and keeps
// each tenant within its budget of tokens.
//
//	go run ./examples/llm QUEUE
//
// NATS_URL is the address of NATS. A call is enqueued with the maximum of tokens that it may
// use, and acked with the tokens that it used. The model here is a stub that only counts.
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

	"github.com/filaq/fila/client"
)

const (
	calls     = 20 // per tenant
	maxTokens = 1000
)

// uses is the number of tokens that a call of a tenant uses. Producers do not know it.
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
	fila, err := client.Connect(os.Getenv("NATS_URL"))
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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	u := usage{tokens: make(map[string]int), done: make(map[string]int), allDone: stop}
	return fila.Work(ctx, queue, func(ctx context.Context, m *client.Message) error {
		tokens := callModel(m.Key)
		// The confirmation guarantees that the tokens are charged exactly once.
		if err := m.AckCostSync(ctx, float64(tokens)); err != nil {
			return err
		}
		u.count(m.Key, tokens)
		return nil
	}, client.Concurrency(4))
}

// callModel answers a call and returns the tokens used.
func callModel(tenant string) int {
	time.Sleep(10 * time.Millisecond)
	return uses[tenant]
}

// usage counts the tokens and finished calls of each tenant.
type usage struct {
	mu      sync.Mutex
	tokens  map[string]int
	done    map[string]int
	ended   int
	allDone func()
}

func (u *usage) count(tenant string, tokens int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tokens[tenant] += tokens
	if u.done[tenant]++; u.done[tenant] != calls {
		return
	}
	fmt.Printf("%s: %d calls used %d tokens, %d were expected\n", tenant, calls, u.tokens[tenant], calls*maxTokens)
	if u.ended++; u.ended == len(uses) {
		u.allDone()
	}
}
