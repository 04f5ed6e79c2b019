package api

import (
	"strconv"

	"github.com/filaq/fila/wire"
)

// Bounds of a [DeadGroupsRequest].
const (
	DefaultDeadGroups = 100
	MaxDeadGroups     = 1000
)

// RedriveRequest moves messages of a dead letter queue back, oldest first.
type RedriveRequest struct {
	Count int64 `json:"count,omitempty"` // 0: all
}

func (r *RedriveRequest) check() *wire.Error {
	if r.Count < 0 {
		return wire.BadField("count", strconv.FormatInt(r.Count, 10), "allowed are 0 (all) and more")
	}
	return nil
}

// RedriveReply answers a [RedriveRequest].
type RedriveReply struct {
	Redriven int64  `json:"redriven"`
	Job      string `json:"job"` // the id of the job that did it; job-show shows it for seven days
}

// DeadGroupsRequest asks for the dead letters of a queue grouped by error, largest group
// first.
type DeadGroupsRequest struct {
	Limit int `json:"limit"` // 1 to 1000, default 100
}

func (r *DeadGroupsRequest) check() *wire.Error {
	return wire.InRange("limit", r.Limit, 1, MaxDeadGroups)
}

// DeadGroups answers a [DeadGroupsRequest].
type DeadGroups struct {
	Queue    string      `json:"queue"`
	Messages int64       `json:"messages"`        // in all groups
	Total    int         `json:"total"`           // number of groups, including those not shown
	Groups   []DeadGroup `json:"groups"`          // largest first
	Other    int64       `json:"other,omitempty"` // messages in no group, because there are too many groups
}

// DeadGroup is the dead letters of one queue with the same error: the same code, and the
// same text except for numbers, ids, quoted parts and paths.
type DeadGroup struct {
	Group       string     `json:"group"` // error_group of a [Filter]
	SourceQueue string     `json:"source_queue"`
	ErrorCode   string     `json:"error_code,omitempty"`
	Error       string     `json:"error"` // the common part of the text; the reason if there is neither code nor text
	Messages    int64      `json:"messages"`
	First       string     `json:"first,omitempty"` // when the first and the last of the messages died; RFC 3339
	Last        string     `json:"last,omitempty"`
	Left        int64      `json:"left"`             // how many were redriven; moves to other queues do not count
	CameBack    int64      `json:"came_back"`        // how many of Messages had been redriven before, for whatever error
	Keys        []KeyCount `json:"keys"`             // the most frequent fairness keys, at most five
	Sample      string     `json:"sample,omitempty"` // the id of the message that died last
}

// KeyCount is a fairness key and its number of messages.
type KeyCount struct {
	Key      string `json:"key"`
	Messages int64  `json:"messages"`
}
