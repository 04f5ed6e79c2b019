package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func zoned(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// The periods of a zone follow one another without a gap, and each day begins at the first moment
// that has its date, whatever the clock does at midnight: in Berlin nothing, in São Paulo it jumped
// over it, in Havana and on Lord Howe it comes back to it or near it.
func TestPeriodsFollowOneAnother(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Asia/Beirut"} {
		loc := zoned(t, name)
		for _, unit := range []Unit{Hour, Day, Week, Month} {
			p := Period{unit, name}
			at := time.Date(2016, 12, 25, 3, 0, 0, 0, loc).UnixNano()
			start, end := p.Around(at)
			for n := 0; n < 1200 && end < time.Date(2020, 1, 10, 0, 0, 0, 0, loc).UnixNano(); n++ {
				require.Less(t, start, end)
				require.True(t, start <= at && at < end)
				for _, inside := range []int64{start, start + (end-start)/2, end - 1} {
					s, e := p.Around(inside)
					require.Equal(t, [2]int64{start, end}, [2]int64{s, e}, "%s %s %s", name, unit, time.Unix(0, inside).In(loc))
				}
				first, before := time.Unix(0, start).In(loc), time.Unix(0, start-1).In(loc)
				if unit != Hour {
					require.NotEqual(t, before.Day(), first.Day(), "%s %s", name, first)
				}
				switch unit {
				case Week:
					require.Equal(t, time.Monday, first.Weekday())
				case Month:
					require.Equal(t, 1, first.Day())
				}
				start, at = end, end
				_, end = p.Around(end)
			}
		}
	}
}

func TestPeriodsOfChangingClocks(t *testing.T) {
	for _, c := range []struct {
		unit             Unit
		zone, at         string
		start, end, long string
	}{
		{Day, "Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00", "23h0m0s"},
		{Day, "Europe/Berlin", "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00", "25h0m0s"},
		{Month, "Europe/Berlin", "2026-11-30T23:59:59+01:00", "2026-11-01T00:00:00+01:00", "2026-12-01T00:00:00+01:00", "720h0m0s"},
		{Month, "Europe/Berlin", "2026-03-31T23:00:00Z", "2026-04-01T00:00:00+02:00", "2026-05-01T00:00:00+02:00", "720h0m0s"},
		{Month, "America/New_York", "2028-02-29T23:59:59-05:00", "2028-02-01T00:00:00-05:00", "2028-03-01T00:00:00-05:00", "696h0m0s"},
		{Week, "America/New_York", "2026-03-08T03:00:00-04:00", "2026-03-02T00:00:00-05:00", "2026-03-09T00:00:00-04:00", "167h0m0s"},
		{Week, "", "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z", "168h0m0s"},
		{Day, "America/Sao_Paulo", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", "23h0m0s"},
		{Day, "Australia/Lord_Howe", "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30", "24h30m0s"},
		{Hour, "Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00", "1h0m0s"},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		start, end := Period{c.unit, c.zone}.Around(at.UnixNano())
		for want, got := range map[string]int64{c.start: start, c.end: end} {
			when, err := time.Parse(time.RFC3339, want)
			require.NoError(t, err)
			require.True(t, when.Equal(time.Unix(0, got)), "%s of %s at %s: %s, not %s", c.unit, c.zone, c.at, time.Unix(0, got).In(when.Location()), want)
		}
		require.Equal(t, c.long, time.Duration(end-start).String())
	}
}

func TestZones(t *testing.T) {
	require.NoError(t, CheckZone(""))
	require.NoError(t, CheckZone("Asia/Tokyo"))
	for _, bad := range []string{"Local", "Berlin", "../etc/passwd"} {
		require.Error(t, CheckZone(bad), bad)
	}
	for u := Hour; u <= Month; u++ {
		again, ok := ParseUnit(u.String())
		require.True(t, ok)
		require.Equal(t, u, again)
	}
	_, ok := ParseUnit("")
	require.False(t, ok)
}
