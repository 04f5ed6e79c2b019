package command

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		far  int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"orders", "orders", 0},
		{"ordres", "orders", 1},
		{"order", "orders", 1},
		{"ordersx", "orders", 1},
		{"orderz", "orders", 1},
		{"redors", "orders", 3},
		{"mail", "orders", 6},
	} {
		require.Equal(t, tc.far, distance(tc.a, tc.b), tc)
		require.Equal(t, tc.far, distance(tc.b, tc.a), tc)
	}
}

func TestNear(t *testing.T) {
	all := []string{"mail", "mail.dlq", "orders", "orders-eu", "orders-us", "orders-za", "orders.dlq", "x"}
	for name, want := range map[string][]string{
		"ordres":     {"orders"},
		"Orders":     {"orders"},
		"ord":        {"orders", "orders-eu", "orders-us"},
		"orders.dql": {"orders.dlq"},
		"orders-u":   {"orders-eu", "orders-us"},
		"mails.dlq":  {"mail.dlq"},
		"mial":       {"mail"},
		"orders":     nil, // it exists: something else is missing
		"payments":   nil,
		"y":          {"x"},
	} {
		require.Equal(t, want, Near(name, all), name)
	}
}
