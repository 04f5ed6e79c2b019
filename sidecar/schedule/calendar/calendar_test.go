package calendar

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	tm, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return tm
}

// runs are the next ones after a time, in the zone of the schedule.
func runs(t *testing.T, text, zone, after string, n int) []string {
	t.Helper()
	from := at(t, after)
	s, err := Parse(text, zone, from)
	require.NoError(t, err, text)
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	var got []string
	for range n {
		next, ok := s.Next(from)
		if !ok {
			break
		}
		require.True(t, next.After(from), "%s is not after %s", next, from)
		require.Equal(t, time.UTC, next.Location())
		got, from = append(got, next.In(loc).Format("2006-01-02T15:04:05Z07:00")), next
	}
	return got
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		text, after string
		want        []string
	}{
		{"@at 2026-03-29T02:30:00+01:00", "2026-01-01T00:00:00Z", []string{"2026-03-29T01:30:00Z"}},
		{"@every 90m", "2026-01-01T00:00:05.7Z", []string{"2026-01-01T01:30:05Z", "2026-01-01T03:00:05Z"}},
		{"@every 1s", "2026-01-01T00:00:00Z", []string{"2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"}},
		{"@yearly", "2026-01-01T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"@annually", "2026-05-01T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"@monthly", "2026-11-02T00:00:00Z", []string{"2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"}},
		{"@weekly", "2026-11-22T00:00:00Z", []string{"2026-11-29T00:00:00Z"}},
		{"@daily", "2026-12-31T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{"@midnight", "2026-12-31T12:00:00Z", []string{"2027-01-01T00:00:00Z"}},
		{" @hourly ", "2026-12-31T23:00:00.5Z", []string{"2027-01-01T00:00:00Z", "2027-01-01T01:00:00Z"}},
		{"* * * * * *", "2026-02-28T23:59:58Z", []string{"2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z"}},
		{"0 30 4 1,15 * 5", "2026-05-01T04:29:59Z", []string{"2026-05-01T04:30:00Z", "2026-05-08T04:30:00Z", "2026-05-15T04:30:00Z", "2026-05-22T04:30:00Z"}},
		{"0 0 0 */2 * mon", "2026-11-01T00:00:00Z", []string{"2026-11-09T00:00:00Z", "2026-11-23T00:00:00Z"}},
		{"0 0 9-17/4 * JAN-mar Mon,WED", "2026-03-30T17:00:00Z", []string{"2027-01-04T09:00:00Z", "2027-01-04T13:00:00Z", "2027-01-04T17:00:00Z", "2027-01-06T09:00:00Z"}},
		{"5/20 0 0 1 1 *", "2026-01-01T00:00:05Z", []string{"2026-01-01T00:00:25Z", "2026-01-01T00:00:45Z", "2027-01-01T00:00:05Z"}},
		{"0 0 0 29 2 *", "2097-01-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}}, // 2100 is no leap year
		{"59 59 23 31 12 *", "2026-12-31T23:59:59Z", []string{"2027-12-31T23:59:59Z"}},
		{"30 1,3 5 * * *", "2026-01-01T05:01:31Z", []string{"2026-01-01T05:03:30Z", "2026-01-02T05:01:30Z"}},
		{"0 0 0 29 2 *", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"10 0 * * * *", "2026-01-01T05:00:10Z", []string{"2026-01-01T06:00:10Z"}},
	} {
		require.Equal(t, c.want, runs(t, c.text, "", c.after, len(c.want)), c.text)
	}
	require.Len(t, runs(t, "@at 2026-03-29T02:30:00Z", "", "2026-01-01T00:00:00Z", 2), 1, "it runs once")
}

// The clock changes twice a year in three zones: one of the north, one of the south, and one
// that is changed by half an hour.
func TestTheClockOnTheWallIsChanged(t *testing.T) {
	for _, c := range []struct {
		name, text, zone, after string
		want                    []string
	}{
		// 2026-03-08 in New York: 01:59:59 is followed by 03:00:00.
		{
			"a time that is skipped", "0 30 2 * * *", "America/New_York", "2026-03-07T00:00:00-05:00",
			[]string{"2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"},
		},
		{
			"many of them run once, with one at that moment", "0 */10 2-3 * * *", "America/New_York", "2026-03-08T01:59:59-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-08T03:10:00-04:00"},
		},
		{
			"after the moment of the change", "0 30 2 * * *", "America/New_York", "2026-03-08T03:00:00-04:00",
			[]string{"2026-03-09T02:30:00-04:00"},
		},
		{
			"hours are counted", "0 */30 * * * *", "America/New_York", "2026-03-08T01:00:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"},
		},
		{
			"an hour of a step that is skipped", "0 30 */2 * * *", "America/New_York", "2026-03-08T00:30:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-08T04:30:00-04:00"},
		},
		{
			"an hour of a step comes twice", "0 30 1-23/2 * * *", "America/New_York", "2026-11-01T00:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T03:30:00-05:00"},
		},
		{
			"all hours by name", "0 30 0-23 * * *", "America/New_York", "2026-11-01T01:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"},
		},
		{
			"a day on which no time is skipped", "0 30 1 * * *", "America/New_York", "2026-03-08T00:00:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-09T01:30:00-04:00"},
		},
		// 2026-11-01 in New York: 01:59:59 is followed by 01:00:00.
		{
			"a time that comes twice", "0 30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"},
		},
		{
			"made between the two", "0 30 1 * * *", "America/New_York", "2026-11-01T01:10:00-05:00",
			[]string{"2026-11-02T01:30:00-05:00"},
		},
		{
			"hours are counted, also the second one", "0 0,30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:00:00-05:00"},
		},
		{
			"before and behind what comes twice", "0 45 0-2 * * *", "America/New_York", "2026-11-01T00:00:00-04:00",
			[]string{"2026-11-01T00:45:00-04:00", "2026-11-01T01:45:00-04:00", "2026-11-01T02:45:00-05:00"},
		},
		// In Sydney, 2026-10-04 02:00 is 03:00, and 2026-04-05 03:00 is 02:00.
		{
			"skipped in the south", "0 15 2 * * *", "Australia/Sydney", "2026-10-03T03:00:00+10:00",
			[]string{"2026-10-04T03:00:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		{
			"twice in the south", "0 15 2 * * *", "Australia/Sydney", "2026-04-04T03:00:00+11:00",
			[]string{"2026-04-05T02:15:00+11:00", "2026-04-06T02:15:00+10:00"},
		},
		// At Lord Howe half an hour: 2026-10-04 02:00 is 02:30, and 2026-04-05 02:00 is 01:30.
		{
			"half an hour is skipped", "0 0,15,45 2 * * *", "Australia/Lord_Howe", "2026-10-04T01:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00", "2026-10-05T02:00:00+11:00"},
		},
		{
			"half an hour comes twice", "0 15,45 1 * * *", "Australia/Lord_Howe", "2026-04-05T01:00:00+11:00",
			[]string{"2026-04-05T01:15:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-06T01:15:00+10:30"},
		},
		{
			"and for those that count hours", "0 15,45 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00:00+11:00",
			[]string{"2026-04-05T01:15:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30", "2026-04-05T02:15:00+10:30"},
		},
		// In Berlin midnight is far from the changes, and a day has 23 or 25 hours.
		{
			"daily", "@daily", "Europe/Berlin", "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		},
		// Beyond the table of the zone, and over 31 December of leap years.
		{
			"leap days", "0 0 0 29 2 *", "Europe/Berlin", "2026-01-01T00:00:00+01:00",
			[]string{"2028-02-29T00:00:00+01:00", "2032-02-29T00:00:00+01:00", "2036-02-29T00:00:00+01:00", "2040-02-29T00:00:00+01:00", "2044-02-29T00:00:00+01:00"},
		},
		// Apia left out 2011-12-30: its clocks were put forward by a day.
		{
			"a day is skipped", "0 0 12 30 12 *", "Pacific/Apia", "2011-12-29T13:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, runs(t, c.text, c.zone, c.after, len(c.want)))
		})
	}
}

