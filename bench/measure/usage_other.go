//go:build !linux

package measure

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// ReadUsage returns the usage of a process from ps. Without ps, figures of CPU and memory are
// left out.
func ReadUsage(pid int) (Usage, error) {
	out, err := exec.Command("ps", "-o", "rss=,time=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return Usage{}, fmt.Errorf("ps: %w", err)
	}
	return parsePS(string(out))
}

// MachineBusy is not known on this system.
func MachineBusy() (time.Duration, error) { return 0, errors.ErrUnsupported }
