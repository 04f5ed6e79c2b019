// Package schedule says when schedules run: [Parse] makes a [Schedule] of a text in the
// format of NATS's ADR-51, which returns its next run, and its runs since a time.
//
//	@at 2026-03-29T02:30:00+01:00   once
//	@every 90m                      at a fixed interval, counted from when it was made
//	0 30 2 * * mon-fri              cron: second, minute, hour, day of month, month, day of week
//	@hourly @daily @midnight @weekly @monthly @yearly @annually
//
// A cron schedule names times of a clock on the wall in its time zone, UTC if it has none.
// ADR-51 leaves open what happens when that clock changes. Here:
//
//   - Times that are skipped make one run, at the moment of the change.
//   - A time that comes twice makes a run the first time.
//   - An hour field with a * counts hours, not times of day: such a schedule runs in both
//     hours of the same name, and in no hour that is skipped.
//
// The program contains the time zones. It prefers the system's zones, which may be newer.
package calendar
