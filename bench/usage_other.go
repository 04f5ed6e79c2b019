//go:build !linux

package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// readUsage returns what a process has used, as ps tells. Where there is no ps,
// figures of CPU and memory are left out.
func readUsage(pid int) (usage, error) {
	out, err := exec.Command("ps", "-o", "rss=,time=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return usage{}, fmt.Errorf("ps: %w", err)
	}
	return parsePS(string(out))
}

// machineBusy cannot tell here.
func machineBusy() (time.Duration, error) { return 0, errors.ErrUnsupported }

// dieWithParent does nothing here: children are ended by name of their process
// only.
func dieWithParent(*exec.Cmd) {}

// memoryFS cannot tell here.
func memoryFS(string) bool { return false }
