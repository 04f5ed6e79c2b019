package measure

import (
	"time"

	"github.com/prometheus/procfs"
)

// ReadUsage returns the usage of a process.
func ReadUsage(pid int) (Usage, error) {
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
