package throttle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// choices is the source of random choices: rapid or a fuzzer.
type choices interface {
	// pick is from 0 to n-1.
	pick(n int) int
	// log logs a step, to be shown if the test fails.
	log(format string, args ...any)
}

// one picks one of them.
func one[T any](c choices, of []T) T { return of[c.pick(len(of))] }

type rapidChoices struct{ t *rapid.T }

func (c rapidChoices) pick(n int) int { return rapid.IntRange(0, n-1).Draw(c.t, "pick") }

func (c rapidChoices) log(format string, args ...any) { c.t.Logf(format, args...) }

// seeded makes random choices and shows the steps if the test fails.
type seeded struct {
	*testing.T
	r    *rand.Rand
	said []string
}

func (s *seeded) pick(n int) int { return s.r.IntN(n) }

func (s *seeded) log(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *seeded) Errorf(format string, args ...any) {
	s.T.Log(strings.Join(s.said, "\n"))
	s.T.Errorf(format, args...)
}

// byteChoices takes the choices from the bytes of a fuzzer.
type byteChoices struct{ b []byte }

func (c *byteChoices) log(string, ...any) {}

func (c *byteChoices) pick(n int) int {
	if len(c.b) == 0 {
		return 0
	}
	v := int(c.b[0])
	c.b = c.b[1:]
	return v % n
}
