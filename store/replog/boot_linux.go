package replog

import (
	"os"
	"strings"
)

// bootID returns the id of the current boot of the machine, "" if it is unknown.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
