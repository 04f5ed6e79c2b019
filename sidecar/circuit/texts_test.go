package circuit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// TestCausesHaveTexts: the causes of openings are the ones that api puts into words.
func TestCausesHaveTexts(t *testing.T) {
	require.Equal(t, []string{api.CauseFailures, api.CauseRetryAfter, api.CauseByHand, api.CauseMaxFailures},
		[]string{causeFailures, causeRetryAfter, causeByHand, causeMaxFailures})
}
