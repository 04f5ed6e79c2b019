package ownership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionOK(t *testing.T) {
	for version, want := range map[string]bool{
		"2.14.4": true, "2.14.10": true, "2.15.0-RC.1": true, "2.15.2": true, "3.0.0": true, "v2.14.4": true, "2.14.4+deb1": true,
		"2.14.3": false, "2.14.4-RC.2": false, "2.12.99": false, "1.99.99": false, "2.14": false, "dev": false, "": false, "2.14.-4": false,
		"2.12.6": true, "2.12.7": false, // the first is allowed by name
	} {
		require.Equal(t, want, VersionOK(version, []string{"2.12.6"}), version)
	}
}
