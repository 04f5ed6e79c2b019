package bench

import (
	"os/exec"
	"syscall"
)

// DieWithParent makes the kernel kill a child when its parent dies.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// memoryFS reports whether a directory is in memory, where syncs are free.
func memoryFS(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil {
		return false
	}
	kind := uint32(fs.Type)
	return kind == tmpfs || kind == ramfs
}
