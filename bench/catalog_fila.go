package bench

import "strconv"

// Lanes of what fila alone can do, and of states of a queue.

func keyLanes(backlog bool) func(o *Options) []lane {
	return func(o *Options) []lane {
		var lanes []lane
		for _, keys := range []int{10, 1000, 10_000, 100_000, 1_000_000} {
			lanes = append(lanes, keyLane(o, sysFila, thousands(float64(keys)), keys, backlog))
		}
		lanes = append(lanes, keyLane(o, sysFIFO, "10", 10, backlog))
		return lanes
	}
}

func keyLane(o *Options, sys system, name string, keys int, backlog bool) lane {
	l := lane{Case: name, sys: sys, quick: keys <= 1000 && !backlog}
	if backlog {
		l.spec = o.load(sys, o.fill("fill", o.Backlog), o.life(1, window))
	} else {
		l.spec = o.load(sys, o.life(1, window))
	}
	l.spec.Keys = keys
	return l
}

func hookLanes(o *Options) []lane {
	off := lane{Case: "off", sys: sysFila, quick: true, spec: o.load(sysFila, o.life(1, window))}
	on := lane{Case: "on", sys: sysFila, quick: true, spec: o.load(sysFila, o.life(1, window))}
	on.spec.Settings.FairnessHeader, on.spec.Settings.OnEnqueue = "", hookScript
	return []lane{off, on}
}

// throttleLanes sends the same headers in all cases; only the queue's settings
// make throttle keys of them. The limits are never reached.
func throttleLanes(o *Options) []lane {
	const most = 3
	var lanes []lane
	for _, gates := range []int{0, 1, most} {
		l := lane{Case: counted(int64(gates), "key"), sys: sysFila, quick: gates < most, spec: o.load(sysFila, o.life(1, window))}
		l.spec.Gates = most
		l.spec.Config = map[string]string{}
		for i := range gates {
			name := gateHeader + strconv.Itoa(i+1)
			l.spec.Settings.ThrottleHeaders = append(l.spec.Settings.ThrottleHeaders, name)
			l.spec.Config["throttle:%s-"+name+":rate"] = "1000000"
			l.spec.Config["throttle:%s-"+name+":burst"] = "1000000"
		}
		lanes = append(lanes, l)
	}
	return lanes
}

func consumerLanes(o *Options) []lane {
	var lanes []lane
	for _, n := range []int{1, 10, 100, 1000} {
		for _, sys := range []system{sysFila, sysJS} {
			p := o.life(1, window)
			p.Consumers = n
			lanes = append(lanes, lane{Case: thousands(float64(n)), sys: sys, quick: n == 10, spec: o.load(sys, p)})
		}
	}
	return lanes
}

func backlogLanes(o *Options) []lane {
	var lanes []lane
	for _, sys := range []system{sysFila, sysFIFO, sysJS} {
		empty, full := o.life(1, window), o.life(1, window)
		empty.Name, full.Name, full.Drain = "empty", "backlog", true
		lanes = append(lanes, lane{
			Case: thousands(float64(o.Backlog)), sys: sys, quick: sys == sysFila,
			spec: o.load(sys, empty, o.fill("fill", o.Backlog), full),
		})
	}
	return lanes
}

func slowLanes(o *Options) []lane {
	var lanes []lane
	for slow, name := range []string{"8 fast", "8 fast, 1 slow"} {
		for _, sys := range []system{sysFila, sysJS} {
			p := o.life(1, window)
			p.Consumers, p.Slow = 8, slow
			lanes = append(lanes, lane{Case: name, sys: sys, quick: sys == sysFila, spec: o.load(sys, p)})
		}
	}
	return lanes
}

// settleMs is how long a server gets to give memory back.
const settleMs = 2000

func memoryLanes(o *Options) []lane {
	var lanes []lane
	for _, sys := range []system{sysFila, sysJS} {
		tenth, rest := o.fill("tenth", o.Backlog/10), o.fill("full", o.Backlog-o.Backlog/10)
		tenth.SettleMs, rest.SettleMs = settleMs, settleMs
		if o.Quick {
			tenth.SettleMs, rest.SettleMs = 1, 1
		}
		lanes = append(lanes, lane{
			Case: thousands(float64(o.Backlog)), sys: sys, quick: sys == sysFila, ownGC: true,
			spec: o.load(sys, tenth, rest),
		})
	}
	return lanes
}

func recoveryLanes(o *Options) []lane {
	var lanes []lane
	for _, sys := range []system{sysFila, sysJS} {
		lanes = append(lanes, lane{
			Case: thousands(float64(o.Backlog)), sys: sys, quick: sys == sysFila, ownGC: true, restart: true,
			spec: o.load(sys, o.fill("fill", o.Backlog)),
		})
	}
	return lanes
}