// A model: a clock that goes second by second, over two days around each change of some
// zones, for schedules that count hours, where no rule is needed.
func TestNextSecondBySecond(t *testing.T) {
	for _, zone := range []string{"America/New_York", "Australia/Lord_Howe", "Europe/London"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for from := time.Date(2026, 1, 1, 0, 0, 0, 0, loc); from.Year() == 2026; {
			_, end := from.ZoneBounds()
			from = end
			first := end.Add(-time.Hour)
			for _, text := range []string{"*/7 */13 * * * *", "0 0 * * * *", "30 15,45 */3 * * *"} {
				s, err := Parse(text, zone, first)
				require.NoError(t, err)
				var want, got []time.Time
				for now := first.Add(time.Second); now.Before(end.Add(3 * time.Hour)); now = now.Add(time.Second) {
					if h, m, sec := now.In(loc).Clock(); s.cron.hour&(1<<h) != 0 && s.cron.minute&(1<<m) != 0 && s.cron.second&(1<<sec) != 0 {
						want = append(want, now.UTC())
					}
				}
				for now := first; ; {
					next, ok := s.Next(now)
					require.True(t, ok)
					if !next.Before(end.Add(3 * time.Hour)) {
						break
					}
					got, now = append(got, next), next
				}
				require.Equal(t, want, got, "%s in %s around %s", text, zone, end)
			}
		}
	}
}

