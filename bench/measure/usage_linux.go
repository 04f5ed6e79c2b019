package measure

import (
	"time"

	"github.com/prometheus/procfs"
)

// ReadUsage returns what a process has used.
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

// MachineBusy returns how long all processors together were busy since the
// machine started, with what other virtual machines took of them.
func MachineBusy() (time.Duration, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	t := stat.CPUTotal
	return seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal), err
}
