// Package terminal is how the command line writes values for people, and reads
// them from people: tables ([Table]) and JSON, colours ([Style]) and screens that
// are drawn over themselves ([Draw]), times with their distance from now
// ([Clock]), durations ([Millis]), sizes and counts.
//
// Widths are columns of a terminal, not characters: some take two. Text from
// elsewhere goes through [Clean] before it is written; a Table does that itself.
package terminal