func TestDue(t *testing.T) {
	made := at(t, "2026-01-01T00:00:00Z")
	s, err := Parse("@every 1m", "", made)
	require.NoError(t, err)
	newest, all := s.Due(made, made.Add(10*time.Minute), 2)
	require.Equal(t, []time.Time{made.Add(9 * time.Minute), made.Add(10 * time.Minute)}, newest)
	require.Equal(t, 10, all)
	newest, all = s.Due(made, made.Add(59*time.Second), 2)
	require.Empty(t, newest)
	require.Zero(t, all)

	once, err := Parse("@at 2025-01-01T00:00:00Z", "", made)
	require.NoError(t, err)
	require.True(t, once.Once())
	newest, all = once.Due(once.Begin(made), made, 5)
	require.Equal(t, []time.Time{at(t, "2025-01-01T00:00:00Z")}, newest, "what is late when it is made runs, too")
	require.Equal(t, 1, all)
	_, ok := once.Next(newest[0])
	require.False(t, ok)
	require.Equal(t, made, s.Begin(made))

	// More than are counted, in a schedule that runs in one month: the newest are found.
	often, err := Parse("* * * * 1 *", "", made)
	require.NoError(t, err)
	newest, all = often.Due(made, at(t, "2026-07-01T00:00:00Z"), 3)
	require.Equal(t, MaxCounted, all)
	require.Equal(t, []time.Time{at(t, "2026-01-31T23:59:57Z"), at(t, "2026-01-31T23:59:58Z"), at(t, "2026-01-31T23:59:59Z")}, newest)
}

func TestParseRefuses(t *testing.T) {
	made := at(t, "2026-01-01T00:00:00Z")
	for _, c := range []struct{ text, zone, want string }{
		{"", "", "six fields"},
		{"*/5 * * * *", "", "and not 5"},
		{"60 * * * * *", "", `second "60"`},
		{"0 0 24 * * *", "", "0 to 23"},
		{"0 0 0 0 * *", "", "1 to 31"},
		{"0 0 0 * 13 *", "", "1 to 12 and jan to dec"},
		{"0 0 0 * * 7", "", "0 to 6 and sun to sat"},
		{"0 0 0 * * mon-sun", "", "ends before it begins"},
		{"0 */0 * * * *", "", "the step"},
		{"0 */-1 * * * *", "", "the step"},
		{"0 1,,2 * * * *", "", "minute"},
		{"0 *-5 * * * *", "", "minute"},
		{"0 0 0 30 2 *", "", "no such day exists"},
		{"@reboot", "", "allowed are @at"},
		{"@at tomorrow", "", "RFC 3339"},
		{"@at 2036-01-01T00:00:00Z", "", "ten years"},
		{"@at 1969-01-01T00:00:00Z", "", "1970"},
		{"@at 2026-02-01T00:00:00Z", "Europe/Berlin", "without a time zone"},
		{"@every 1h", "UTC", "without a time zone"},
		{"@every 999ms", "", "from 1s"},
		{"@every 90000h", "", "ten years"},
		{"@every", "", "from 1s"},
		{"@daily", "Europe/Nowhere", "not known"},
		{"@daily", "Local", "not known"},
		{"@daily", "+02:00", "not known"},
		{"@daily", "../../etc/passwd", "not known"},
	} {
		_, err := Parse(c.text, c.zone, made)
		require.ErrorContains(t, err, c.want, "%q in %q", c.text, c.zone)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0 30 2 * * mon-fri", "@every 90m", "@at 2026-03-29T02:30:00Z", "*/7 1-5/2,9 * * feb *", "@daily"} {
		f.Add(text, "America/New_York", int64(1_773_000_000))
	}
	f.Add("0 0 0 29 2 *", "Europe/Berlin", int64(1_861_833_600)) // 31 December 2028
	f.Add("@yearly", "America/New_York", int64(1_861_833_600))
	f.Fuzz(func(t *testing.T, text, zone string, made int64) {
		if made < 0 || made > 4_000_000_000 || strings.Contains(zone, "/") && len(zone) > 40 {
			t.Skip()
		}
		now := time.Unix(made, 0)
		s, err := Parse(text, zone, now)
		if err != nil {
			return
		}
		for range 5 {
			next, ok := s.Next(now)
			if !ok {
				break
			}
			if !next.After(now) {
				t.Fatalf("%q in %q: %s is not after %s", text, zone, next, now)
			}
			if s.cron != nil {
				if _, steps, _ := s.cron.search(now); steps >= maxSteps/2 {
					t.Fatalf("%q in %q: %d steps after %s", text, zone, steps, now)
				}
			}
			now = next
		}
	})
}

func BenchmarkNext(b *testing.B) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"@every 1s", "* * * * * *", "0 30 2 * * *", "0 0 0 29 2 *"} {
		s, err := Parse(text, zoneOf(text), made)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(text, func(b *testing.B) {
			now := made
			for b.Loop() {
				if next, ok := s.Next(now); ok && next.Year() < 2035 {
					now = next
				} else {
					now = made
				}
			}
		})
	}
}

func zoneOf(text string) string {
	if strings.HasPrefix(text, "@") {
		return ""
	}
	return "America/New_York"
}
