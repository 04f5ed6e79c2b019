package wire

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestKeysHaveOneForm: the form of a key is printable, names the key, and equals the key if
// possible.
func TestKeysHaveOneForm(t *testing.T) {
	for key, form := range map[string]string{
		"acme": "acme", "two words": "two words", "héllo": "héllo", `C:\temp`: `C:\temp`, `\xyz`: `\xyz`,
		"a\xff": `a\xff`, "a\nb": `a\x0ab`, "\u0085": `\xc2\x85`, "\x00": `\x00`, `a\xff`: `a\x5cxff`, "\ufffd": "\ufffd",
		"\xff\\xff": `\xff\x5cxff`,
	} {
		require.Equal(t, form, ShowKey(key), "%q", key)
		require.Equal(t, key, NamedKey(form), "%q", key)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOf(rapid.SampledFrom([]byte("\\xX0aF\x00\n\x7f\xc2\x85\xff\xe2\x82\xac"))).Draw(t, "key"))
		form := ShowKey(key)
		require.Equal(t, key, NamedKey(form), "%q as %q", key, form)
		require.True(t, utf8.ValidString(form))
		for _, r := range form {
			require.False(t, unicode.IsControl(r))
		}
	})
}

// TestTextsHaveOneForm like keys, but texts may have control characters.
func TestTextsHaveOneForm(t *testing.T) {
	for text, form := range map[string]string{
		"": "", "héllo\tx": "héllo\tx", "a\xff\tb": "a\\xff\tb", `a\xff`: `a\x5cxff`, `C:\temp\xyz`: `C:\temp\xyz`, "日本"[:5]: `日\xe6\x9c`,
	} {
		require.Equal(t, form, ShowText(text), "%q", text)
		require.Equal(t, text, NamedKey(form), "%q", text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.SampledFrom([]byte("\\xX0aF\x00\n\x7f\xc2\x85\xff\xe2\x82\xac"))).Draw(t, "text"))
		form := ShowText(text)
		require.Equal(t, text, NamedKey(form), "%q as %q", text, form)
		require.True(t, utf8.ValidString(form))
	})
	h := map[string][]string{"a": {"1", "2"}, "b": {"3\xff"}}
	require.Equal(t, map[string][]string{"a": {"1", "2"}, "b": {`3\xff`}}, ShowHeaders(h))
	require.Equal(t, "3\xff", h["b"][0])
	require.Nil(t, ShowHeaders(nil))
}
