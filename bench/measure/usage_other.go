//go:build !linux

package measure

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// ReadUsage returns what a process has used, as ps tells. Where there is no ps,
// figures of CPU and memory are left out.
func ReadUsage(pid int) (Usage, error) {
	out, err := exec.Command("ps", "-o", "rss=,time=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return Usage{}, fmt.Errorf("ps: %w", err)
	}
	return parsePS(string(out))
}

// MachineBusy cannot tell here.
func MachineBusy() (time.Duration, error) { return 0, errors.ErrUnsupported }
