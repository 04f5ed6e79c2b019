package calendar

import (
	"archive/zip"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// zonesOf calls each for the time zones in a folder such as /usr/share/zoneinfo, of those
// with the same rules once.
func zonesOf(t *testing.T, dir fs.FS, each func(*time.Location)) (n int) {
	t.Helper()
	seen := map[[sha256.Size]byte]bool{}
	require.NoError(t, fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := fs.Stat(dir, name); err != nil || info.IsDir() { // a link to a folder
			return err
		}
		data, err := fs.ReadFile(dir, name)
		if err != nil || !strings.HasPrefix(string(data), "TZif") || seen[sha256.Sum256(data)] {
			return err
		}
		seen[sha256.Sum256(data)] = true
		zone, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			return err
		}
		each(zone)
		n++
		return nil
	}))
	return n
}

// sources returns the zone data of this machine. The data of Go, which are in the binary, end
// in 2007 and continue by rules; a system may have a table until 2037.
func sources(t *testing.T) map[string]fs.FS {
	t.Helper()
	all := map[string]fs.FS{}
	root, err := exec.Command("go", "env", "GOROOT").Output() // a binary built with -trimpath does not know it
	require.NoError(t, err)
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, archive.Close()) })
	all["Go"] = archive
	const system = "/usr/share/zoneinfo"
	if _, err := os.Stat(system + "/Europe/Berlin"); err == nil {
		all["system"] = os.DirFS(system)
	} else if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return all
}

// TestPeriodsOfAllZones goes through the periods of each zone for 400 years: they follow
// each other without an end, and within one the offset stays.
func TestPeriodsOfAllZones(t *testing.T) {
	begin, limit := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, source := range sources(t) {
		n := zonesOf(t, source, func(zone *time.Location) {
			offset := func(at time.Time) int { _, offset := at.In(zone).Zone(); return offset }
			periods := 0
			for at := begin; at.Before(limit); periods++ {
				p := periodAt(at, zone, limit)
				if !p.end.After(at) || periods > 12*400 {
					t.Fatalf("%s of %s: the period of %s ends %s, after %d others", zone, name, at, p.end, periods)
				}
				for _, inside := range []time.Time{at.Add(p.end.Sub(at) / 2), p.end.Add(-time.Second)} {
					if offset(inside) != p.offset {
						t.Fatalf("%s of %s: from %s to %s the offset is %d, at %s %d", zone, name, at, p.end, p.offset, inside, offset(inside))
					}
				}
				at = p.end
			}
		})
		require.Greater(t, n, 200, name)
		t.Logf("%d zones of %s", n, name)
	}
}

// TestNextOverFourCenturies asks each zone for the runs of schedules on 31 December of leap
// years, where [time.Time.ZoneBounds] goes back, and around them. A run is what its spec
// says on the clock on the wall, and takes few steps to be found.
func TestNextOverFourCenturies(t *testing.T) {
	var years []int
	for year := 2024; year <= 2424; year += 4 {
		years = append(years, year)
	}
	if testing.Short() {
		years = years[:4]
	}
	for name, source := range sources(t) {
		zonesOf(t, source, func(zone *time.Location) {
			for text, step := range map[string]time.Duration{"0 30 13 * * *": 26 * time.Hour, "0 0 12 1 1 *": 367 * 24 * time.Hour, "0 30 12 29 2 *": horizon} {
				c, err := parseCron(text, zone)
				require.NoError(t, err)
				for _, year := range years {
					for _, after := range []time.Time{
						time.Date(year, 12, 30, 12, 0, 0, 0, time.UTC), time.Date(year, 12, 31, 0, 0, 0, 0, zone), time.Date(year, 12, 31, 15, 0, 0, 0, zone),
					} {
						at, steps, ok := c.search(after)
						wall := at.In(zone)
						switch {
						case !ok || !at.After(after) || at.Sub(after) > step || steps > maxSteps/2:
							t.Fatalf("%s of %s: %q after %s is %s (%t), found in %d steps", zone, name, text, after, at, ok, steps)
						case !c.onDay(wall.Day(), wall.Weekday()) || wall.Hour() != 12 && wall.Hour() != 13:
							t.Fatalf("%s of %s: %q after %s is %s", zone, name, text, after, wall)
						}
					}
				}
			}
		})
	}
}

// TestNothingIsSearchedForEver has schedules that name no day.
func TestNothingIsSearchedForEver(t *testing.T) {
	for name, source := range sources(t) {
		zonesOf(t, source, func(zone *time.Location) {
			c, err := parseCron("0 0 0 31 2 *", zone)
			require.NoError(t, err)
			_, steps, ok := c.search(time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC))
			if ok || steps > maxSteps/2 {
				t.Fatalf("%s of %s: %t after %d steps", zone, name, ok, steps)
			}
		})
	}
}
