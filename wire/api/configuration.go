package api

import (
	"strconv"

	"github.com/filaq/fila/wire"
)

// ConfigSetRequest sets a key of the runtime configuration.
type ConfigSetRequest struct {
	Value string `json:"value"` // at most 64 KiB
	// IfValue, unless nil, must be the present value.
	IfValue *string `json:"if_value,omitempty"`
}

func (r *ConfigSetRequest) bind(key string) *wire.Error {
	if len(r.Value) > wire.MaxConfigValue {
		return wire.BadConfigValue(key, r.Value, "allowed are at most "+strconv.Itoa(wire.MaxConfigValue)+" bytes")
	}
	return nil
}

// ConfigSetReply answers a [ConfigSetRequest].
type ConfigSetReply struct {
	Key      string  `json:"key"`
	Value    string  `json:"value"`
	Previous *string `json:"previous"` // null if the key was not set
	// Warnings name values that another owner or client had set.
	Warnings []string `json:"warnings,omitempty"`
}

// MaxConfigEdit is the largest number of keys that one request changes.
const MaxConfigEdit = 64

// ConfigEditRequest changes several keys of the runtime configuration: all of them or none.
type ConfigEditRequest struct {
	Set map[string]*string `json:"set"` // values by key; null deletes
	// If are values that must be there now, by key; null: the key must not be set.
	If     map[string]*string `json:"if,omitempty"`
	DryRun bool               `json:"dry_run,omitempty"` // only say what would change
}

func (r *ConfigEditRequest) check() *wire.Error {
	if len(r.Set) == 0 || len(r.Set)+len(r.If) > MaxConfigEdit {
		return wire.BadField("set", strconv.Itoa(len(r.Set)+len(r.If))+" keys with if", "1 to "+strconv.Itoa(MaxConfigEdit))
	}
	for key, value := range r.Set {
		if err := wire.CheckConfigKey(key); err != nil {
			return wire.BadConfigKey(err)
		}
		if value != nil {
			if err := (&ConfigSetRequest{Value: *value}).bind(key); err != nil {
				return err
			}
		}
	}
	for key := range r.If {
		if err := wire.CheckConfigKey(key); err != nil {
			return wire.BadConfigKey(err)
		}
	}
	return nil
}

// Bounds implements [wire.Bounded].
func (r *ConfigEditRequest) Bounds() []wire.Bound {
	return []wire.Bound{{Field: "set", Value: int64(len(r.Set)), Min: 1, Max: MaxConfigEdit}}
}

// ConfigEditReply answers a [ConfigEditRequest]. Keys that have the value already are not in it.
type ConfigEditReply struct {
	DryRun  bool           `json:"dry_run,omitempty"`
	Changes []ConfigChange `json:"changes"`           // by key
	InFile  []string       `json:"in_file,omitempty"` // tables of the configuration file, such as "throttle stripe", that undo them at the next start or reload
	// Warnings are as in [ConfigSetReply].
	Warnings []string `json:"warnings,omitempty"`
}

// ConfigChange is the change of a key.
type ConfigChange struct {
	Key      string  `json:"key"`
	Value    *string `json:"value"`    // null: deleted
	Previous *string `json:"previous"` // null: it was not set
}

// ConfigEntry is one key of the runtime configuration. It answers config-get,
// and config-delete with the deleted value.
type ConfigEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	// Owner of the object of the key, and the owner's reason, in the reply to config-get.
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Warnings in the reply to config-delete are as in [ConfigSetReply].
	Warnings []string `json:"warnings,omitempty"`
}

// KeyListRequest asks for a page of entries whose key starts with Prefix: of the runtime
// configuration, throttles or circuits by key, or of the audit log, newest first.
type KeyListRequest struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`  // as in [ListRequest]
	Offset int    `json:"offset,omitempty"` // as in [ListRequest]
	Limit  int    `json:"limit,omitempty"`  // 1 to 1000, default 100
}

var firstKeys = KeyListRequest{Limit: DefaultListLimit}

func (r *KeyListRequest) check() *wire.Error {
	r.Prefix = wire.NamedKey(r.Prefix)
	return wire.CheckBounds(r)
}

// Bounds implements [wire.Bounded].
func (r *KeyListRequest) Bounds() []wire.Bound { return boundsOfPage(r.Offset, r.Limit) }

// ConfigList answers config-list.
type ConfigList struct {
	Total   int           `json:"total"` // of all pages
	Entries []ConfigEntry `json:"entries"`
	Next    string        `json:"next,omitempty"` // after of the next request, if there is more
}

// ConfigLogEntry is one change in the audit log.
type ConfigLogEntry struct {
	Seq  uint64  `json:"seq"`
	Time string  `json:"time"`
	Key  string  `json:"key"` // of the configuration, or pause:<kind>:<name> and the like
	Old  *string `json:"old"`
	New  *string `json:"new"`
	// Client is who requested the change, as far as NATS or the client itself says.
	Client string `json:"client,omitempty"`
	By     string `json:"by"` // config-set, config-delete, throttle-set, file, override-ended, pause, resume, ...
	// Owner and Reason are of the request, see [Sender].
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// OwnedBy is the owner before the change, if it is another one.
	OwnedBy string `json:"owned_by,omitempty"`
}

// Author names the client and the owner for whom it made the change.
func (e *ConfigLogEntry) Author() string { return AuthorText(e.Client, e.Owner) }

// ConfigLog answers config-log.
type ConfigLog struct {
	Total   int              `json:"total"`
	Entries []ConfigLogEntry `json:"entries"`
	Next    string           `json:"next,omitempty"` // after of the next request, if there is more
}

// ReloadRequest makes fila read its configuration file again.
type ReloadRequest struct {
	DryRun bool `json:"dry_run,omitempty"` // only say what would change
}

// ReloadReply says what a reload changed, or would change.
type ReloadReply struct {
	DryRun  bool     `json:"dry_run,omitempty"`
	Changes []string `json:"changes"`

	// In a cluster every node reloads its own file: the nodes that did, and why others did
	// not. Each change then names its node.
	Nodes       []string `json:"nodes,omitempty"`
	NotReloaded []string `json:"not_reloaded,omitempty"`
}

// StoreBackupReply describes a backup. Path is absolute, on the machine of fila.
type StoreBackupReply struct {
	Path       string `json:"path"`
	Bytes      int64  `json:"bytes"`
	DurationMs int64  `json:"duration_ms"`
}
