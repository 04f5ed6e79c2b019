package wire

// VerbDeadGroups is the admin verb that groups the dead letters of the queue at the end of
// its subject by their errors.
const VerbDeadGroups = "dead-groups"

// Bounds of a [DeadGroupsRequest].
const (
	DefaultDeadGroups = 100
	MaxDeadGroups     = 1000
)

// DeadGroupsRequest asks for the groups of errors of a dead letter queue, the largest
// first.
type DeadGroupsRequest struct {
	Limit int `json:"limit"` // 1 to 1000, default 100
}

// ParseDeadGroups decodes and checks a [DeadGroupsRequest].
func ParseDeadGroups(body []byte) (DeadGroupsRequest, *Error) {
	return parse(body, DeadGroupsRequest{Limit: DefaultDeadGroups}, func(r *DeadGroupsRequest) *Error {
		return inRange("limit", r.Limit, 1, MaxDeadGroups)
	})
}

// DeadGroups answers a [DeadGroupsRequest].
type DeadGroups struct {
	Queue    string      `json:"queue"`
	Messages int64       `json:"messages"`        // of all groups
	Total    int         `json:"total"`           // groups, also those that are not shown
	Groups   []DeadGroup `json:"groups"`          // the largest first
	Other    int64       `json:"other,omitempty"` // messages of no group: there are more groups than are told apart
}

// DeadGroup is the dead letters of one queue with the same error: the same code, and the
// same text but for numbers, ids, quoted parts and paths.
type DeadGroup struct {
	Group       string     `json:"group"` // error_group of a [Filter]
	SourceQueue string     `json:"source_queue"`
	ErrorCode   string     `json:"error_code,omitempty"`
	Error       string     `json:"error"` // what they have in common of the text; the reason if they have neither code nor text
	Messages    int64      `json:"messages"`
	First       string     `json:"first,omitempty"` // when the first and the last died, of those that are there; RFC 3339
	Last        string     `json:"last,omitempty"`
	Left        int64      `json:"left"`             // how many of it were redriven; moves to other queues do not count
	CameBack    int64      `json:"came_back"`        // how many of Messages had been redriven before, whatever they died of then
	Keys        []KeyCount `json:"keys"`             // the fairness keys that most of them have, at most five
	Sample      string     `json:"sample,omitempty"` // the id of the one that died last
}

// KeyCount is a fairness key with how many messages have it.
type KeyCount struct {
	Key      string `json:"key"`
	Messages int64  `json:"messages"`
}

// Shorten implements [Long]: the smallest groups are left out.
func (d DeadGroups) Shorten(room int) any {
	d.Groups, _ = shorten(d.Groups, room-envelope)
	return d
}
