package api

import (
	"cmp"
	"math"

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

// Bounds implements [wire.Bounded].
func (r *RedriveRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "count", Value: r.Count, Min: 1, Max: math.MaxInt64, Zero: "all"}}
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

// Bounds implements [wire.Bounded].
func (r *DeadGroupsRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "limit", Value: int64(r.Limit), Min: 1, Max: MaxDeadGroups}}
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
	Left        int64      `json:"left"`             // messages that were redriven, each once; moves to other queues do not count
	CameBack    int64      `json:"came_back"`        // of these, how many are dead letters again now, in whatever group
	Keys        []KeyCount `json:"keys"`             // the most frequent fairness keys, at most five
	Sample      string     `json:"sample,omitempty"` // the id of the message that died last
	// Before are the changes of the two minutes before First, the newest first, at most three.
	Before []Mark `json:"before,omitempty"`
}

// KeyCount is a fairness key and its number of messages.
type KeyCount struct {
	Key      string `json:"key"`
	Messages int64  `json:"messages"`
}

// Bounds of a [DeadRatesRequest].
const (
	MaxDeadRateMinutes = 60
	DefaultDeadRates   = 7
	MaxDeadRates       = 64
)

// DeadRatesRequest asks how many messages became dead letters in each of the last minutes.
type DeadRatesRequest struct {
	Queue   string `json:"queue,omitempty"` // the queue, or its dead letter queue; empty: all queues
	Minutes int    `json:"minutes"`         // 1 to 60, default 60; the last one is the present one
	Limit   int    `json:"limit"`           // how many groups, 1 to 64, default 7
}

func (r *DeadRatesRequest) check() *wire.Error {
	return cmp.Or(checkOptionalQueue(r.Queue), wire.CheckBounds(r))
}

// Bounds implements [wire.Bounded].
func (r *DeadRatesRequest) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "minutes", Value: int64(r.Minutes), Min: 1, Max: MaxDeadRateMinutes},
		{Field: "limit", Value: int64(r.Limit), Min: 1, Max: MaxDeadRates},
	}
}

// DeadRates answers a [DeadRatesRequest]. It counts since the process of the queue started, 64
// groups of a queue at most.
type DeadRates struct {
	Queue    string     `json:"queue,omitempty"`
	From     string     `json:"from"`     // RFC 3339: when the first minute began
	Messages int64      `json:"messages"` // that became dead letters in these minutes
	Total    int        `json:"total"`    // groups that are counted separately
	Groups   []DeadRate `json:"groups"`   // the most messages first
	Other    []int64    `json:"other"`    // messages of all other groups, by minute
	// Missing are the shards of a cluster that no node serves at the moment.
	Missing []int `json:"missing_shards,omitempty"`
}

// DeadRate is how many messages of a [DeadGroup] became dead letters. Group, SourceQueue,
// ErrorCode and Error have the same values there.
type DeadRate struct {
	Group       string  `json:"group"`
	SourceQueue string  `json:"source_queue"`
	ErrorCode   string  `json:"error_code,omitempty"`
	Error       string  `json:"error"`
	Messages    int64   `json:"messages"`
	Minutes     []int64 `json:"minutes"` // messages by minute
}

// Shorten implements [Long].
func (d *DeadRates) Shorten(room int) {
	all := d.Groups
	d.Groups, _ = shorten(d.Groups, room-envelope)
	for _, g := range all[len(d.Groups):] {
		for i, n := range g.Minutes {
			d.Other[i] += n
		}
	}
}
