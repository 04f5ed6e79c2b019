package load

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/filaq/fila/bench/measure"
)

// sampler reports the figures of each interval of a phase. Only the goroutine that watches the
// phase uses it.
type sampler struct {
	crew  *crew
	every time.Duration // 0: never
	begin time.Time
	last  counts
	ended int // intervals
}

func newSampler(c *crew, begin counts) *sampler {
	return &sampler{crew: c, every: time.Duration(c.p.SampleMs) * time.Millisecond, begin: begin.at, last: begin}
}

// sampleDue reports an interval if now is at or after its end. Ends do not drift: after a late
// end the next interval is shorter.
func (s *sampler) sampleDue(ctx context.Context, now time.Time) {
	if s.every == 0 || now.Sub(s.begin) < s.every*time.Duration(s.ended+1) {
		return
	}
	s.ended = int(now.Sub(s.begin) / s.every)
	e, point := s.crew.e, measure.Sample{}
	c := e.countAll()
	s.crew.cut(point)
	e.figures(s.crew.p, s.last, c, point)
	point["at_s"] = c.at.Sub(s.begin).Seconds()
	if cpu, ok := point["server_cpu_s"]; ok {
		point["server_cpus"] = cpu / point["seconds"]
	}
	e.contentInto(ctx, point)
	s.last = c
	point.DropUndefined()
	e.point(point)
}

// contentInto adds the content of the queue and of the server's files, as far as it is known.
func (e *engine) contentInto(ctx context.Context, point measure.Sample) {
	held, err := e.target.Held(ctx)
	if err != nil {
		e.note("no content of the queue", err)
	} else {
		point["queue_messages"] = float64(held.Messages)
		point["queue_mb"] = float64(held.Bytes) / (1 << 20)
	}
	if e.spec.DataDir == "" {
		return
	}
	size, err := sizeOf(e.spec.DataDir)
	if err != nil {
		e.note("no size of the files", err)
		return
	}
	point["files_mb"] = float64(size) / (1 << 20)
}

// sizeOf returns the size of all files below a directory.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that has just been removed
		}
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
