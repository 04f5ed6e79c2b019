package ordered

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// model is what a page of a sorted list of strings is.
func model(sorted []string, prefix, after string, offset, limit int) Page {
	var p Page
	var rest []string
	for _, key := range sorted {
		if strings.HasPrefix(key, prefix) {
			p.Total++
			if key > after || after == "" {
				rest = append(rest, key)
			}
		}
	}
	rest = rest[min(offset, len(rest)):]
	p.Keys = append(p.Keys, rest[:min(limit, len(rest))]...)
	if n := len(p.Keys); n > 0 && n < len(rest) {
		p.Next = p.Keys[n-1]
	}
	return p
}

// Random keys come and go; every page equals the page of a sorted list. Blocks keep the sizes that
// their comments state.
func TestSetAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	key := func() string {
		switch r.IntN(10) {
		case 0:
			return strings.Repeat("\xff", 1+r.IntN(3))
		case 1:
			return fmt.Sprintf("a\xff%d", r.IntN(100))
		}
		return fmt.Sprintf("%c:%d", 'a'+rune(r.IntN(3)), r.IntN(4000))
	}
	var s Set
	have := map[string]bool{}
	for round := range 60 {
		grow := round%20 < 12 // and then shrink
		for range 800 {
			if k := key(); grow {
				s.Add(k)
				have[k] = true
			} else {
				s.Remove(k)
				delete(have, k)
			}
		}
		sorted := make([]string, 0, len(have))
		for k := range have {
			sorted = append(sorted, k)
		}
		slices.Sort(sorted)
		require.Equal(t, len(sorted), s.Len())
		for _, prefix := range []string{"", "a", "b:1", "a\xff", "\xff", "\xff\xff", "none"} {
			for _, after := range []string{"", key(), key(), "a:39999"} {
				offset, limit := r.IntN(3)*r.IntN(1500), 1+r.IntN(1000)
				require.Equal(t, model(sorted, prefix, after, offset, limit), s.Page(prefix, after, offset, limit),
					"prefix %q after %q offset %d limit %d", prefix, after, offset, limit)
			}
		}
		for b, at := range s.blocks {
			require.NotEmpty(t, at.keys)
			require.Less(t, len(at.keys), blockSize)
			require.Len(t, at.values, len(at.keys))
			if b > 0 {
				require.GreaterOrEqual(t, len(s.blocks[b-1].keys)+len(at.keys), min(blockSize/4, s.Len()), "neighbours are not both almost empty")
			}
		}
	}
}

// The pages of a cursor are the list, also while keys come and go before it.
func TestCursor(t *testing.T) {
	var s Set
	for i := range 5000 {
		s.Add(fmt.Sprintf("k%05d", i))
	}
	var all []string
	for after := ""; ; {
		p := s.Page("", after, 0, 7)
		all = append(all, p.Keys...)
		for _, seen := range p.Keys {
			s.Remove(seen)
			s.Add("a" + seen)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	require.Len(t, all, 5000)
	require.True(t, slices.IsSorted(all))
	require.Equal(t, Page{}, (&Set{}).Page("", "", 0, 10))
}

// Random keys come, change and go, and the map says of each what a map says; From is a
// sorted list, and a round of Next that nothing disturbs meets each entry once.
func TestMapAgainstAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var m Map[int]
	have := map[string]int{}
	key := func() string { return fmt.Sprintf("%c:%d", 'a'+rune(r.IntN(3)), r.IntN(3000)) }
	var c Cursor
	for round := range 30 {
		for range 1000 {
			k := key()
			if round%10 < 6 || r.IntN(4) == 0 {
				have[k] = r.Int()
				m.Put(k, have[k])
			} else {
				m.Remove(k)
				delete(have, k)
			}
			k, v, ok := m.Next(&c)
			require.Equal(t, len(have) > 0, ok)
			require.Equal(t, have[k], v, "whatever changes, what Next returns is there")
			k = key()
			want, there := have[k]
			v, ok = m.Get(k)
			require.Equal(t, there, ok)
			require.Equal(t, want, v)
		}
		require.Equal(t, len(have), m.Len())
		for _, prefix := range []string{"", "a", "b:1", "none"} {
			var sorted []string
			for k, v := range m.From(prefix) {
				require.True(t, strings.HasPrefix(k, prefix))
				require.Equal(t, have[k], v)
				sorted = append(sorted, k)
			}
			require.True(t, slices.IsSorted(sorted))
			require.Len(t, sorted, m.Page(prefix, "", 0, 1).Total)
		}
		met := map[string]int{}
		for range m.Len() {
			k, _, _ := m.Next(&c)
			met[k]++
		}
		require.Len(t, met, m.Len())
	}
	_, _, ok := (&Map[int]{}).Next(&c)
	require.False(t, ok)
}
