package bench

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// readUsage returns what a process has used.
func readUsage(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseProc(string(stat), string(status))
}

// machineBusy returns how long all processors have been busy.
func machineBusy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseMachine(string(stat))
}

// dieWithParent lets the kernel end a child whose parent was killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// memoryFS reports whether a directory lies in memory, where syncs cost
// nothing.
func memoryFS(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil {
		return false
	}
	kind := uint32(fs.Type)
	return kind == tmpfs || kind == ramfs
}
