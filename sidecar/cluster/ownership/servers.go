package ownership

import (
	"slices"
	"strconv"
	"strings"
)

// MinVersion is the oldest nats-server without known defects of Raft that lose acked records.
const MinVersion = "2.14.4"

// VersionOK reports whether a version of nats-server is MinVersion or newer, or is named in allowed.
// A pre-release is older than its release.
func VersionOK(version string, allowed []string) bool {
	if slices.Contains(allowed, version) {
		return true
	}
	have, ok := parseVersion(version)
	least, _ := parseVersion(MinVersion)
	return ok && slices.Compare(have[:], least[:]) >= 0
}

// parseVersion returns the parts of a version; the last one is 0 for a pre-release, otherwise 1.
func parseVersion(version string) (parts [4]int, ok bool) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	release, _, pre := strings.Cut(release, "-")
	numbers := strings.Split(release, ".")
	if len(numbers) != 3 {
		return parts, false
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return parts, false
		}
		parts[i] = n
	}
	if !pre {
		parts[3] = 1
	}
	return parts, true
}
