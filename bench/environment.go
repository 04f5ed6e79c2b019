package bench

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/report"
	"github.com/filaq/fila/bench/system"
)

func describe(version, dir string) (report.Environment, error) {
	env := report.Environment{
		Fila: version, NATSServer: system.ServerVersion, Go: runtime.Version(),
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
	env.SyncUs, err = syncTime(dir, 4096, 31)
	return env, err
}

// syncTime returns the median time in microseconds to write blocks and sync each of them, in a
// directory.
func syncTime(dir string, bytes, blocks int) (us float64, err error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, fmt.Errorf("data directory: %w", err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	block := make([]byte, bytes)
	var times []float64
	for range blocks {
		begin := time.Now()
		if _, err = f.Write(block); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return 0, fmt.Errorf("data directory: %w", err)
		}
		times = append(times, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	return measure.Median(times), nil
}
