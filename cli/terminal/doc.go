// Package terminal formats values for people and parses their input: tables ([Table]) and JSON,
// colours ([Style]), redrawn screens ([Draw]), times with their distance from now ([Clock]),
// durations ([Millis]), sizes and counts.
//
// Widths are columns of a terminal, not characters: some characters take two. Text from
// elsewhere goes through [Clean] before it is written; a Table does that itself.
package terminal
