package queue

// Pacing says when changes are handed in. The zero value hands them in at the end
// of each step.
type Pacing struct {
	// Hold keeps the changes of a queue back while an earlier commit of it is under
	// way: what is enqueued and acked meanwhile is never written.
	Hold bool
	// Linger (ns) is how long a message waits while messages of its commit are with
	// consumers, who may be done with them soon: then it is never written.
	Linger int64
	// LingerMost (ns) is how long it waits at most under load, which is four times
	// as long as messages live on average: with the writing of what is acked a
	// moment later, everybody would wait longer. It is load if a commit has Load
	// messages; a producer that waits for each confirmation does not.
	LingerMost int64
	Load       int
	// Idle (ns) is how long changes wait that nobody waits for.
	Idle int64
}

// DefaultPacing is what a server does.
var DefaultPacing = Pacing{Hold: true, Linger: 1e6, LingerMost: 20e6, Load: 16, Idle: 5e6}
