package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Cluster is the cluster as one node sees it when it is scraped.
type Cluster struct {
	Shards []ClusterShard

	Takeovers, Planned int64 // shards that this node began to own, after a failure or by a handover
	Fenced             int64 // times that a shard of this node was fenced
	Handovers          int64 // handovers by this node
	HandoverTime       time.Duration
}

// ClusterShard is a shard as one node sees it.
type ClusterShard struct {
	Shard    int
	Owner    bool // this node owns the shard
	Epoch    uint64
	Last     uint64 // sequence of the last known record of the log
	Lag      uint64 // records that this node has not applied
	Behind   time.Duration
	LogBytes int64         // only the owner knows it
	Snapshot time.Duration // age of the newest snapshot; 0 if there is none or it is unknown
}

const labelShard = "shard"

func shardDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("fila_cluster_"+name, help, []string{labelShard}, nil)
}

var shardSpecs = []struct {
	desc     *prometheus.Desc
	value    func(*ClusterShard) float64
	exported func(*ClusterShard) bool // whether to export the value; nil is always
}{
	{desc: shardDesc("owner", "1 while this node owns the shard, otherwise 0."), value: func(s *ClusterShard) float64 { return boolean(s.Owner) }},
	{desc: shardDesc("epoch", "Epoch of the shard: its number of owners so far."), value: func(s *ClusterShard) float64 { return float64(s.Epoch) }},
	{desc: shardDesc("last_sequence", "Sequence of the last record of the shard's log that this node knows."), value: func(s *ClusterShard) float64 { return float64(s.Last) }},
	{desc: shardDesc("lag_records", "Records of the log that this node's copy lacks; 0 for the owner."), value: func(s *ClusterShard) float64 { return float64(s.Lag) }},
	{desc: shardDesc("lag_seconds", "Time that this node's copy is behind; 0 for the owner."), value: func(s *ClusterShard) float64 { return s.Behind.Seconds() }},
	{
		desc:  shardDesc("log_bytes", "Bytes of the shard's log, reported by its owner."),
		value: func(s *ClusterShard) float64 { return float64(s.LogBytes) }, exported: func(s *ClusterShard) bool { return s.Owner },
	},
	{
		desc:  shardDesc("snapshot_age_seconds", "Age of the newest snapshot of the shard, reported by its owner if there is one."),
		value: func(s *ClusterShard) float64 { return s.Snapshot.Seconds() }, exported: func(s *ClusterShard) bool { return s.Owner && s.Snapshot > 0 },
	},
}

var (
	takeoversDesc    = prometheus.NewDesc("fila_cluster_takeovers_total", "Shards that this node began to own, by kind: failure of the previous owner, or handover.", []string{"kind"}, nil)
	fencedDesc       = prometheus.NewDesc("fila_cluster_fenced_total", "Times that a shard of this node fell silent because its log acked no writes.", nil, nil)
	handoversDesc    = prometheus.NewDesc("fila_cluster_handovers_total", "Shards that this node handed over.", nil, nil)
	handoverTimeDesc = prometheus.NewDesc("fila_cluster_handover_seconds_total", "Time of these handovers, from the end of deliveries to the last record.", nil, nil)
)

type clusterCollector func() Cluster

func (clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, spec := range shardSpecs {
		ch <- spec.desc
	}
	for _, d := range []*prometheus.Desc{takeoversDesc, fencedDesc, handoversDesc, handoverTimeDesc} {
		ch <- d
	}
}

func (read clusterCollector) Collect(ch chan<- prometheus.Metric) {
	c := read()
	for i := range c.Shards {
		s := &c.Shards[i]
		for _, spec := range shardSpecs {
			if spec.exported == nil || spec.exported(s) {
				ch <- prometheus.MustNewConstMetric(spec.desc, prometheus.GaugeValue, spec.value(s), strconv.Itoa(s.Shard))
			}
		}
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	count(takeoversDesc, float64(c.Takeovers), "failure")
	count(takeoversDesc, float64(c.Planned), "handover")
	count(fencedDesc, float64(c.Fenced))
	count(handoversDesc, float64(c.Handovers))
	count(handoverTimeDesc, c.HandoverTime.Seconds())
}

// SetCluster sets the function that reads the state of the cluster. The rules of SetGauges
// apply. The returned function counts a record that the owner wrote: its size, and the time
// until the log acked it.
func (m *Metrics) SetCluster(read func() Cluster) (wrote func(bytes int, took time.Duration)) {
	size := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fila_cluster_record_bytes", Help: "Bytes of the records that this node wrote to logs, beats included.",
		Buckets: prometheus.ExponentialBuckets(64, 4, 10), // 64 B to 16 MiB
	})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fila_cluster_append_duration_seconds", Help: "Time until the log had a record of this node.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 17), // 100 us to 6.5 s
	})
	m.registry.MustRegister(clusterCollector(read), size, took)
	return func(bytes int, d time.Duration) {
		size.Observe(float64(bytes))
		took.Observe(d.Seconds())
	}
}
