// Package config is what `fila serve` can be told.
//
// [Load] puts a [Config] together from the defaults, a file, the environment and
// flags, later ones winning, and a context of the nats CLI for what they leave
// open; [Config.Validate] refuses what cannot work. Every error is one line that
// names the key, the value and what is allowed. [Diff] and [RestartKeys] say how
// two configurations differ, as a reload needs to know.
//
// A Config is plain data: nothing here acts on it.
package config
