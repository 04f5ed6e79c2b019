package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/sidecar/cluster/ownership"
)

// Evidence says what a node looks at of the NATS servers, and what is required of them.
type Evidence struct {
	Require    ownership.Require
	Servers    func(ctx context.Context) ([]string, error) // names of the servers with replicas of the logs; nil: look at nothing
	Embedded   string                                      // how the embedded server syncs, see [SyncText]; empty: there is none
	Monitoring []string                                    // URLs of the monitoring of servers
}

const (
	lookEvery    = time.Minute
	lookAgain    = 5 * time.Second // after an error
	lookTimeout  = 2 * time.Second // for one server
	lookMax      = 1 << 20         // bytes of an answer
	reportServer = time.Second     // how often a change is looked for
)

// SyncText returns how a server syncs: ownership.SyncAlways, or its interval.
func SyncText(always bool, interval time.Duration) string {
	if always {
		return ownership.SyncAlways
	}
	return interval.String()
}

// observe looks at the NATS servers once a minute, and logs changes of what they lack.
func (c *Cluster) observe() {
	tick := time.NewTicker(reportServer)
	defer tick.Stop()
	var next time.Time
	var lacking, unsynced string
	for {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(lookEvery)
			if err := c.look(); err != nil {
				c.Log.Debug("the servers of the logs are not known", "error", err)
				next = now.Add(lookAgain)
			}
		}
		c.reportServers(&lacking, &unsynced)
		select {
		case <-tick.C:
		case <-c.stop:
			return
		}
	}
}

// look looks at all servers that it knows of.
func (c *Cluster) look() error {
	ctx, cancel := context.WithTimeout(c.ctx, 2*orderTimeout)
	defer cancel()
	names, err := c.Evidence.Servers(ctx)
	sightings := c.lookAtAll()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sightings, c.mu.lookedAt = sightings, c.now()
	if err == nil {
		c.mu.servers = names
	}
	return err
}

// lookAtAll reads the greeting of each server that the connection knows, and the monitoring.
func (c *Cluster) lookAtAll() (all []ownership.Sighting) {
	var mu sync.Mutex
	var looks sync.WaitGroup
	lookAt := func(at string, read func(ctx context.Context, at string) (ownership.Sighting, error)) {
		looks.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, lookTimeout)
			defer cancel()
			s, err := read(ctx, at)
			if err != nil {
				c.Log.Debug("a NATS server cannot be looked at", "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s)
		})
	}
	for _, server := range c.Conn.Servers() {
		if u, err := url.Parse(server); err == nil && c.Evidence.Embedded == "" && (u.Scheme == "nats" || u.Scheme == "tls") {
			lookAt(u.Host, readGreeting)
		}
	}
	for _, server := range c.Evidence.Monitoring {
		lookAt(server, readMonitoring)
	}
	looks.Wait()
	return all
}

// readGreeting reads the INFO that a NATS server sends first, and hangs up.
func readGreeting(ctx context.Context, addr string) (s ownership.Sighting, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close() }() // nothing was written
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(end); err != nil {
			return s, err
		}
	}
	line, err := bufio.NewReader(io.LimitReader(conn, lookMax)).ReadBytes('\n')
	text, ok := bytes.CutPrefix(line, []byte("INFO "))
	if err != nil || !ok {
		return s, errors.Join(errors.New("the server sends no INFO first"), err)
	}
	var info struct {
		Name    string `json:"server_name"`
		Version string `json:"version"`
	}
	err = json.Unmarshal(text, &info)
	return ownership.Sighting{Server: info.Name, Version: info.Version}, err
}

// readMonitoring reads /varz of a NATS server. Its errors have no password: net/http redacts it.
func readMonitoring(ctx context.Context, base string) (s ownership.Sighting, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/varz", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the monitoring answers %s", resp.Status)
	}
	var varz struct {
		Name      string `json:"server_name"`
		Version   string `json:"version"`
		JetStream struct {
			Config *struct {
				SyncAlways   bool          `json:"sync_always"`
				SyncInterval time.Duration `json:"sync_interval"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, lookMax)).Decode(&varz); err != nil {
		return s, err
	}
	s = ownership.Sighting{Server: varz.Name, Version: varz.Version}
	if sync := varz.JetStream.Config; sync != nil {
		s.Sync = SyncText(sync.SyncAlways, sync.SyncInterval)
	}
	return s, nil
}

// sighted returns what this node has seen of the NATS servers, first of the one that it is
// connected to now. Its caller holds mu.
func (c *Cluster) sighted() (all []ownership.Sighting) {
	if c.Evidence.Servers == nil {
		return nil
	}
	if name := c.Conn.ConnectedServerName(); name != "" {
		all = append(all, ownership.Sighting{Server: name, Version: c.Conn.ConnectedServerVersion(), Sync: c.Evidence.Embedded})
	}
	for _, s := range c.mu.sightings {
		s.AgoMs = (c.now() - c.mu.lookedAt) / int64(time.Millisecond)
		all = append(all, s)
	}
	return all
}

// judge returns what is known of the servers of the logs, nil until other nodes have been heard.
// Its caller holds mu.
func (c *Cluster) judge() []ownership.Server {
	now := c.now()
	if c.mu.servers == nil || !c.mu.complete || !c.mu.members.Fresh(now, c.Node) {
		return nil
	}
	return c.mu.members.Servers(now, c.mu.servers, c.Evidence.Require)
}

// Degraded returns what NATS servers of the logs lack of what is required.
func (c *Cluster) Degraded() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.judge() {
		if len(s.Missing) > 0 {
			all = append(all, fmt.Sprintf("NATS server %s: %s", s.Name, strings.Join(s.Missing, ", ")))
		}
	}
	return all
}

// CountServers returns how many servers of the logs lack nothing, and something, of what is required.
func (c *Cluster) CountServers() (ok, degraded int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.judge() {
		if len(s.Missing) > 0 {
			degraded++
		} else {
			ok++
		}
	}
	return ok, degraded
}

// reportServers logs what has changed: what servers lack, and which are not known to sync.
func (c *Cluster) reportServers(lacking, unsynced *string) {
	var unknown []string
	c.mu.Lock()
	servers := c.judge()
	c.mu.Unlock()
	if servers == nil {
		return
	}
	for _, s := range servers {
		if s.Sync != ownership.SyncAlways {
			unknown = append(unknown, s.Name)
		}
	}
	if now := strings.Join(unknown, ", "); now != *unsynced {
		*unsynced = now
		if now != "" {
			c.Log.Warn("fila cannot see whether the NATS servers sync what JetStream acks: without sync_interval: always in the jetstream block of each, a power failure of all of them can lose messages that are confirmed",
				"cluster", c.Name, "servers", now)
		}
	}
	now := strings.Join(c.Degraded(), "; ")
	if now == *lacking {
		return
	}
	*lacking = now
	if now == "" {
		c.Log.Info("all NATS servers show what cluster.require asks for", "cluster", c.Name)
		return
	}
	c.Log.Warn("NATS servers do not show what cluster.require asks for", "cluster", c.Name, "lacking", now)
}
