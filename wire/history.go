package wire

// How an attempt at a message has ended, or what else there is in its history.
const (
	AttemptNack         = "nack"          // the consumer said that it failed
	AttemptTerm         = "term"          // the consumer sent +TERM
	AttemptExpired      = "expired"       // the lease ran out
	AttemptNoResponders = "no_responders" // nobody received the delivery: it does not count
	AttemptRedriven     = "redriven"      // no attempt: a dead letter went back to its queue
	AttemptMoved        = "moved"         // no attempt: a job moved it to another queue
)

// Who has decided what became of a message after a failed attempt.
const (
	DecidedByHook     = "hook"           // on_failure
	DecidedByConsumer = "consumer"       // the delay of its nack, or its +TERM
	DecidedByRule     = "rule"           // an error rule
	DecidedByPolicy   = "policy"         // the retry policy of the queue
	DecidedByDefault  = "default"        // the backoff of the queue
	DecidedByLimit    = "max_deliveries" // whatever the others said
	DecidedByTTL      = "ttl"            // as well
)

// AttemptInfo is one record of the history of a message, the oldest first. A history has
// the first record and the newest; of an attempt whose number is missing nothing is known
// any more. Times are RFC 3339.
type AttemptInfo struct {
	Outcome   string     `json:"outcome"`               // one of the Attempt constants, or "unreadable"
	Attempt   uint32     `json:"attempt,omitempty"`     // its number, which begins anew with a redrive
	Dead      bool       `json:"dead,omitempty"`        // it was delivered from the dead letter queue
	At        string     `json:"at,omitempty"`          // when it was delivered, redriven or moved
	Consumer  string     `json:"consumer,omitempty"`    // that had it
	TookMs    int64      `json:"took_ms,omitempty"`     // from the delivery to the end
	Error     string     `json:"error,omitempty"`       // that the consumer told
	ErrorCode string     `json:"error_code,omitempty"`  // as well
	DecidedBy string     `json:"decided_by,omitempty"`  // one of the DecidedBy constants
	Rule      string     `json:"rule,omitempty"`        // error rule that the failure fits, whoever decided
	Reason    string     `json:"dead_reason,omitempty"` // why it became a dead letter then
	DelayMs   int64      `json:"delay_ms,omitempty"`    // until the retry
	WaitedMs  int64      `json:"waited_ms,omitempty"`   // from when it was ready to the delivery
	Held      []HeldInfo `json:"held,omitempty"`        // by which gates meanwhile, at most four, the longest first
	Times     uint32     `json:"times,omitempty"`       // how many deliveries in a row it is about, if more than one; the rest is said of the first one,
	LastAt    string     `json:"last_at,omitempty"`     // but for when the last of these was, and Consumer, that of the last one
	From      string     `json:"from,omitempty"`        // of a message that was moved: the queue that it left
	To        string     `json:"to,omitempty"`          // as well: the queue that it came to
}

// HeldInfo is how long a gate has held a message back.
type HeldInfo struct {
	Kind string `json:"kind"` // as in [GateState]
	Gate string `json:"gate"` // as well
	Ms   int64  `json:"ms"`
}
