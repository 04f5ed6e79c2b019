package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
)

// A schedule that may be on disk, although its outcome is unknown, is in the audit log. A refused one
// is not.
func TestAScheduleOfUnknownOutcomeIsAudited(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(wire.VerbQueueCreate, "orders", ``, nil)
		q, err := h.queue("orders")
		require.Nil(t, err)
		by := control.Actor{By: wire.VerbScheduleAdd.Name, Client: "ann"}
		for name, refusal := range map[string]*wire.Error{"unknown": wire.OutcomeUnknown(), "refused": wire.Draining()} {
			_, err := h.keepSchedule(by, q, name, func() (wire.ScheduleInfo, *wire.Error) {
				return wire.ScheduleInfo{Queue: "orders", Name: name}, refusal
			})
			require.Equal(t, refusal, err)
		}
		var log wire.ConfigLog
		h.must(wire.VerbConfigLog, "", `{"prefix":"schedule:"}`, &log)
		require.Len(t, log.Entries, 1)
		require.Equal(t, "schedule:orders/unknown", log.Entries[0].Key)
		require.Equal(t, "ann", log.Entries[0].Client)
	})
}
