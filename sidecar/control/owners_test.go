package control

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestOwnersOfLimits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		set := func(client, owner, rate string, force bool, expected *wire.Rate) (api.ThrottleInfo, *wire.Error) {
			req := api.ThrottleSetRequest{Key: "tenant:*", Owner: owner, Force: force}
			req.Rate = new(wire.Rate(rate))
			if expected != nil {
				req.If = &api.ThrottleLimits{Rate: expected}
			}
			return r.c.ThrottleSet(Actor{By: api.VerbThrottleSet.Name, Client: client}, req)
		}
		info, err := set("billing-1", "", "40", false, nil)
		require.Nil(t, err)
		require.Empty(t, info.Warnings)
		info, err = set("billing-1", "", "41", false, nil)
		require.Nil(t, err)
		require.Empty(t, info.Warnings, "its own")
		info, err = set("mail-1", "", "5", false, nil)
		require.Nil(t, err)
		require.Equal(t, []string{"the limits were 41/s, set by billing-1 at " + in(0)}, info.Warnings)
		require.Contains(t, r.log.String(), "limits that another client has set are changed")

		info, err = set("billing-1", "billing", "40", false, nil)
		require.Nil(t, err)
		require.Equal(t, "billing", info.Owner)
		_, err = set("mail-1", "mail", "5", false, nil)
		refused(t, wire.CodeThrottleOwned, err)
		require.Contains(t, err.Description, `throttle key "tenant:*" belongs to "billing" (40/s)`)
		require.Equal(t, perSecond(40), r.limits("tenant:a").Rate)
		override := api.ThrottleSetRequest{Key: "tenant:*", ForMs: 1000}
		override.Rate = new(wire.Rate("2"))
		info, err = r.c.ThrottleSet(Actor{Client: "mail-1"}, override)
		require.Nil(t, err, "an override ends by itself")
		require.Equal(t, []string{"the limits were 40/s, set by their owner billing"}, info.Warnings)
		r.pass(2 * time.Second)
		info, err = set("mail-1", "", "6", false, new(wire.Rate("40")))
		require.Nil(t, err, "it knows the limits")
		require.Equal(t, []string{"the limits were 40/s, set by their owner billing"}, info.Warnings)
		require.Equal(t, "billing", info.Owner)
		info, err = set("mail-1", "mail", "5", true, nil)
		require.Nil(t, err)
		require.Equal(t, "mail", info.Owner)

		r.restart(true, 0)
		_, err = set("billing-1", "billing", "40", false, nil)
		refused(t, wire.CodeThrottleOwned, err)
		cleared, err := r.c.ThrottleClear(Actor{Client: "billing-1"}, api.GateKeyRequest{Key: "tenant:*"})
		require.Nil(t, err)
		require.Equal(t, []string{"the limits were 5/s, set by their owner mail"}, cleared.Warnings)
		require.Empty(t, cleared.Owner)
	})
}
