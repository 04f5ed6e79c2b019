package opscmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

const lanesFile = "../../docs/lanes.svg"

// pictureTenants are the backlogs of docs/lanes.svg. initech has most of the messages; globex has
// weight 3; hooli is paused.
var pictureTenants = []struct {
	name, weight string
	messages     int
}{{"initech", "1", 60}, {"globex", "3", 36}, {"acme", "1", 16}, {"hooli", "1", 12}}

// pictureSteps is how many deliveries docs/lanes.svg shows.
const pictureSteps = 20

// TestLanesPicture makes the lanes of a real queue, delivers its messages one by one, and draws
// that as docs/lanes.svg: go test ./cli/opscmd -run TestLanesPicture -update writes it. The
// deliveries come in the order that the lanes said.
func TestLanesPicture(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a server")
	}
	ctx := t.Context()
	s := newDemoStage(&command.Env{}, io.Discard)
	s.errOut = io.Discard
	defer func() { require.NoError(t, s.end(0)) }()
	server, err := s.start(ctx, demoConfig(t.TempDir()))
	require.NoError(t, err)
	c := server.c
	_, err = c.QueueCreate(ctx, "orders", client.QueueSettings{FairnessHeader: "tenant", WeightHeader: "weight"})
	require.NoError(t, err)
	_, err = c.Pause(ctx, api.PauseRequest{Kind: "key", Queue: "orders", Name: "hooli"})
	require.NoError(t, err)
	for _, tenant := range pictureTenants {
		for n := range tenant.messages {
			_, err := c.Publish(ctx, "orders", fmt.Append(nil, n), client.Header("tenant", tenant.name), client.Header("weight", tenant.weight))
			require.NoError(t, err)
		}
	}
	p := lanesPicture{names: map[string]int{}}
	for step := range pictureSteps {
		p.add(t, lanesOf(ctx, t, c, 2*pictureSteps-step))
		got, err := c.Fetch(ctx, "orders", 1, demoPatience)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, p.steps[step].Next[0].Key, got[0].Key, "delivery %d", step)
		require.NoError(t, got[0].Ack())
	}
	p.add(t, lanesOf(ctx, t, c, pictureSteps))
	svg := p.svg()
	require.NotContains(t, svg, "<script")
	if *updateFrames {
		require.NoError(t, os.WriteFile(lanesFile, []byte(svg), 0o600))
	}
	written, err := os.ReadFile(lanesFile)
	require.NoError(t, err)
	require.Equal(t, string(written), svg, "go test ./cli/opscmd -run TestLanesPicture -update writes the picture anew")
}

// lanesOf returns the lanes when no message is in flight.
func lanesOf(ctx context.Context, t *testing.T, c *client.Client, next int) (lanes api.LanesReply) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		lanes, err = c.Lanes(ctx, "orders", api.LanesRequest{Limit: 20, Next: next})
		return err == nil && lanes.InFlight == 0
	}, demoPatience, 10*time.Millisecond)
	return lanes
}

// lanesPicture draws lanes at several times, as an animation by CSS, which stands still for
// viewers who prefer that.
type lanesPicture struct {
	names map[string]int // lane by key
	order []string
	steps []api.LanesReply
}

func (p *lanesPicture) add(t *testing.T, lanes api.LanesReply) {
	t.Helper()
	if len(p.steps) == 0 {
		for i := range lanes.Lanes {
			p.names[lanes.Lanes[i].Key] = i
			p.order = append(p.order, lanes.Lanes[i].Key)
		}
		require.Len(t, p.order, len(pictureTenants))
	}
	p.steps = append(p.steps, lanes)
}

// lane returns a lane of a step; the zero lane if the key has nothing left.
func (p *lanesPicture) lane(step int, key string) (none api.Lane) {
	for i := range p.steps[step].Lanes {
		if l := &p.steps[step].Lanes[i]; l.Key == key {
			return *l
		}
	}
	return none
}

// Sizes are px.
const (
	picWidth, picTop, picLane   = 760, 58, 52
	picBar, picBarEnd, picScale = 116, 336, 3.6 // the bars grow from right to left
	picGate, picSlot            = 352, 24
)

