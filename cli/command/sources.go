package command

import (
	"maps"
	"slices"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire/api"
)

// Sources is a table of who set the values of an object, without those that have their defaults.
func (env *Env) Sources(sources api.Sources) string {
	t := terminal.NewTable("SETTING", "SET BY", "CLIENT", "AT")
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if s := sources[name]; s.By != api.SetByDefault {
			t.Row(name, s.By, terminal.OrDash(api.AuthorText(s.Client, s.Owner)), env.When(s.At))
		}
	}
	return t.Or("")
}
