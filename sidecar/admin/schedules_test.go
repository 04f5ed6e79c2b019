package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A schedule that may be on disk, although its outcome is unknown, is in the audit log. A refused one
// is not.
func TestAScheduleOfUnknownOutcomeIsAudited(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		by := control.Actor{By: api.VerbScheduleAdd.Name, Sender: api.Sender{Client: "ann"}}
		for name, refusal := range map[string]*wire.Error{"unknown": wire.OutcomeUnknown(), "refused": wire.Draining()} {
			_, err := h.auditSchedule(by, control.ScheduleObject("orders", name), func() (api.ScheduleInfo, *wire.Error) {
				return api.ScheduleInfo{Queue: "orders", Name: name}, refusal
			})
			require.Equal(t, refusal, err)
		}
		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", `{"prefix":"schedule:"}`, &log)
		require.Len(t, log.Entries, 1)
		require.Equal(t, "schedule:orders/unknown", log.Entries[0].Key)
		require.Equal(t, "ann", log.Entries[0].Client)
	})
}
