package api

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// MaxPermitIDs is how many permits a [GuardEndRequest] may name by their ids.
const MaxPermitIDs = 1000

// MaxGuardHolders is how many keys, and how many callers, a [GuardPermitList] names.
const MaxGuardHolders = 10

// PermitFilter selects permits. A permit must match all given fields.
type PermitFilter struct {
	Key    string  `json:"key,omitempty"`    // the first key
	Caller *string `json:"caller,omitempty"` // the caller as in the check; "" is none
	User   string  `json:"user,omitempty"`   // the NATS user of the check, as account/user
}

func (f *PermitFilter) check() *wire.Error {
	if f.Key != "" {
		if err := wire.NameKey("key", &f.Key); err != nil {
			return err
		}
	}
	if f.Caller != nil {
		return checkCaller(*f.Caller)
	}
	return nil
}

// GuardPermitsRequest asks for a page of the permits in use, by id.
type GuardPermitsRequest struct {
	PermitFilter
	After string `json:"after,omitempty"` // Next of the previous page
	Limit int    `json:"limit"`           // 1 to 1000, default 100
}

func (r *GuardPermitsRequest) check() *wire.Error {
	if r.After != "" {
		if err := checkPermitID("after", r.After); err != nil {
			return err
		}
	}
	return cmp.Or(r.PermitFilter.check(), wire.CheckBounds(r))
}

// Bounds implements [wire.Bounded].
func (r *GuardPermitsRequest) Bounds() []wire.Bound { return []wire.Bound{boundOfLimit(r.Limit)} }

// GuardPermit is a permit in use. Operators name it by its id, but a done needs the permit
// itself.
type GuardPermit struct {
	ID        string   `json:"id"`
	Key       string   `json:"key"`            // the first key
	With      []string `json:"with,omitempty"` // further keys, in order
	Caller    string   `json:"caller,omitempty"`
	User      string   `json:"user,omitempty"`
	GivenAt   string   `json:"given_at"`
	ExpiresAt string   `json:"expires_at"`
	Probe     bool     `json:"probe,omitempty"`
}

// GuardHolder is the number of permits of a key or a caller.
type GuardHolder struct {
	Key     string `json:"key,omitempty"`
	Caller  string `json:"caller,omitempty"` // neither Key, Caller nor User: the callers without a name
	User    string `json:"user,omitempty"`   // if known, it counts instead of Caller
	Permits int    `json:"permits"`
}

// GuardPermitList answers guard-permits. The first page also has the keys and callers with
// the most permits, regardless of the filter.
type GuardPermitList struct {
	Permits []GuardPermit `json:"permits"`
	Next    string        `json:"next,omitempty"` // after of the next request, if there is more

	Total   int           `json:"total"`             // all permits in use, regardless of the filter
	Keys    []GuardHolder `json:"keys,omitempty"`    // up to 10, the largest first
	Callers []GuardHolder `json:"callers,omitempty"` // likewise

	Missing []string `json:"missing_nodes,omitempty"` // nodes of a cluster that did not answer
}

// GuardEndRequest ends permits as if they had expired, but without an outcome for their
// circuits. At least one field of the filter or one id is required.
type GuardEndRequest struct {
	PermitFilter
	IDs []string `json:"ids,omitempty"` // only these; at most 1000
}

func (r *GuardEndRequest) check() *wire.Error {
	switch {
	case len(r.IDs) > MaxPermitIDs:
		return wire.BadField("ids", strconv.Itoa(len(r.IDs))+" of them", "allowed are up to "+strconv.Itoa(MaxPermitIDs))
	case r.Key == "" && r.Caller == nil && r.User == "" && len(r.IDs) == 0:
		return wire.BadField("key", "", "key, caller, user or ids is required")
	}
	for _, id := range r.IDs {
		if err := checkPermitID("ids", id); err != nil {
			return err
		}
	}
	return r.PermitFilter.check()
}

// Bounds implements [wire.Bounded].
func (r *GuardEndRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "ids", Value: int64(len(r.IDs)), Max: MaxPermitIDs}}
}

// GuardEndReply answers guard-end.
type GuardEndReply struct {
	GuardEndRequest
	Ended   int64    `json:"ended"`                   // permits
	Missing []string `json:"missing_nodes,omitempty"` // nodes of a cluster that did not answer
}

// PermitID returns the id by which operators name a permit. Ids of one issuer are in the
// order in which it gave the permits.
func PermitID(issuer, number uint64) string { return fmt.Sprintf("%016x-%016x", issuer, number) }

// ParsePermitID is the inverse of [PermitID].
func ParsePermitID(id string) (issuer, number uint64, ok bool) {
	first, second, found := strings.Cut(id, "-")
	if !found || len(first) != 16 || len(second) != 16 || strings.ToLower(id) != id {
		return 0, 0, false
	}
	issuer, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	number, err = strconv.ParseUint(second, 16, 64)
	return issuer, number, err == nil
}

func checkPermitID(field, id string) *wire.Error {
	if _, _, ok := ParsePermitID(id); !ok {
		return wire.BadField(field, wire.Quote(id), "allowed is the id of a permit, as guard-permits lists it")
	}
	return nil
}

// MostPermits sums the permits of equal keys or callers, and returns the largest.
func MostPermits(holders []GuardHolder) []GuardHolder {
	sum := make(map[GuardHolder]int)
	for _, h := range holders {
		n := h.Permits
		h.Permits = 0
		sum[h] += n
	}
	all := make([]GuardHolder, 0, len(sum))
	for h, n := range sum {
		h.Permits = n
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b GuardHolder) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), cmp.Compare(a.Key, b.Key), cmp.Compare(a.User, b.User), cmp.Compare(a.Caller, b.Caller))
	})
	return all[:min(len(all), MaxGuardHolders)]
}
