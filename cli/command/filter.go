package command

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// FilterFlags are the flags with which all commands select messages.
type FilterFlags struct {
	cmd     *cobra.Command
	names   []string
	json    string
	headers []string
	api.Filter
}

// FilterFlags adds the flags to a command. queue returns the queue of the arguments, for
// completion; nil means the first argument.
func (env *Env) FilterFlags(cmd *cobra.Command, queue func(args []string) string) *FilterFlags {
	f, flags := &FilterFlags{cmd: cmd}, cmd.Flags()
	text := func(to *string, name, usage string) {
		flags.StringVar(to, name, "", usage)
		f.names = append(f.names, name)
	}
	texts := func(to *[]string, name, usage string) {
		flags.StringArrayVar(to, name, nil, usage)
		f.names = append(f.names, name)
	}
	text(&f.State, "state", "only messages in this `state`: ready, blocked, delayed, leased or dead")
	Allow(cmd, "state", api.StateReady, api.StateBlocked, api.StateDelayed, api.StateLeased, api.StateDead)
	texts(&f.Keys, "key", "only messages of this fairness `key`; may be repeated")
	texts(&f.IDs, "id", "only the message with this `id`; may be repeated")
	texts(&f.headers, "header", "only messages with this header, `name=value`; may be repeated (all must match)")
	flags.Uint32Var(&f.AttemptsMin, "attempts-min", 0, "only messages with at least this many attempts")
	f.names = append(f.names, "attempts-min")
	text(&f.EnqueuedAfter, "enqueued-after", "only messages enqueued from this `time` on: RFC 3339, or 90m for 90 minutes ago")
	text(&f.EnqueuedBefore, "enqueued-before", "only messages enqueued before this `time`")
	text(&f.Consumer, "consumer", "only messages leased to this `consumer`")
	text(&f.Gate, "gate", "only messages with this `gate`: throttle:KEY or circuit:KEY")
	text(&f.Reason, "reason", "only dead letters with this `reason`: "+strings.Join(wire.Reasons(), ", "))
	Allow(cmd, "reason", wire.Reasons()...)
	text(&f.ErrorCode, "error-code", "only messages whose last error has this `code`")
	text(&f.ErrorContains, "error-contains", "only messages whose last error contains this `text`")
	text(&f.ErrorGroup, "error-group", "only messages whose last error is of this `group`")
	text(&f.DiedAfter, "died-after", "only messages dead-lettered from this `time` on")
	text(&f.DiedBefore, "died-before", "only messages dead-lettered before this `time`")
	for name, find := range map[string]Lookup{
		"key": FairnessKeys, "consumer": consumers, "gate": gates, "error-group": ErrorGroups, "error-code": errorCodes,
	} {
		CompleteFlag(cmd, name, env.OfQueue(find, queue))
	}
	flags.StringVar(&f.json, "filter", "", "these flags as one filter in `JSON`, as in the protocol")
	return f
}

// Named returns the checked filter of the flags, or nil without flags. Durations are not
// converted to times: only fila's clock counts.
func (f *FilterFlags) Named() (*api.Filter, error) {
	var named string
	for _, name := range f.names {
		flag := f.cmd.Flag(name)
		if !flag.Changed {
			continue
		}
		named = name
		if flag.Value.String() == flag.DefValue { // the default is the empty value of the type
			return nil, UsageError("--%s: a value is required", name)
		}
	}
	given := f.cmd.Flag("filter").Changed
	switch {
	case given && named != "":
		return nil, UsageError("--filter goes without --%s: one of them is allowed", named)
	case !given && named == "":
		return nil, nil
	}
	body := []byte(f.json)
	if !given {
		var err error
		if body, err = f.encode(); err != nil {
			return nil, err
		}
	}
	if _, err := api.ParseFilter(body, time.Now()); err != nil {
		return nil, f.refused(given, err)
	}
	var filter api.Filter
	if err := json.Unmarshal(body, &filter); err != nil {
		return nil, UsageError("--filter: %w", err)
	}
	return &filter, nil
}

// refused replaces the filter's field name in an error by the flag's name.
func (f *FilterFlags) refused(asJSON bool, refused *wire.Error) error {
	if asJSON {
		return UsageError("--filter: %s", refused.Description)
	}
	for _, name := range f.names {
		rest, found := strings.CutPrefix(refused.Description, strings.ReplaceAll(name, "-", "_")+" ")
		if found {
			return UsageError("--%s %s", name, rest)
		}
	}
	return UsageError("%s", refused.Description)
}

func (f *FilterFlags) encode() ([]byte, error) {
	f.Header = nil
	for _, text := range f.headers {
		name, value, err := ParseHeader("header", text)
		if err != nil {
			return nil, err
		}
		for other := range f.Header {
			if strings.EqualFold(other, name) {
				return nil, UsageError("--header %q: %s is given twice, and all must match", text, name)
			}
		}
		if f.Header == nil {
			f.Header = make(map[string]string)
		}
		f.Header[name] = value
	}
	return json.Marshal(f.Filter)
}
