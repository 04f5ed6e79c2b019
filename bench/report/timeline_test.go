package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/bench/measure"
)

// drawing is the content of a picture.
type drawing struct {
	texts, paths []string
	bars, fills  []string // widths and colours of rectangles
	height       float64
	lowest       float64 // text
}

func readDrawing(t *testing.T, svg string) drawing {
	t.Helper()
	var d drawing
	dec := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		require.NoError(t, err, "it is well-formed")
		switch token := token.(type) {
		case xml.StartElement:
			for _, a := range token.Attr {
				v, _ := strconv.ParseFloat(a.Value, 64)
				switch token.Name.Local + " " + a.Name.Local {
				case "rect width":
					d.bars = append(d.bars, a.Value)
				case "svg height":
					d.height = v
				case "rect fill":
					d.fills = append(d.fills, a.Value)
				case "text y":
					d.lowest = max(d.lowest, v)
				case "path d":
					d.paths = append(d.paths, a.Value)
				}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				d.texts = append(d.texts, text)
			}
		}
	}
}

func TestChartOfASoak(t *testing.T) {
	var b strings.Builder
	require.NoError(t, soakReport().Chart(&b))
	d := readDrawing(t, b.String())
	const title = "fila bench soak: 70 % <&>, 10,000 messages/s, linux/amd64, 2 CPUs"
	require.Equal(t, []string{
		title, title,
		"rate, messages/s", "0", "5,000", "10,000",
		"publish to delivery, ms", "0", "1", "2", "3", "p99", "p50",
		"memory of the server, MiB", "0", "50", "100", "150", "RSS",
		"files, MiB", "0.00", "0.01", "0.02",
		"0", "1", "2", "3", "4", "5", "6", "seconds; the dashed lines part the thirds",
	}, d.texts, "figures that nobody took have no panel")
	require.Len(t, d.paths, 5)
	require.Equal(t, 5, strings.Count(d.paths[0], "L"), "six points in one line")
	require.Equal(t, 2, strings.Count(d.paths[1], "M"), "broken where an interval lacks the figure")
	require.Equal(t, 3, strings.Count(d.paths[1], "L"))
	require.Less(t, d.lowest, d.height, "all of it is in the picture")
	require.NotContains(t, b.String(), "NaN")
}

// The chart of a failed soak has its intervals.
func TestChartOfAFailedSoak(t *testing.T) {
	r := soakReport()
	l := &r.Workloads[0].Lanes[0]
	l.Rounds, l.Series = nil, l.Series[:1]
	l.Add(nil, nil, errors.New("nothing has moved"))
	r.Conclude()
	var b strings.Builder
	require.NoError(t, r.Chart(&b))
	d := readDrawing(t, b.String())
	require.Equal(t, "fila bench soak: 70 % <&>, linux/amd64, 2 CPUs", d.texts[0])
	require.Contains(t, d.paths[0], "h0", "one interval is a dot")
}

func TestTimeScaleHasAFittingUnit(t *testing.T) {
	for seconds, want := range map[float64]string{60: "seconds", 1800: "minutes", 24 * 3600: "hours"} {
		require.Equal(t, want, newTimeScale([]measure.Sample{{"at_s": seconds}}).name)
	}
}

func TestSteps(t *testing.T) {
	for _, tc := range []struct {
		largest float64
		n       int
		want    float64
		text    string // of three steps
	}{
		{0, 3, 1, "3"},
		{0.02, 3, 0.01, "0.03"},
		{1, 3, 0.5, "1.5"},
		{3, 3, 1, "3"},
		{30, 10, 5, "15"},
		{34_547, 3, 20_000, "60,000"},
		{95, 3, 50, "150"},
		{99_999, 3, 50_000, "150,000"},
	} {
		step := niceStep(tc.largest, tc.n)
		require.InEpsilon(t, tc.want, step, 1e-9, "%v", tc.largest)
		require.Equal(t, tc.text, tickText(3*step, step), "%v", tc.largest)
	}
}
