// Package build builds fila for the tests that run it as a process, and starts processes. The
// packages of one `go test ./...` share the binary: it lies in the user's cache directory, and the
// go command links it again only after a change.
package build

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Binary puts an up-to-date fila, with the race detector if race is set, into dir and returns
// its path. Later builds do not change that file.
func Binary(dir string, race bool) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/filaq/fila").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = dir
	}
	cache = filepath.Join(cache, "fila-tests")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	// Checkouts do not share a binary, nor do builds with and without the race detector.
	name, args := fmt.Sprintf("fila-%x", sha256.Sum256(root))[:16], []string{"build"}
	if race {
		name, args = name+"-race", append(args, "-race")
	}
	shared := filepath.Join(cache, name)
	command := exec.Command("go", append(args, "-o", shared, ".")...)
	command.Dir = strings.TrimSpace(string(root))
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build fila: %w\n%s", err, text)
	}
	own := filepath.Join(dir, "fila")
	if runtime.GOOS == "windows" {
		own += ".exe"
	}
	if os.Link(shared, own) == nil { // a later build replaces shared and leaves own as it is
		return own, nil
	}
	return own, copyFile(shared, own)
}

// Start starts a command that is killed when this process ends, also by a panic, a test timeout or
// SIGKILL: a shell kills it when a pipe from this process closes. wait returns when the command has
// ended; it must be called.
func Start(cmd *exec.Cmd) (wait func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	guard := exec.Command("sh", "-c", fmt.Sprintf("trap '' INT; cat >/dev/null; kill -KILL %d", cmd.Process.Pid))
	pipe, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("start the guard of a process: %w", err)
	}
	return func() {
		_ = cmd.Wait() // the state of the process has the outcome
		_ = guard.Process.Kill()
		_ = pipe.Close()
		_ = guard.Wait()
	}, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close() // the first error counts
		return err
	}
	return out.Close()
}
