package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Environment says on what a report was made.
type Environment struct {
	Fila       string `json:"fila"`        // version
	NATSServer string `json:"nats_server"` // version of the server in this program, which all systems run
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	CPUs       int    `json:"cpus"`
	GOGC       string `json:"gogc"` // of all processes, but for the servers of memory, recovery and soak
	// SyncUs is the median time in microseconds to write 4 KiB and sync them, in
	// the directory of the data.
	SyncUs float64 `json:"sync_us,omitempty"`
	// InMemory: the data is on a file system in memory, where syncs cost nothing
	// and durable systems look faster than they are.
	InMemory bool `json:"in_memory,omitempty"`
}

func describe(version, dir string) (Environment, error) {
	env := Environment{
		Fila: version, NATSServer: server.VERSION, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), GOGC: os.Getenv("GOGC"),
	}
	if env.GOGC == "" {
		env.GOGC = GarbagePercent
	}
	if dir == "" {
		return env, nil
	}
	env.InMemory = memoryFS(dir)
	var err error
	env.SyncUs, err = syncTime(dir)
	return env, err
}

func syncTime(dir string) (us float64, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, 4096)
	var times []float64
	for range 31 {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("data directory: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("data directory: %w", err)
		}
		times = append(times, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	return median(times), nil
}
