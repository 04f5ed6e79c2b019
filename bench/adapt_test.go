package bench

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const adaptFile = "../docs/limits-that-learn.svg"

var updatePicture = flag.Bool("update", false, "write docs/limits-that-learn.svg anew")

// The picture in the docs is what the simulation gives.
func TestAdaptPicture(t *testing.T) {
	var svg strings.Builder
	require.NoError(t, AdaptTimeline().WriteSVG(&svg))
	if *updatePicture {
		require.NoError(t, os.WriteFile(adaptFile, []byte(svg.String()), 0o644))
	}
	written, err := os.ReadFile(adaptFile)
	require.NoError(t, err)
	require.Equal(t, string(written), svg.String(), "go test ./bench -run TestAdaptPicture -update writes the picture anew")
}
