package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyTemplates(t *testing.T) {
	headers := map[string][]string{"tenant": {"acme", "b"}, "vendor": {"mailer"}, "empty": {""}, "braces": {"{tenant}"}}
	for text, want := range map[string]string{
		"":                   "",
		"tenant":             "acme",
		"{tenant}":           "acme",
		"tenant:{tenant}":    "tenant:acme",
		"{tenant}:{vendor}!": "acme:mailer!",
		"{tenant}{tenant}":   "acmeacme",
		"Tenant":             "",
		"empty":              "",
		"t:{empty}":          "",
		"{tenant}:{missing}": "",
		"{braces}":           "{tenant}",
		"über {tenant}":      "über acme",
	} {
		template, err := ParseKeyTemplate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, template.Key(headers), text)
	}
	for text, mistake := range map[string]string{
		"a b":                            "is no header's name",
		"tenant:":                        "is no header's name",
		"{":                              "has no }",
		"}":                              "has no {",
		"{a}}":                           "has no {",
		"{{a}}":                          "is no header's name",
		"{}":                             `"" is no header's name`,
		"{a b}":                          "is no header's name",
		"x{Nats-Msg-Id}":                 "is no header's name",
		"{Fila-Id}":                      "is no header's name",
		strings.Repeat("{a}", 9):         "names 9 headers",
		strings.Repeat("x", 256) + "{a}": "has 256 bytes",
		"a\x01{a}":                       "without control characters",
		"\xff{a}":                        "UTF-8",
	} {
		_, err := ParseKeyTemplate(text)
		require.ErrorContains(t, err, mistake, "%q", text)
	}
}

// TestTemplatesAndLimits: which limits may be intended for the keys of a template.
func TestTemplatesAndLimits(t *testing.T) {
	meant := func(text, limit string) bool {
		template, err := ParseKeyTemplate(text)
		require.NoError(t, err)
		key, prefix := strings.CutSuffix(limit, "*")
		return template.Meant(key, prefix)
	}
	require.True(t, meant("tenant:{tenant}", "tenant:*"))
	require.True(t, meant("tenant:{tenant}", "tenant:a*"))
	require.True(t, meant("tenant:{tenant}", "ten*"))
	require.True(t, meant("tenant:{tenant}", "*"))
	require.True(t, meant("tenant:{tenant}", "tenant:acme"))
	require.False(t, meant("tenant:{tenant}", "tenant:"))
	require.False(t, meant("tenant:{tenant}", "acme"))
	require.False(t, meant("tenant:{tenant}", "vendor:*"))
	require.True(t, meant("tenant", "acme"))
	require.True(t, meant("tenant", "*"))
	require.False(t, meant("tenant", "tenant:*"))
	require.False(t, meant("", "acme"))
}

func FuzzKeyTemplate(f *testing.F) {
	for _, text := range []string{"", "tenant", "a:{b}", "{a}{b}", "{", "}", "{{", "x{y}z"} {
		f.Add(text, "value")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		template, err := ParseKeyTemplate(text)
		if err != nil {
			return
		}
		headers := map[string][]string{}
		for _, name := range template.Headers() {
			if strings.HasPrefix(name, "Fila-") || strings.HasPrefix(name, "Nats-") {
				t.Fatalf("%q names %s", text, name)
			}
			headers[name] = []string{value}
		}
		key := template.Key(headers)
		if (value == "" || text == "") != (key == "") {
			t.Fatalf("%q of %q is %q", text, value, key)
		}
		if !strings.HasPrefix(key, template.Prefix()) && key != "" || len(key) > len(text)+MaxTemplateHeaders*len(value) {
			t.Fatalf("%q of %q is %q", text, value, key)
		}
	})
}