var picColors = []string{"#3b5bdb", "#0b8a83", "#b4570a", "#8a93a3"}

// keyframes returns an animation with a value for each step. A value holds for most of its
// step.
func (p *lanesPicture) keyframes(name string, value func(step int) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "@keyframes %s{", name)
	for step := range p.steps {
		from := float64(step) / float64(len(p.steps)) * 100
		hold := from + 60/float64(len(p.steps))
		fmt.Fprintf(&b, "%.2f%%,%.2f%%{%s}", from, hold, value(step))
	}
	fmt.Fprintf(&b, "100%%{%s}}\n", value(len(p.steps)-1))
	return b.String()
}

func (p *lanesPicture) svg() string {
	height := picTop + picLane*len(p.order) + 12
	var style, body strings.Builder
	for i, key := range p.order {
		y, first := picTop+picLane*i, p.lane(0, key)
		waits := func(step int) int64 {
			l := p.lane(step, key)
			return l.Ready + l.Blocked
		}
		most := float64(waits(0))
		length := most * picScale
		style.WriteString(p.keyframes(fmt.Sprintf("b%d", i), func(step int) string {
			return fmt.Sprintf("transform:scaleX(%.4f)", float64(waits(step))/most)
		}))
		fmt.Fprintf(&style, ".b%d{transform-origin:%dpx 0;animation-name:b%d}\n", i, picBarEnd, i)
		goes := 0
		for _, next := range p.steps[0].Next {
			if next.Key == key {
				goes++
			}
		}
		note := fmt.Sprintf("weight %g: %d of %d deliveries", first.Weight, goes, len(p.steps[0].Next))
		if first.BlockedBy != nil {
			note = "paused: does not keep the others waiting"
		}
		fmt.Fprintf(&body, "<line x1=\"20\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"#e3e6eb\"/>\n", picWidth-20, y-6, y-6)
		fmt.Fprintf(&body, "<text x=\"20\" y=\"%d\" class=\"key\">%s</text><text x=\"20\" y=\"%d\" class=\"note\">%s</text>\n", y+12, key, y+36, note)
		fmt.Fprintf(&body, "<rect class=\"a b%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"14\" rx=\"2\" fill=\"%s\"/>\n", i, picBarEnd-length, y, length, picColors[i])
	}
	style.WriteString(p.keyframes("go", func(step int) string { return fmt.Sprintf("transform:translateX(%dpx)", -step*picSlot) }))
	fmt.Fprintf(&body, "<line x1=\"%d\" x2=\"%d\" y1=\"30\" y2=\"%d\" stroke=\"#5b6472\" stroke-dasharray=\"3 3\"/>\n", picGate, picGate, height-10)
	fmt.Fprintf(&body, "<g clip-path=\"url(#right)\"><g class=\"a\" style=\"animation-name:go\">\n")
	for n, next := range p.steps[0].Next {
		lane := p.names[next.Key]
		x, y := picGate+6+n*picSlot, picTop+picLane*lane-4
		fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"22\" rx=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\" class=\"n\">%d</text>\n",
			x, y, picSlot-4, picColors[lane], x+picSlot/2-2, y+15, n+1)
	}
	body.WriteString("</g></g>\n")
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Lanes of four tenants. initech has most of the messages, but globex with weight 3 goes three times as often, and acme as often as initech.">
<style>
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1c2330}
.key{font-weight:600}.note,.head{font-size:11px;fill:#5b6472}.n{font-size:11px;fill:#fff;text-anchor:middle}
.a{animation-duration:%ds;animation-iteration-count:infinite;animation-timing-function:ease-in-out}
@media(prefers-reduced-motion:reduce){.a{animation:none}}
%s</style>
<clipPath id="right"><rect x="%d" y="0" width="%d" height="%d"/></clipPath>
<rect width="%d" height="%d" rx="8" fill="#fff" stroke="#e3e6eb"/>
<text x="%d" y="34" class="head" text-anchor="end">messages that wait</text><text x="%d" y="34" class="head">next deliveries, in order</text>
%s</svg>
`, picWidth, height, picWidth, height, len(p.steps), style.String(), picGate+1, picWidth-picGate-12, height, picWidth, height, picBarEnd, picGate+8, body.String())
}
