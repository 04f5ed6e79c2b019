package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// provider is a fake API of a language model with a limit of tokens, which falls to a part of
// it for a while. Every 60th call finds it overloaded.
type provider struct {
	perSecond float64       // tokens
	less      float64       // part of perSecond from falls to rises
	falls     time.Duration // after its start
	rises     time.Duration

	mu            sync.Mutex
	began, filled time.Time
	tokens        float64 // of its bucket, which has half a second's tokens
	calls         int
}

// start serves the API until the program ends, and returns its address.
func (p *provider) start() string {
	p.began, p.filled, p.tokens = time.Now(), time.Now(), p.perSecond/2
	return httptest.NewServer(p).URL
}

// ServeHTTP answers a call. The same prompt always uses the same number of tokens, from 300 to 699.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, _ := io.ReadAll(r.Body)
	tokens := float64(300 + crc32.ChecksumIEEE(prompt)%400)
	if status := p.admit(tokens, w.Header()); status != http.StatusOK {
		http.Error(w, "come again later", status)
		return
	}
	time.Sleep(30*time.Millisecond + time.Duration(tokens)*50*time.Microsecond)
	_, _ = fmt.Fprintf(w, `{"usage":{"total_tokens":%v}}`, tokens)
}

func (p *provider) admit(tokens float64, h http.Header) (status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, rate := time.Now(), p.perSecond
	if age := now.Sub(p.began); age >= p.falls && age < p.rises {
		rate *= p.less
	}
	p.tokens = min(p.tokens+rate*now.Sub(p.filled).Seconds(), rate/2)
	p.filled = now
	wait := func(tokens float64) time.Duration { return time.Duration(max(0, tokens) / rate * 1e9) }
	p.calls++
	switch {
	case p.calls%60 == 10:
		status = 529
	case p.tokens < tokens:
		status = http.StatusTooManyRequests
		h.Set("Retry-After-Ms", strconv.FormatInt(1+wait(tokens-p.tokens).Milliseconds(), 10))
		h.Set("Retry-After", "1") // in whole seconds, for clients that do not know the other one
	default:
		status = http.StatusOK
		p.tokens -= tokens
	}
	h.Set("X-RateLimit-Remaining-Tokens", strconv.Itoa(int(p.tokens)))
	h.Set("X-RateLimit-Reset-Tokens", wait(rate/2-p.tokens).String())
	return status
}
