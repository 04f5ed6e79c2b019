package wire

// Outcomes of attempts, and other records of a message's history.
const (
	AttemptNack         = "nack"          // the consumer sent a nack
	AttemptTerm         = "term"          // the consumer sent +TERM
	AttemptExpired      = "expired"       // the lease ran out
	AttemptNoResponders = "no_responders" // no consumer received the delivery: it does not count
	AttemptRedriven     = "redriven"      // no attempt: a dead letter went back to its queue
	AttemptMoved        = "moved"         // no attempt: a job moved it to another queue
)

// Deciders about a message after a failed attempt.
const (
	DecidedByHook     = "hook"           // on_failure
	DecidedByConsumer = "consumer"       // the delay of its nack, or its +TERM
	DecidedByRule     = "rule"           // an error rule
	DecidedByPolicy   = "policy"         // the retry policy of the queue
	DecidedByDefault  = "default"        // the backoff of the queue
	DecidedByLimit    = "max_deliveries" // it overrules the others
	DecidedByTTL      = "ttl"            // it overrules the others
)
