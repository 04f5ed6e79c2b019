package replog

import (
	"os"
	"strings"
)

// bootID names the time since the machine has started, "" if nobody knows it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
