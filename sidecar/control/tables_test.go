package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func middle() float64 { return 0.5 }

func TestTablesOfTheRuntimeConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		file.Routes = []config.RouteTable{{Choice: "large", Name: "only"}}
		r.started(&file)
		r.put("retry_policy:patient", `{"initial_delay_ms":5000,"multiplier":1}`)
		r.put("error_rule:b", `{"order":1,"code":"busy","retry_policy":"patient"}`)
		r.put("error_rule:a", `{"order":2,"code":"busy","retry":false}`)
		r.put("guard:stripe", `{"with":["tenant:*"],"expired":"failure"}`)
		r.put("route_choice:small", `{"routes":[{"name":"b","throttle_keys":["k"],"weight":2.5},{"name":"a","circuit_key":"c"}]}`)
		routes := map[string][]store.Route{
			"large": {{Name: "only"}},
			"small": {{Name: "b", ThrottleKeys: []string{"k"}, Weight: 2500}, {Name: "a", CircuitKey: "c"}},
		}
		check := func() {
			t.Helper()
			require.True(t, r.c.Rules().HasPolicy("patient"))
			v := r.c.Rules().Judge("orders", "", "busy", "", 1, middle)
			require.Equal(t, rules.Verdict{Rule: "b", Severity: "medium", Policy: "patient", Retry: true, Delay: 5e9}, v, "the first by order")
			require.Equal(t, "timeouts", r.c.Rules().Judge("orders", "", "timeout", "", 1, middle).Rule, "the file's are there")
			require.True(t, r.c.ExpiredFails("stripe"))
			require.True(t, r.c.Guards()[len(r.c.Guards())-1].Allows("stripe", "tenant:a"))
			require.Equal(t, routes, r.c.Routes())
		}
		check()
		r.reloaded()
		check()
		r.restart(true, 0)
		check()

		r.delete("error_rule:b")
		require.Equal(t, "a", r.c.Rules().Judge("orders", "", "busy", "", 1, middle).Rule)
		r.delete("retry_policy:patient")
		require.False(t, r.c.Rules().HasPolicy("patient"))
		r.delete("route_choice:small")
		delete(routes, "small")
		require.Equal(t, routes, r.c.Routes())
	})
}

func TestTablesThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		file.Routes = []config.RouteTable{{Choice: "large", Name: "only"}}
		r.started(&file)
		r.put("retry_policy:patient", `{}`)
		r.put("error_rule:busy", `{"code":"busy","retry_policy":"patient"}`)
		r.put("route_choice:small", `{"routes":[{"name":"one"}]}`)
		orders := file.Queues[0]
		orders.RetryPolicy = "quick"
		for key, tc := range map[string]struct{ value, want string }{
			"retry_policy:slow":    {`{}`, "the configuration file has retry_policy slow, which wins"},
			"retry_policy:a b":     {`{}`, "allowed are 1 to 64 bytes"},
			"retry_policy:fast":    {`{"jitter":2}`, "jitter = 2: allowed is 0 to 1"},
			"retry_policy:typo":    {`{"max_retrys":2}`, "max_retrys"},
			"retry_policy:number":  {`{"max_retries":"2"}`, "max_retries"},
			"error_rule:late":      {`{"order":-1,"code":"x"}`, "order"},
			"error_rule:odd":       {`{"code":"x","retry_policy":"nobody"}`, "nobody"},
			"error_rule:pattern":   {`{"pattern":"("}`, "pattern"},
			"guard:a*b":            {`{"with":["x"]}`, "one '*', at the end"},
			"retry_policy:patient": {"", "error_rule[busy]"},
			"route_choice:large":   {`{"routes":[{"name":"one"}]}`, "the configuration file has route_choice large, which wins"},
			"route_choice:none":    {`{"routes":[]}`, "routes is empty: allowed are 1 to 8"},
			"route_choice:small":   {`{"routes":[{"name":"one"},{"name":"one"}]}`, "small/one"},
			"route_choice:typo":    {`{"routes":[{"name":"one","circuit":"c"}]}`, "circuit"},
			"route_choice:heavy":   {`{"routes":[{"name":"one","weight":0.5}]}`, "route[heavy/one].weight = 0.5: allowed are 1 to 1000000, or 0 for none"},
			"route_choice:many":    {`{"routes":[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"},{"name":"5"},{"name":"6"},{"name":"7"},{"name":"8"},{"name":"9"}]}`, "more than 8 routes"},
		} {
			var err *wire.Error
			if tc.value == "" {
				_, err = r.c.ConfigDelete(verb(api.VerbConfigDelete), key)
			} else {
				_, err = r.c.ConfigSet(verb(api.VerbConfigSet), key, api.ConfigSetRequest{Value: tc.value})
			}
			refused(t, wire.CodeBadConfigValue, err)
			require.Contains(t, err.Description, tc.want, key)
		}
		require.Len(t, r.stored("error_rule:"), 1)
		require.Equal(t, map[string][]store.Route{"large": {{Name: "only"}}, "small": {{Name: "one"}}}, r.c.Routes())

		// A queue uses a policy.
		r.put("retry_policy:quick", `{"initial_delay_ms":1}`)
		_, werr := r.queues.Declare(t.Context(), orders)
		require.Nil(t, werr)
		_, err := r.c.ConfigDelete(verb(api.VerbConfigDelete), "retry_policy:quick")
		refused(t, wire.CodeBadConfigValue, err)
		require.Contains(t, err.Description, "queue orders has this retry_policy")
	})
}

// A file that takes a name wins over the runtime configuration; one that breaks its tables is refused
// by a reload, and is in force alone after a start.
func TestTablesBesideANewFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		r.started(&file)
		r.put("retry_policy:patient", `{"initial_delay_ms":5000}`)
		r.put("error_rule:busy", `{"code":"busy","retry_policy":"slow"}`)

		file.RetryPolicies = append(file.RetryPolicies, rules.RetryPolicy{Name: "patient", InitialDelayMs: 7})
		r.reloaded()
		require.EqualValues(t, 7e6, r.c.Rules().Judge("orders", "patient", "x", "", 1, middle).Delay)

		slow := file.RetryPolicies
		file.RetryPolicies, file.Queues[0].RetryPolicy = nil, ""
		for i := range file.ErrorRules {
			file.ErrorRules[i].RetryPolicy = ""
		}
		_, err := r.c.Reload(t.Context())
		refused(t, wire.CodeReloadFailed, err)
		require.Contains(t, err.Description, "error_rule[busy]")
		require.True(t, r.c.Rules().HasPolicy("slow"))

		r.cfg = file
		r.restart(false, 0)
		require.Contains(t, r.log.String(), "have no effect")
		require.Empty(t, r.c.Rules().Judge("orders", "", "busy", "", 1, middle).Rule)
		file.RetryPolicies = slow
		r.cfg = file
		r.restart(false, 0)
		require.Equal(t, "busy", r.c.Rules().Judge("orders", "", "busy", "", 1, middle).Rule)
	})
}
