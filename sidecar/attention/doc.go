// Package attention says what is wrong with a fila now.
//
// [Conditions] is the table of all conditions: name, severity, the alerts of
// deploy/prometheus that watch the same, and how it is recognised. A [Monitor] compares
// samples of a node with the table. It keeps what a single sample cannot show: when a
// finding began, and the counters of the last 15 minutes of each queue. [Merge] joins the
// findings of the nodes of a cluster.
//
// The package is pure: the time is in the sample. Package admin takes the samples and has
// the verb; the overview, fila status and fila top show its reply.
package attention
