package telemetry

import (
	"strconv"
	"time"
)

// Cluster is the cluster as one node sees it when it is scraped.
type Cluster struct {
	Shards []ClusterShard
	// NATS servers of the logs, by whether they show what cluster.require asks for.
	ServersOK, ServersDegraded int

	Takeovers, Planned int64 // shards that this node began to own, after a failure or by a handover
	Fenced             int64 // times that a shard of this node was fenced
	Handovers          int64 // handovers by this node
	HandoverTime       time.Duration
}

// ClusterShard is a shard as one node sees it.
type ClusterShard struct {
	Shard    int
	Owner    bool // this node owns the shard
	Lost     bool // this node knows of commits that the log lacks
	Epoch    uint64
	Last     uint64 // sequence of the last known record of the log
	Lag      uint64 // records that this node has not applied
	Behind   time.Duration
	LogBytes int64         // only the owner knows it
	Snapshot time.Duration // age of the newest snapshot; 0 if there is none or it is unknown
}

const labelShard = "shard"

func shardReading(name, help string) reading { return gaugeReading("cluster_"+name, help, labelShard) }

// shardReadings are the metrics of each shard.
var shardReadings = []struct {
	reading
	value func(*ClusterShard) float64
}{
	{shardReading("owner", "1 while this node owns the shard, otherwise 0."), func(s *ClusterShard) float64 { return boolean(s.Owner) }},
	{shardReading("log_lost", "1 while this node knows of confirmed messages that the shard's log lacks, otherwise 0."), func(s *ClusterShard) float64 { return boolean(s.Lost) }},
	{shardReading("epoch", "Epoch of the shard: its number of owners so far."), func(s *ClusterShard) float64 { return float64(s.Epoch) }},
	{shardReading("last_sequence", "Sequence of the last record of the shard's log that this node knows."), func(s *ClusterShard) float64 { return float64(s.Last) }},
	{shardReading("lag_records", "Records of the log that this node's copy lacks; 0 for the owner."), func(s *ClusterShard) float64 { return float64(s.Lag) }},
	{shardReading("lag_seconds", "Time that this node's copy is behind; 0 for the owner."), func(s *ClusterShard) float64 { return s.Behind.Seconds() }},
}

var (
	logBytesMetric     = shardReading("log_bytes", "Bytes of the shard's log, reported by its owner.")
	snapshotAgeMetric  = shardReading("snapshot_age_seconds", "Age of the newest snapshot of the shard, reported by its owner if there is one.")
	serversMetric      = gaugeReading("cluster_servers", "NATS servers with replicas of the logs, by state: ok, or degraded if one does not show what cluster.require asks for.", "state")
	takeoversMetric    = counterReading("cluster_takeovers_total", "Shards that this node began to own, by kind: failure of the previous owner, or handover.", "kind")
	fencedMetric       = counterReading("cluster_fenced_total", "Times that this node stopped serving a shard because its log acked no writes.")
	handoversMetric    = counterReading("cluster_handovers_total", "Shards that this node handed over.")
	handoverTimeMetric = counterReading("cluster_handover_seconds_total", "Time of the handovers of fila_cluster_handovers_total, from the end of deliveries to the last record.")
)

// SetCluster sets the function that reads the state of the cluster. The returned function counts
// a record that the owner wrote: its size, and the time until the log acked it.
func (m *Metrics) SetCluster(read func() Cluster) (wrote func(bytes int, took time.Duration)) {
	size := m.histogram("cluster_record_bytes", "Bytes of a record that this node wrote to a log, beats included.", 64, 4, 10) // 64 B to 16 MiB
	took := m.histogram("cluster_append_duration_seconds", "Time to append a record of this node to the log.", .0001, 2, 17)   // 100 us to 6.5 s
	m.onScrape(func(export exporter) {
		c := read()
		for i := range c.Shards {
			s := &c.Shards[i]
			name := strconv.Itoa(s.Shard)
			for _, r := range shardReadings {
				export(r.reading, r.value(s), name)
			}
			if s.Owner {
				export(logBytesMetric, float64(s.LogBytes), name)
			}
			if s.Owner && s.Snapshot > 0 {
				export(snapshotAgeMetric, s.Snapshot.Seconds(), name)
			}
		}
		export(serversMetric, float64(c.ServersOK), "ok")
		export(serversMetric, float64(c.ServersDegraded), "degraded")
		export(takeoversMetric, float64(c.Takeovers), "failure")
		export(takeoversMetric, float64(c.Planned), "handover")
		export(fencedMetric, float64(c.Fenced))
		export(handoversMetric, float64(c.Handovers))
		export(handoverTimeMetric, c.HandoverTime.Seconds())
	})
	return func(bytes int, d time.Duration) {
		size.Observe(float64(bytes))
		took.Observe(d.Seconds())
	}
}
