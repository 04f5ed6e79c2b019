package browser

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/filaq/fila/client"
)

// docsLoad is how long the load of [TestPicturesOfTheDocs] runs, so that charts have points.
const docsLoad = 100 * time.Second

// TestPicturesOfTheDocs makes docs/dashboard-overview.png and docs/dashboard-tenants.png:
// SCREENSHOTS=docs go test ./sidecar/web/browser -run TestPicturesOfTheDocs
func TestPicturesOfTheDocs(t *testing.T) {
	if filepath.Base(os.Getenv("SCREENSHOTS")) != "docs" {
		t.Skip("it makes pictures for docs, which takes minutes: SCREENSHOTS=$PWD/docs")
	}
	f, b := run(t)
	f.load("mails")
	f.queue("sms", func(s *client.QueueSettings) { s.WeightHeader = "Weight" })
	f.consume("sms", "sms-1", func(_ context.Context, m *client.Message) error {
		time.Sleep(80 * time.Millisecond)
		if m.Header.Get("Circuit") != "" {
			return m.Nack(client.NackOptions{Code: "429", Error: "429 Too Many Requests", RetryAfter: time.Hour})
		}
		return m.Ack()
	}, client.MaxInFlight(4), client.Concurrency(4))
	ctx, end := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for _, one := range []struct {
		name   string
		weight int
		every  time.Duration
		more   []client.PublishOption
	}{
		{"initech", 1, 15 * time.Millisecond, nil},
		{"globex", 3, 24 * time.Millisecond, nil},
		{"acme", 1, 45 * time.Millisecond, nil},
		{"umbrella", 1, 90 * time.Millisecond, nil},
		{"hooli", 1, 300 * time.Millisecond, []client.PublishOption{client.Header("Circuit", "smsgate")}},
	} {
		options := append([]client.PublishOption{tenant(one.name), client.Header("Weight", strconv.Itoa(one.weight))}, one.more...)
		senders.Go(func() {
			for ctx.Err() == nil {
				_, _ = f.c.Publish(ctx, "sms", []byte("hello"), options...)
				time.Sleep(one.every)
			}
		})
	}
	defer senders.Wait()
	defer end()
	b.visit("/")
	time.Sleep(docsLoad)
	b.visit("/", "A circuit is open")
	b.shows("main", "smsgate")
	time.Sleep(2 * time.Second) // the charts are drawn
	b.window("dashboard-overview")
	b.visit("/queues/sms/tenants", "globex")
	time.Sleep(2 * time.Second)
	eval[bool](b, "(document.getElementById('lanes').scrollIntoView(), true)") // below what is wrong
	b.window("dashboard-tenants")
}
