// Package schedule says when schedules run: [Parse] makes a [Schedule] of a text in the
// format of NATS's ADR-51, which says what comes next, and what has come since.
//
//	@at 2026-03-29T02:30:00+01:00   once
//	@every 90m                      at a fixed interval, counted from when it was made
//	0 30 2 * * mon-fri              cron: second, minute, hour, day of month, month, day of week
//	@hourly @daily @midnight @weekly @monthly @yearly @annually
//
// A cron schedule names times of a clock on the wall in its time zone, UTC if it has none.
// What it does where that clock is changed is ours, as ADR-51 leaves it open:
//
//   - A time that is skipped runs at the moment of the change, once, however many of the
//     times of the schedule are skipped.
//   - A time that comes twice runs the first time.
//   - An hour field with a * counts hours, and not times of day: such a schedule runs in
//     both of the hours of that name, and in none that does not exist.
//
// The time zones come with the program; those of the system are used where there are some,
// as they may be newer.
package calendar
