package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// ReadUsage returns the usage of a process and its descendants. A server that consists of many
// processes shares memory between them, which counts for each.
func ReadUsage(pid int) (Usage, error) {
	u, err := readOne(pid)
	if err != nil {
		return Usage{}, err
	}
	for _, child := range children(pid) {
		if of, err := ReadUsage(child); err == nil { // it may have ended
			u.CPU, u.RSS, u.Anon, u.Peak = u.CPU+of.CPU, u.RSS+of.RSS, u.Anon+of.Anon, u.Peak+of.Peak
		}
	}
	return u, nil
}

// children returns the children that a process has, as far as the kernel tells.
func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func readOne(pid int) (Usage, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}, err
	}
	stat, err := p.Stat()
	if err != nil {
		return Usage{}, err
	}
	status, err := p.NewStatus()
	return Usage{
		CPU: seconds(stat.CPUTime()),
		RSS: int64(status.VmRSS), Anon: int64(status.RssAnon), Peak: int64(status.VmHWM),
	}, err
}

// MachineBusy returns the busy time of all processors since the machine started, including time
// that other virtual machines have taken.
func MachineBusy() (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	t := stat.CPUTotal
	return seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal), err
}
