package ownership

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sighting is what a node has seen of a NATS server.
type Sighting struct {
	Server  string `json:"server"` // its name
	Version string `json:"version,omitempty"`
	Sync    string `json:"sync,omitempty"` // SyncAlways, or the interval; left out: not seen
	AgoMs   int64  `json:"ago_ms,omitempty"`
}

// SyncAlways is the Sync of a server that syncs before it acks.
const SyncAlways = "always"

// sightedFor is how long a sighting counts: a server that is down stays known meanwhile.
const sightedFor = int64(time.Hour)

// sighter is a node that has seen a server.
type sighter struct{ server, node string }

// fact is a text that was seen at a time.
type fact struct {
	text string
	at   int64
}

// update replaces an older fact.
func (f *fact) update(o fact) {
	if o.text != "" && (f.text == "" || o.at > f.at || o.at == f.at && o.text > f.text) {
		*f = o
	}
}

type sighted struct{ version, sync fact }

// last returns when a node last saw a server.
func (s *sighted) last() int64 { return max(s.version.at, s.sync.at) }

// sight notes what a node has announced of the NATS servers.
func (m *Members) sight(now int64, n *News) {
	for _, s := range n.Servers {
		at := now - s.AgoMs*int64(time.Millisecond)
		by := sighter{s.Server, n.Node}
		seen := m.sighted[by]
		seen.version.update(fact{s.Version, at})
		seen.sync.update(fact{s.Sync, at})
		m.sighted[by] = seen
	}
	maps.DeleteFunc(m.sighted, func(_ sighter, s sighted) bool { return now-s.last() > sightedFor })
}

// Require says what nodes must have seen of a NATS server.
type Require struct {
	Version bool     // MinVersion or newer, or one of Allowed
	Sync    bool     // SyncAlways
	Allowed []string // versions
}

// Server is what all nodes have seen of a NATS server.
type Server struct {
	Name          string
	Version, Sync string   // the newest; empty: not seen
	Nodes         []string // that have seen it, by name
	Missing       []string // what is required and was not seen, or was seen otherwise
}

// Servers returns what all nodes have seen of servers, by name.
func (m *Members) Servers(now int64, names []string, r Require) []Server {
	all := make([]Server, 0, len(names))
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		s, newest := Server{Name: name}, sighted{}
		for by, seen := range m.sighted {
			if by.server != name || now-seen.last() > sightedFor {
				continue
			}
			s.Nodes = append(s.Nodes, by.node)
			newest.version.update(seen.version)
			newest.sync.update(seen.sync)
		}
		slices.Sort(s.Nodes)
		s.Version, s.Sync = newest.version.text, newest.sync.text
		s.Missing = r.missing(s.Version, s.Sync)
		all = append(all, s)
	}
	return all
}

// missing returns what is required and not met.
func (r *Require) missing(version, sync string) (all []string) {
	switch {
	case !r.Version || VersionOK(version, r.Allowed):
	case version == "":
		all = append(all, "version not seen")
	default:
		all = append(all, "version older than "+MinVersion)
	}
	if r.Sync && sync != SyncAlways {
		all = append(all, "sync "+cmp.Or(sync, "not seen"))
	}
	return all
}

// MinVersion is the oldest nats-server without known defects of Raft that lose acked records.
const MinVersion = "2.14.4"

// VersionOK reports whether a version of nats-server is MinVersion or newer, or is named in allowed.
// A pre-release is older than its release.
func VersionOK(version string, allowed []string) bool {
	if slices.Contains(allowed, version) {
		return true
	}
	have, ok := parseVersion(version)
	least, _ := parseVersion(MinVersion)
	return ok && slices.Compare(have[:], least[:]) >= 0
}

// parseVersion returns the parts of a version; the last one is 0 for a pre-release, otherwise 1.
func parseVersion(version string) (parts [4]int, ok bool) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	release, _, pre := strings.Cut(release, "-")
	numbers := strings.Split(release, ".")
	if len(numbers) != 3 {
		return parts, false
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return parts, false
		}
		parts[i] = n
	}
	if !pre {
		parts[3] = 1
	}
	return parts, true
}
