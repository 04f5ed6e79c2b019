package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// rig is pages over verbs that a test answers.
type rig struct {
	*Web
	t *testing.T

	mu       sync.Mutex
	replies  map[string]any // by verb
	asked    []asked
	stopping bool
	refuse   func(error) // what events are refused by
}

type asked struct {
	verb, client, tail, body string
	force                    bool
}

func newRig(t *testing.T, change func(*config.HTTPConfig)) *rig {
	t.Helper()
	cfg := config.Default().HTTP
	if change != nil {
		change(&cfg)
	}
	r := &rig{t: t, replies: map[string]any{
		api.VerbQueueList.Name: api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "orders", Pending: 1234, Detail: &api.QueueDetail{}}}},
	}}
	web, err := New(Options{
		Log: slog.New(slog.DiscardHandler), HTTP: cfg, Version: "1.2.3", Do: r.do,
		Serving: func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.stopping {
				return errors.New("it is stopping")
			}
			return nil
		},
		Queues: func(req api.QueueListRequest) (list api.QueueList, refused *wire.Error) {
			body, err := json.Marshal(req)
			require.NoError(t, err)
			data, refused := r.do(api.Sender{Client: "web"}, api.VerbQueueList.Name, "", body)
			if refused == nil {
				require.NoError(t, json.Unmarshal(data, &list))
			}
			return list, refused
		},
		Guard: func(verb, tail string, body []byte) ([]byte, *wire.Error) {
			return r.do(api.Sender{}, "guard "+verb, tail, body)
		},
		Events: func(each func([]byte), refused func(error)) (func(), error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.refuse = refused
			return func() {}, nil
		},
		Needs: "fila.event.>",
		Here:  func() Node { return Node{State: "ready", Ready: true} },
	})
	require.NoError(t, err)
	r.Web = web
	t.Cleanup(func() { web.Stop(t.Context()) })
	return r
}

func (r *rig) do(by api.Sender, verb, tail string, body []byte) ([]byte, *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, asked{verb, by.Client, tail, string(body), by.Force})
	switch reply := r.replies[verb].(type) {
	case nil:
		return []byte("{}"), nil
	case *wire.Error:
		return nil, reply
	default:
		data, err := json.Marshal(reply)
		if err != nil {
			return nil, wire.Internal(err.Error())
		}
		return data, nil
	}
}

// reply says what a verb answers from now on.
func (r *rig) reply(verb, what any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies[fmt.Sprint(verb)] = what
}

// of returns the requests for a verb.
func (r *rig) of(verb any) (list []asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if a.verb == fmt.Sprint(verb) {
			list = append(list, a)
		}
	}
	return list
}

// request asks as a browser on the same host would.
func request(method, target string, form url.Values) *http.Request {
	req := httptest.NewRequest(method, "http://127.0.0.1:8222"+target, strings.NewReader(form.Encode()))
	req.RemoteAddr = "127.0.0.1:5555"
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	return req
}

// serve answers a request.
func (r *rig) serve(req *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, req)
	return rec
}

func (r *rig) get(target string) *httptest.ResponseRecorder {
	return r.serve(request(http.MethodGet, target, nil))
}

func (r *rig) post(target string, pairs ...string) *httptest.ResponseRecorder {
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return r.serve(request(http.MethodPost, target, form))
}

// tokenFile has a token in a file.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return file
}

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }
