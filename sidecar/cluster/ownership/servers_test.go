package ownership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVersionOK(t *testing.T) {
	for version, want := range map[string]bool{
		"2.14.4": true, "2.14.10": true, "2.15.0-RC.1": true, "2.15.2": true, "3.0.0": true, "v2.14.4": true, "2.14.4+deb1": true,
		"2.14.3": false, "2.14.4-RC.2": false, "2.12.99": false, "1.99.99": false, "2.14": false, "dev": false, "": false, "2.14.-4": false,
		"2.12.6": true, "2.12.7": false, // the first is allowed by name
	} {
		require.Equal(t, want, VersionOK(version, []string{"2.12.6"}), version)
	}
}

func TestServers(t *testing.T) {
	const ms = int64(time.Millisecond)
	m := NewMembers("a", "1")
	m.Hear(0, News{Node: "a", Incarnation: "1", Servers: []Sighting{{Server: "n1", Version: "2.15.2", Sync: SyncAlways}, {Server: "n2", Version: "2.12.6", AgoMs: 9}}})
	m.Hear(0, News{Node: "b", Incarnation: "2", Servers: []Sighting{{Server: "n1", Version: "2.15.1", Sync: "2m0s", AgoMs: 5}, {Server: "n2", Sync: "2m0s"}}})
	names := []string{"n3", "n1", "n2", "n1"}
	missing := func(now int64, r Require) (all [][]string) {
		for _, s := range m.Servers(now, names, r) {
			all = append(all, s.Missing)
		}
		return all
	}
	require.Equal(t, []Server{
		{Name: "n1", Version: "2.15.2", Sync: SyncAlways, Nodes: []string{"a", "b"}},
		{Name: "n2", Version: "2.12.6", Sync: "2m0s", Nodes: []string{"a", "b"}},
		{Name: "n3"},
	}, m.Servers(0, names, Require{}))
	for name, tc := range map[string]struct {
		require Require
		want    [][]string
	}{
		"version": {Require{Version: true}, [][]string{nil, {"version older than 2.14.4"}, {"version not seen"}}},
		"sync":    {Require{Sync: true}, [][]string{nil, {"sync 2m0s"}, {"sync not seen"}}},
		"allowed": {Require{Version: true, Allowed: []string{"2.12.6"}}, [][]string{nil, nil, {"version not seen"}}},
		"both":    {Require{Version: true, Sync: true}, [][]string{nil, {"version older than 2.14.4", "sync 2m0s"}, {"version not seen", "sync not seen"}}},
	} {
		require.Equal(t, tc.want, missing(0, tc.require), name)
	}
	m.Hear(ms, News{Node: "a", Incarnation: "1", Servers: []Sighting{{Server: "n2", Version: "2.15.2"}}})
	require.Equal(t, [][]string{nil, nil, {"version not seen"}}, missing(ms, Require{Version: true}), "a server that was upgraded")
	m.Hear(2*ms, News{Node: "b", Incarnation: "2", Left: true})
	require.Equal(t, "2m0s", m.Servers(2*ms, names, Require{})[1].Sync, "what a node has seen that is gone")
	require.Empty(t, m.Servers(sightedFor+5*ms, []string{"n1"}, Require{})[0].Nodes, "an hour later")
}
